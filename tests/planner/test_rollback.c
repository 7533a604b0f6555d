/* Rule ROLLBACK: each way in which a body could overwrite what a second run of it reads is refused,
 * and by this rule alone where no other rule looks. The plans are the scheduler's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/plan_make.h"
#include "planner/verify.h"
#include "tests/planner/toy_graph.h"

static coh_graph *graph;
static coh_plan *plan;

static int begin(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 3, .width = 64, .vocabulary = 400, .rows = 30 };
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 1,
                                 .microbatch_count = 1,
                                 .deferred_update = 1,
                                 .recompute = COH_RECOMPUTE_NONE };
    uint64_t memory = 0;
    coh_plan *waits = NULL;
    snprintf(options.kernel_path, sizeof(options.kernel_path), "toy");
    if (toy_graph_make(&toy, &graph) != COH_OK ||
        coh_plan_in_memory_bytes(graph, &options, &memory) != COH_OK)
        return -1;
    options.device_memory_bytes = memory / 100 * 60;
    options.disk_bytes = UINT64_MAX;
    if (coh_plan_create(graph, &options, &waits) != COH_OK)
        return -1;
    options.speculates = 1;
    coh_status status = coh_plan_open(graph, &options, &plan);
    plan->decisions = waits->decisions;
    coh_plan_destroy(waits);
    if (status == COH_OK)
        status = coh_plan_finish(plan);
    return status == COH_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return 0;
}

/* Checks that the body as it is now breaks a rule, and with `is_alone` no other one. */
static void breaks(coh_rule rule, int is_alone)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    coh_verify_options options = { .budget_bytes = { UINT64_MAX, 0, UINT64_MAX } };
    coh_verify_result result;
    options.rules_off = is_alone ? 0 : ~(1u << rule);
    assert_int_equal(coh_verify(&plan->layout, body, &options, &result), COH_ERR_CORRUPT);
    assert_int_equal(result.rule, rule);
    options.rules_off = 1u << rule;
    if (is_alone)
        assert_int_equal(coh_verify(&plan->layout, body, &options, &result), COH_OK);
}

static void holds(void)
{
    const coh_verify_options options = { .budget_bytes = { UINT64_MAX, 0, UINT64_MAX } };
    assert_int_equal(coh_verify(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &options, NULL),
                     COH_OK);
}

/* Returns a chunk that updates write. */
static uint32_t kept_chunk(void)
{
    uint32_t chunk = 0;
    while (!coh_chunk_keeps_old(&plan->layout, chunk))
        chunk++;
    return chunk;
}

static void every_updated_chunk_has_two_homes_and_lies_nowhere_else(void **state)
{
    (void)state;
    holds();
    uint64_t kept = 0;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    for (uint32_t c = 0; c < plan->layout.chunk_count; c++)
        if (coh_chunk_keeps_old(&plan->layout, c)) {
            assert_true(plan->layout.chunks[c].odd_offset != plan->layout.chunks[c].file_offset);
            kept += plan->layout.chunks[c].bytes;
        }
    for (uint32_t i = 0; i < plan->layout.resident_count; i++)
        assert_false(coh_chunk_keeps_old(&plan->layout, plan->layout.residents[i].chunk));
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    assert_true(kept > 0 && summary.kept_bytes == kept);
    assert_true(summary.peak_bytes[COH_TIER_DISK] >= 2 * kept);
}

static void homes_that_overlap_are_refused(void **state)
{
    (void)state;
    coh_chunk *chunk = &plan->layout.chunks[kept_chunk()];
    const uint64_t before = chunk->odd_offset;
    chunk->odd_offset = chunk->file_offset;
    breaks(COH_RULE_OVERLAP, 1);
    chunk->odd_offset = before + 1;
    breaks(COH_RULE_ALIGNMENT, 0);
    chunk->odd_offset = plan->layout.file_bytes;
    breaks(COH_RULE_ALIGNMENT, 1);
    chunk->odd_offset = before;
    holds();
}

/* Both touches name version 2: rule READ sees that, too. */
static void a_write_over_version_0_is_refused(void **state)
{
    (void)state;
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint32_t found = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        coh_touch *from = &body->touches[body->operands[instruction->operand_begin].touch_begin];
        coh_touch *to = &body->touches[body->operands[instruction->operand_begin + 1].touch_begin];
        if (instruction->opcode != COH_OP_WRITE || !coh_chunk_keeps_old(&plan->layout, to->chunk))
            continue;
        found++;
        for (int version = 0; version <= 2; version += 2) {
            from->version = to->version = version;
            breaks(COH_RULE_ROLLBACK, 0);
        }
        from->version = to->version = 1;
    }
    assert_true(found > 0);
    holds();
}

static void an_entry_nearer_than_the_store_is_refused(void **state)
{
    (void)state;
    coh_layout *layout = &plan->layout;
    coh_resident entry = { .chunk = kept_chunk(), .tier = COH_TIER_DEVICE };
    coh_resident *const before = layout->residents;
    const uint32_t count = layout->resident_count;
    layout->residents = &entry;
    layout->resident_count = 1;
    breaks(COH_RULE_ROLLBACK, 0);
    layout->residents = before;
    layout->resident_count = count;
    holds();
}

static void a_deferred_update_is_refused(void **state)
{
    (void)state;
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        if (body->instructions[i].opcode != COH_OP_UPDATE)
            continue;
        body->instructions[i].predicate_cell = COH_CELL_PENDING;
        breaks(COH_RULE_ROLLBACK, 0);
        body->instructions[i].predicate_cell = COH_CELL_NONE;
    }
    holds();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_updated_chunk_has_two_homes_and_lies_nowhere_else),
        cmocka_unit_test(homes_that_overlap_are_refused),
        cmocka_unit_test(a_write_over_version_0_is_refused),
        cmocka_unit_test(an_entry_nearer_than_the_store_is_refused),
        cmocka_unit_test(a_deferred_update_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
