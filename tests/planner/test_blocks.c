/* Recomputation by block: sets of blocks as values and as text, and plans that recompute exactly
 * these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "planner/block_set.h"
#include "planner/plan_make.h"
#include "tests/planner/toy_graph.h"
#include "tests/temporary.h"

static void a_set_has_one_text(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "0", "1023", "0-3,7", "0-1023", "5-6,8,10-1023" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_block_set set;
        coh_text again = { 0 };
        assert_int_equal(coh_block_set_read(texts[i], &set), COH_OK);
        assert_int_equal(coh_block_set_write(&set, &again), COH_OK);
        assert_string_equal(again.data ? again.data : "", texts[i]);
        coh_text_fini(&again);
    }
    static const char *const others[] = { "-",    "a",  "3-1",   "1-1",
                                          "0-3,", ",1", "0,1",   "2,1",
                                          "1,1",  "01", "1024",  "0 ",
                                          "0--1", "+1", "0-2,3", "99999999999999999999" };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        coh_block_set set;
        assert_int_equal(coh_block_set_read(others[i], &set), COH_ERR_CORRUPT);
    }
}

static void a_set_holds_what_was_added(void **state)
{
    (void)state;
    coh_block_set set = coh_block_set_first(66);
    assert_int_equal(coh_block_set_count(&set), 66);
    coh_block_set_remove(&set, 64);
    coh_block_set_add(&set, 1023);
    coh_block_set_add(&set, 1024); /* out of range */
    coh_block_set_add(&set, -1);
    assert_int_equal(coh_block_set_count(&set), 66);
    assert_true(coh_block_set_has(&set, 65) && coh_block_set_has(&set, 1023));
    assert_false(coh_block_set_has(&set, 64) || coh_block_set_has(&set, 66));
    assert_false(coh_block_set_has(&set, 1024) || coh_block_set_has(&set, -1));
    set = coh_block_set_first(5000);
    assert_int_equal(coh_block_set_count(&set), COH_BLOCK_SET_MOST);
}

/* Returns 1 if `plan` recomputes operators, and all of them are in block `block` of the graph. */
static int recomputes_only(const coh_plan *plan, int32_t block)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int some = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        if (body->instructions[i].opcode != COH_OP_RECOMPUTE)
            continue;
        const int32_t op = body->calls[body->instructions[i].call].operator_index;
        if (plan->graph->ops[op].block < 0 || plan->graph->ops[op].blocks_before != block)
            return 0;
        some = 1;
    }
    return some;
}

/* Recomputes one block in the middle, between two that are kept; the plan file rebuilds it. */
static void any_block_is_recomputed_by_itself(void **state)
{
    (void)state;
    toy_options toy = { .layers = 3, .width = 64, .vocabulary = 300, .rows = 50, .is_tied = 1 };
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 1,
                                 .microbatch_count = 2,
                                 .deferred_update = 1,
                                 .kernel_path = "toy" };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL, *again = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    for (int32_t block = 0; block < 3; block++) {
        char path[256];
        assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
        assert_int_equal(coh_plan_open(graph, &options, &plan), COH_OK);
        plan->decisions = (coh_decisions){
            .device_bytes = UINT64_MAX,
            .chunk_bytes = 65536,
            .in_memory = 1,
            .row_passes = 1,
            .patterns = coh_pattern_choose(1),
        };
        coh_block_set_add(&plan->decisions.recompute, block);
        if (coh_plan_finish(plan) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_true(recomputes_only(plan, block));
        assert_int_equal(coh_plan_write(plan, path), COH_OK);
        if (coh_plan_read(graph, &options, path, &again) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_memory_equal(&again->decisions.recompute, &plan->decisions.recompute,
                            sizeof(coh_block_set));
        coh_plan_destroy(plan);
        coh_plan_destroy(again);
        unlink(path);
    }
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_set_has_one_text),
                                        cmocka_unit_test(a_set_holds_what_was_added),
                                        cmocka_unit_test(any_block_is_recomputed_by_itself) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
