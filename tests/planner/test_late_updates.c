/* Late updates on the host lane: which updates leave their turn, in which order they run, and that
 * every program of such a plan is valid. The verifier is the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "planner/lower_late.h"
#include "planner/residency.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_plan.h"
#include "tests/temporary.h"

enum { LAYERS = 6, ALL = LAYERS + 1, UPDATES_MOST = 256 };

typedef struct setting {
    const char *name;
    toy_options toy;
    toy_tiers tiers;
    int host_updates;
} setting;

static const setting settings[] = {
    { "all updates, tied",
      { .layers = LAYERS, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
      { .microbatches = 1, .percent = 60 },
      .host_updates = ALL },
    { "half of the updates, accumulation, kinds that cannot add",
      { .layers = LAYERS, .width = 80, .vocabulary = 300, .rows = 60, .overwrites = 1 },
      { .microbatches = 3, .percent = 60 },
      .host_updates = LAYERS / 2 },
    { "all updates, bf16, a drive, by layers",
      { .layers = LAYERS, .width = 64, .vocabulary = 900, .rows = 40, .dtype = COH_DTYPE_BF16 },
      { .microbatches = 3, .percent = 60, .disk = 1, .order = COH_SWEEP_LAYER },
      .host_updates = ALL },
    { "a shared parameter, one frozen",
      { .layers = LAYERS, .width = 64, .vocabulary = 300, .rows = 40, .freezes = 1, .extras = 1 },
      { .microbatches = 2, .percent = 60 },
      .host_updates = ALL },
};
enum { SETTING_COUNT = sizeof(settings) / sizeof(settings[0]) };

static coh_plan *make_plan(const setting *what, const coh_graph *graph, int late)
{
    const coh_plan_options options = toy_plan_options(graph, &what->tiers);
    const coh_decisions decisions = { .boundary = COH_BOUNDARY_SETTLED,
                                      .host_updates = what->host_updates,
                                      .late = late };
    coh_plan *plan = NULL;
    if (toy_plan_make(graph, &options, &decisions, &plan) != COH_OK)
        fail_msg("%s, %d late: %s", what->name, late, coh_last_error());
    return plan;
}

/* An update of the host lane: its parameters' chunk, when its gradient is complete, and when a
 * step first reads its parameters (positions among the instructions of the body). */
typedef struct update {
    uint32_t chunk, arrival, use;
    uint64_t bytes;
} update;

static uint32_t chunk_of(const coh_program *body, uint32_t touch)
{
    return body->extents[body->touches[touch].extent].chunk;
}

static int touches(const coh_program *body, const coh_instruction *instruction, uint32_t chunk)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++) {
        const coh_operand *operand = &body->operands[instruction->operand_begin + i];
        for (uint32_t t = 0; t < operand->touch_count; t++)
            if (chunk_of(body, operand->touch_begin + t) == chunk)
                return 1;
    }
    return 0;
}

/* Lists the updates of the host lane in their order. */
static int list_updates(const coh_plan *plan, update *list)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int count = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->lane != COH_LANE_HOST || instruction->opcode != COH_OP_UPDATE)
            continue;
        const coh_operand *operands = &body->operands[instruction->operand_begin];
        const uint32_t work = chunk_of(body, operands[0].touch_begin),
                       grad = chunk_of(body, operands[1].touch_begin);
        update *to = &list[count++];
        assert_true(count <= UPDATES_MOST);
        *to =
            (update){ .chunk = work, .use = UINT32_MAX, .bytes = plan->layout.chunks[work].bytes };
        for (uint32_t k = 0; k < body->instruction_count; k++) {
            const coh_instruction *other = &body->instructions[k];
            if (other->lane != COH_LANE_COMPUTE)
                continue;
            if (touches(body, other, work) && to->use == UINT32_MAX)
                to->use = k;
            if (touches(body, other, grad))
                to->arrival = k;
        }
    }
    return count;
}

static void check_order(const setting *what, const coh_graph *graph, int late, int count_most)
{
    update list[UPDATES_MOST];
    coh_plan *plan = make_plan(what, graph, late);
    const int count = list_updates(plan, list);
    uint64_t bytes = 0, late_bytes = 0, largest = 0;
    int prompt = 0;
    assert_int_equal(count, count_most);
    while (prompt < count && (prompt == 0 || list[prompt].arrival >= list[prompt - 1].arrival) &&
           late < COH_LATE_PARTS)
        prompt++;
    if (late == 0)
        assert_int_equal(prompt, count);
    /* the first late one may continue the order of arrival */
    for (int i = prompt + 1; i < count; i++)
        assert_true(list[i].use >= list[i - 1].use);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++)
            assert_true(list[k].chunk != list[i].chunk);
        bytes += list[i].bytes;
        late_bytes += i >= prompt ? list[i].bytes : 0;
        largest = list[i].bytes > largest ? list[i].bytes : largest;
    }
    const uint64_t due = bytes * (uint64_t)late / COH_LATE_PARTS;
    assert_true(late_bytes <= due && late_bytes + 3 * largest >= due);
    coh_plan_destroy(plan);
}

static void late_updates_run_in_the_order_in_which_the_next_step_needs_them(void **state)
{
    (void)state;
    for (int i = 0; i < SETTING_COUNT; i++) {
        coh_graph *graph = NULL;
        update list[UPDATES_MOST];
        assert_int_equal(toy_graph_make(&settings[i].toy, &graph), COH_OK);
        coh_plan *plan = make_plan(&settings[i], graph, 0);
        const int count = list_updates(plan, list);
        assert_true(count > 3);
        coh_plan_destroy(plan);
        for (int late = 0; late <= COH_LATE_PARTS; late += 4)
            check_order(&settings[i], graph, late, count);
        coh_graph_destroy(graph);
    }
}

static void deferred_updates_are_in_that_order_anyway(void **state)
{
    (void)state;
    setting what = settings[0];
    coh_graph *graph = NULL;
    what.tiers.deferred = 1;
    assert_int_equal(toy_graph_make(&what.toy, &graph), COH_OK);
    coh_plan *prompt = make_plan(&what, graph, 0), *late = make_plan(&what, graph, 8);
    assert_true(prompt->program_hash == late->program_hash);
    coh_plan_destroy(late);
    coh_plan_destroy(prompt);
    coh_graph_destroy(graph);
}

/* The plan file rebuilds the plan. */
static void a_plan_file_keeps_how_late_updates_run(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *again = NULL;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    assert_int_equal(toy_graph_make(&settings[1].toy, &graph), COH_OK);
    coh_plan *plan = make_plan(&settings[1], graph, 6), *prompt = make_plan(&settings[1], graph, 0);
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    if (coh_plan_read(graph, &plan->options, path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(again->decisions.late, 6);
    assert_true(again->program_hash == plan->program_hash);
    assert_true(again->program_hash != prompt->program_hash);
    assert_true(again->numeric_fingerprint == prompt->numeric_fingerprint);
    unlink(path);
    coh_plan_destroy(again);
    coh_plan_destroy(prompt);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_updates_run_in_the_order_in_which_the_next_step_needs_them),
        cmocka_unit_test(deferred_updates_are_in_that_order_anyway),
        cmocka_unit_test(a_plan_file_keeps_how_late_updates_run),
    };
    return cmocka_run_group_tests_name("late updates", tests, NULL, NULL);
}
