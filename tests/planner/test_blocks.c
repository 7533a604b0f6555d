/* Recomputation by block: sets of blocks as values and as text, and plans that recompute exactly
 * these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "planner/block_set.h"
#include "planner/neighbours.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "tests/planner/toy_graph.h"
#include "tests/temporary.h"

/* Of the toy beside a slow link; evaluations of its search. */
enum { BLOCKS = 12, EVALUATIONS = 12 };

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

static void blocks_are_spread_evenly(void **state)
{
    (void)state;
    for (int32_t blocks = 1; blocks <= 60; blocks++)
        for (int32_t count = 0; count <= blocks; count++) {
            const coh_block_set set = coh_block_set_spread(count, blocks);
            assert_int_equal(coh_block_set_count(&set), count);
            for (int32_t begin = 0, taken = 0; begin < blocks; begin++) {
                taken += coh_block_set_has(&set, begin);
                assert_int_equal(taken, (begin + 1) * count / blocks);
            }
        }
}

/* Opens a plan for a device of `percent` of the memory that it needs beside a slow link, and its
 * candidates with a set whose first `recomputed` blocks are recomputed. */
static void open_slow_link(int percent, int recomputed, coh_graph **out_graph, coh_plan **out_plan,
                           coh_candidates *candidates)
{
    const toy_options toy = { .layers = BLOCKS, .width = 64, .vocabulary = 300, .rows = 1000 };
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .host_memory_bytes = (uint64_t)1 << 30,
                                 .emulate_host = 1,
                                 .link_bytes_per_s = 2e8,
                                 .thread_count = 1,
                                 .microbatch_count = 4,
                                 .sweep_order = COH_SWEEP_LAYER,
                                 .kernel_path = "toy" };
    uint64_t memory = 0;
    assert_int_equal(toy_graph_make(&toy, out_graph), COH_OK);
    assert_int_equal(coh_plan_in_memory_bytes(*out_graph, &options, &memory), COH_OK);
    options.device_memory_bytes = coh_bytes_whole_pages(memory / 100 * (uint64_t)percent);
    assert_int_equal(coh_plan_open(*out_graph, &options, out_plan), COH_OK);
    const coh_decisions first = { .device_bytes = options.device_memory_bytes,
                                  .chunk_bytes = 65536,
                                  .row_passes = 1,
                                  .slices = 1,
                                  .patterns = coh_pattern_choose(1),
                                  .patient = 1,
                                  .boundary = COH_BOUNDARY_SETTLED,
                                  .horizon = COH_HORIZON_USUAL,
                                  .recompute = coh_block_set_first(recomputed) };
    assert_int_equal(coh_candidates_open(candidates, *out_plan, EVALUATIONS), COH_OK);
    assert_int_equal(coh_candidates_try(candidates, &first, 1), COH_OK);
    assert_true(candidates->best.valid);
}

/* Of a plan whose link is slow, tries other sets than the first blocks. */
static void blocks_in_a_row_are_spread_where_that_is_faster(void **state)
{
    (void)state;
    enum { RECOMPUTED = 6, PERCENT = 10 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_candidates candidates;
    open_slow_link(PERCENT, RECOMPUTED, &graph, &plan, &candidates);
    const uint64_t before_ns = candidates.best.step_ns;
    assert_int_equal(coh_candidates_spread(&candidates, EVALUATIONS, before_ns), COH_OK);
    assert_int_equal(candidates.count, 1); /* the bound is reached */
    assert_int_equal(coh_candidates_spread(&candidates, EVALUATIONS, 0), COH_OK);
    assert_true(candidates.best.step_ns < before_ns);
    const coh_block_set found = candidates.best.decisions.recompute;
    const coh_block_set even = coh_block_set_spread(coh_block_set_count(&found), BLOCKS);
    assert_memory_equal(&found, &even, sizeof(found));
    const size_t count = candidates.count;
    assert_int_equal(coh_candidates_spread(&candidates, EVALUATIONS, 0), COH_OK);
    assert_int_equal(candidates.count, count); /* they are spread already */
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* With a long horizon the link takes the activations of more blocks, if the recomputed ones are
 * spread: sets of as many, of an eighth and of a quarter fewer are tried first. */
static void fewer_blocks_are_spread_with_a_long_horizon(void **state)
{
    (void)state;
    enum { RECOMPUTED = 8, PERCENT = 13, SETS = 3 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_candidates candidates;
    open_slow_link(PERCENT, RECOMPUTED, &graph, &plan, &candidates);
    const uint64_t before_ns = candidates.best.step_ns;
    assert_int_equal(coh_candidates_spread(&candidates, SETS, 0), COH_OK);
    const coh_decisions *best = &candidates.best.decisions;
    assert_true(candidates.best.step_ns < before_ns);
    assert_true(best->horizon > COH_HORIZON_USUAL);
    for (int32_t set = 0; set < SETS; set++) {
        const coh_decisions *tried = &candidates.all[1 + set].decisions;
        const coh_block_set even = coh_block_set_spread(RECOMPUTED - set, BLOCKS);
        assert_memory_equal(&tried->recompute, &even, sizeof(even));
        assert_true(tried->horizon > COH_HORIZON_USUAL);
    }
    assert_true(coh_block_set_count(&best->recompute) < RECOMPUTED);
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* No neighbour has so long a horizon: it comes with fewer blocks. */
static void the_horizon_grows_as_fewer_blocks_are_recomputed(void **state)
{
    (void)state;
    enum { RECOMPUTED = 6, PERCENT = 10, SETS = 16 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_candidates candidates;
    open_slow_link(PERCENT, RECOMPUTED, &graph, &plan, &candidates);
    assert_int_equal(coh_candidates_spread(&candidates, SETS, 0), COH_OK);
    const coh_decisions *best = &candidates.best.decisions;
    assert_true(best->horizon > COH_HORIZON_USUAL * 3);
    assert_true(coh_block_set_count(&best->recompute) < RECOMPUTED);
    coh_candidates_close(&candidates);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_has_one_text),
        cmocka_unit_test(a_set_holds_what_was_added),
        cmocka_unit_test(blocks_are_spread_evenly),
        cmocka_unit_test(blocks_in_a_row_are_spread_where_that_is_faster),
        cmocka_unit_test(fewer_blocks_are_spread_with_a_long_horizon),
        cmocka_unit_test(the_horizon_grows_as_fewer_blocks_are_recomputed),
        cmocka_unit_test(any_block_is_recomputed_by_itself)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
