/* Traces of plans. The oracles: waits found again by counting a lane's instructions, bytes and
 * memory summed by plain loops, and the plan's own summary and memory curve. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cohobate/trace.h"
#include "planner/plan.h"
#include "planner/trace_tables.h"
#include "tests/faults/alloc_faults.h"
#include "tests/planner/toy_graph.h"

typedef enum placement { IN_MEMORY, ON_HOST, ON_DISK, ON_BOTH, PLACEMENTS } placement;

static coh_graph *toy(int is_bf16)
{
    coh_graph *graph = NULL;
    const toy_options options = { .layers = 3,
                                  .width = 1024,
                                  .vocabulary = 3000,
                                  .rows = 640,
                                  .freezes = 1,
                                  .overwrites = 1,
                                  .in_place = 1,
                                  .dtype = is_bf16 ? COH_DTYPE_BF16 : COH_DTYPE_F32 };
    assert_int_equal(toy_graph_make(&options, &graph), COH_OK);
    return graph;
}

static coh_plan *plan_of(const coh_graph *graph, placement where)
{
    coh_plan *plan = NULL;
    coh_plan_options options;
    uint64_t memory = 0;
    coh_plan_options_init(&options);
    options.search = COH_SEARCH_QUICK;
    options.microbatch_count = 2;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = where == IN_MEMORY ? UINT64_MAX : memory / 2;
    options.emulate_host = where == ON_HOST || where == ON_BOTH;
    options.host_memory_bytes = where == ON_HOST ? 2 * memory : where == ON_BOTH ? memory / 2 : 0;
    options.disk_bytes = where == ON_DISK || where == ON_BOTH ? UINT64_MAX : 0;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    return plan;
}

/* Returns the instruction with this ordinal on a lane, by counting from the first one. */
static uint32_t nth(const coh_trace *trace, int lane, uint32_t ordinal)
{
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (trace->instructions[i].lane == lane && --ordinal == 0)
            return i;
    return COH_TRACE_NONE;
}

static void check_instructions(const coh_plan *plan, const coh_trace *trace)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    uint64_t bytes[COH_LANE_COUNT] = { 0 }, earliest = UINT64_MAX;
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    assert_int_equal(trace->instruction_count, summary.instruction_count);
    assert_int_equal(trace->predicted_step_ns, summary.step_ns);
    assert_true(trace->program_hash == summary.program_hash);
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        const coh_trace_instruction *t = &trace->instructions[i];
        const coh_instruction *p = &body->instructions[i];
        const int moves = t->chunk != COH_TRACE_NONE;
        assert_string_equal(trace->opcodes[t->opcode], coh_price_name((coh_opcode)p->opcode));
        bytes[t->lane] += moves ? t->bytes : 0;
        earliest = t->predicted_begin_ns < earliest ? t->predicted_begin_ns : earliest;
        assert_int_equal(moves, t->lane != COH_LANE_COMPUTE && t->lane != COH_LANE_HOST);
        assert_int_equal(moves, t->stream != COH_TRACE_NONE);
        assert_int_equal(t->is_shared, 0);
        assert_int_equal(t->wait_count, p->wait_count);
        for (uint32_t w = 0; w < t->wait_count; w++) {
            const coh_wait *wait = &body->waits[p->wait_begin + w];
            assert_int_equal(trace->waits[t->wait_begin + w].instruction,
                             nth(trace, wait->lane, wait->ordinal));
            assert_int_equal(trace->waits[t->wait_begin + w].carry, wait->carry);
        }
    }
    assert_int_equal(earliest, 0);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        assert_int_equal(bytes[lane], summary.link_bytes[lane]);
}

/* Each instruction names the operator that it computes, or whose parameters it touches. */
static void check_operators(const coh_plan *plan, const coh_trace *trace)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    assert_int_equal(trace->operator_count, plan->graph->op_count);
    for (uint32_t i = 0; i < trace->operator_count; i++)
        assert_string_equal(trace->operators[i].name, plan->graph->ops[i].name);
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        const coh_trace_instruction *t = &trace->instructions[i];
        const coh_operand *first = &body->operands[body->instructions[i].operand_begin];
        const coh_object *object = &plan->layout.objects[first->object];
        if (strcmp(trace->opcodes[t->opcode], "update") != 0 && t->stream > COH_STREAM_STATE)
            continue;
        int32_t introduces = -1; /* the operator of the group's first parameter */
        for (uint32_t p = plan->layout.parameter_count; p-- > 0;)
            if (plan->layout.parameters[p].group == object->owner)
                introduces = plan->graph->parameters[plan->layout.parameters[p].parameter].op;
        assert_int_equal(t->operator_index, introduces);
    }
}

/* The bytes of copies that a step drops as it begins, and fetches again before its end. */
static uint64_t dropped_bytes(const coh_program *body, int tier)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < body->extent_count; i++)
        if (body->extents[i].tier == tier && coh_extent_is_unused(&body->extents[i]))
            bytes += body->extents[i].bytes;
    return bytes;
}

/* In the program's order extents never exceed the arena, and at the step's borders they are what
 * the layout says is resident between programs. */
static void check_memory(const coh_plan *plan, const coh_trace *trace)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t bytes[COH_TIER_COUNT], residents[COH_TIER_COUNT] = { 0 };
    memcpy(bytes, trace->pinned_bytes, sizeof(bytes));
    for (uint32_t i = 0; i < trace->extent_count; i++)
        bytes[trace->extents[i].tier] += trace->extents[i].at_begin ? trace->extents[i].bytes : 0;
    for (uint32_t i = 0; i < plan->layout.resident_count; i++)
        residents[plan->layout.residents[i].tier] +=
            plan->layout.chunks[plan->layout.residents[i].chunk].bytes;
    assert_int_equal(bytes[COH_TIER_DEVICE] + dropped_bytes(body, COH_TIER_DEVICE),
                     residents[COH_TIER_DEVICE] + plan->layout.pinned_bytes);
    assert_int_equal(bytes[COH_TIER_HOST] + dropped_bytes(body, COH_TIER_HOST),
                     residents[COH_TIER_HOST]);
    assert_int_equal(bytes[COH_TIER_DISK], plan->layout.file_bytes);
    for (uint32_t at = 0; at < trace->instruction_count; at++) {
        for (uint32_t i = 0; i < trace->extent_count; i++)
            if (trace->extents[i].first == at && !trace->extents[i].at_begin)
                bytes[trace->extents[i].tier] += trace->extents[i].bytes;
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            assert_true(bytes[tier] <= trace->arena_bytes[tier]);
        for (uint32_t i = 0; i < trace->extent_count; i++)
            if (trace->extents[i].last == at && !trace->extents[i].at_end)
                bytes[trace->extents[i].tier] -= trace->extents[i].bytes;
    }
    assert_int_equal(bytes[COH_TIER_DEVICE],
                     residents[COH_TIER_DEVICE] + plan->layout.pinned_bytes);
    assert_int_equal(bytes[COH_TIER_HOST], residents[COH_TIER_HOST]);
}

static void a_trace_is_what_the_plan_says(void **state)
{
    (void)state;
    for (int where = 0; where < PLACEMENTS; where++) {
        coh_graph *graph = toy(where % 2);
        coh_plan *plan = plan_of(graph, (placement)where);
        coh_trace *trace = NULL;
        assert_int_equal(coh_plan_trace(plan, &trace), COH_OK);
        assert_int_equal(coh_trace_check(trace, COH_ERR_CORRUPT), COH_OK);
        assert_int_equal(trace->step_count, 0);
        check_instructions(plan, trace);
        check_operators(plan, trace);
        check_memory(plan, trace);
        coh_plan_destroy(plan);
        coh_trace_free(trace); /* needs no plan */
        coh_graph_destroy(graph);
    }
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    coh_graph *graph = toy(0);
    coh_plan *plan = plan_of(graph, ON_DISK);
    coh_trace *trace = NULL;
    coh_status status = COH_ERR_MEMORY;
    int failed = 0;
    for (; status != COH_OK; failed++) {
        alloc_fail_nth((uint64_t)failed + 1);
        status = coh_plan_trace(plan, &trace);
        alloc_fail_nth(0);
        assert_true(status == COH_OK || (status == COH_ERR_MEMORY && trace == NULL));
    }
    assert_true(failed > 5);
    coh_trace_free(trace);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_is_what_the_plan_says),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
