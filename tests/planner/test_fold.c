/* Steps that are evaluated by a part of their micro-batches: the numbers continued from the part
 * are those of the whole step, and a search by them finds a plan as good as one by whole steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/attempt.h"
#include "planner/candidates.h"
#include "planner/fold.h"
#include "planner/plan_make.h"
#include "planner/schedule.h"
#include "planner/search.h"
#include "planner/verify.h"
#include "tests/faults/alloc_faults.h"
#include "tests/planner/toy_graph.h"

static coh_graph *make_graph(int layers)
{
    const toy_options toy = { .layers = layers, .width = 256, .vocabulary = 200, .rows = 200 };
    coh_graph *graph = NULL;
    if (toy_graph_make(&toy, &graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

static coh_plan_options options_of(const coh_graph *graph, uint64_t percent, int32_t count)
{
    coh_plan_options options;
    uint64_t memory = 0;
    coh_plan_options_init(&options);
    options.search = COH_SEARCH_QUICK;
    options.microbatch_count = count;
    options.sweep_order = COH_SWEEP_MICROBATCH;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = percent < 100 ? memory / 100 * percent : memory;
    options.disk_bytes = percent < 100 ? UINT64_MAX : 0;
    return options;
}

/* Simulates the body with `microbatches` micro-batches (0: all), continued to all of them. */
static coh_simulation simulate(const coh_plan *plan, int32_t microbatches)
{
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_simulation simulation;
    uint64_t *instruction_ns = NULL;
    assert_int_equal(coh_schedule_build(plan->graph, &plan->options, &plan->profile,
                                        &plan->decisions, microbatches, 0, &layout, programs),
                     COH_OK);
    const coh_program *body = &programs[COH_PROGRAM_BODY];
    assert_int_equal(COH_ALLOC(2 * (size_t)body->instruction_count, &instruction_ns), COH_OK);
    assert_int_equal(coh_simulate_priced(&layout, body, &plan->pricer, &simulation, instruction_ns),
                     COH_OK);
    if (microbatches > 0)
        coh_fold_continue(body, instruction_ns, microbatches, plan->options.microbatch_count,
                          &simulation);
    coh_free(instruction_ns);
    coh_program_fini(&programs[COH_PROGRAM_BODY]);
    coh_layout_fini(&layout);
    return simulation;
}

static double share_off(uint64_t found, uint64_t wanted)
{
    return wanted == 0 ? (double)found : fabs((double)found / (double)wanted - 1);
}

/* In memory all inner micro-batches take the same time. Streamed, what they move depends on what
 * lies where; a toy has few chunks. */
static void numbers_of_a_part_continue_to_those_of_the_step(void **state)
{
    static const uint64_t percents[] = { 100, 70, 40, 25 };
    static const int32_t counts[] = { 5, 24 };
    (void)state;
    coh_graph *graph = make_graph(6);
    for (size_t p = 0; p < sizeof(percents) / sizeof(percents[0]); p++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            const coh_plan_options options = options_of(graph, percents[p], counts[c]);
            const double allowed = percents[p] == 100 ? 1e-6 : 0.1;
            coh_plan *plan = NULL;
            if (coh_plan_create(graph, &options, &plan) != COH_OK)
                fail_msg("%s", coh_last_error());
            const coh_simulation whole = simulate(plan, 0);
            for (int32_t folded = COH_FOLDED_LONG; folded <= COH_FOLDED; folded++) {
                const coh_simulation part = simulate(plan, folded);
                assert_true(share_off(part.period_ns, whole.period_ns) <= allowed);
                for (int lane = COH_LANE_READ; lane <= COH_LANE_WRITE; lane++)
                    assert_true(share_off(part.link_bytes[lane], whole.link_bytes[lane]) <=
                                1.5 * allowed);
            }
            coh_plan_destroy(plan);
        }
    coh_graph_destroy(graph);
}

/* The step that a search finds, by parts or by whole steps. */
static uint64_t searched_ns(const coh_graph *graph, const coh_plan_options *options, int folds)
{
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_open(graph, options, &plan), COH_OK);
    plan->never_folds = !folds;
    assert_int_equal(coh_plan_search(plan), COH_OK);
    assert_int_equal(plan->folded > 0, folds);
    assert_int_equal(coh_plan_finish(plan), COH_OK);
    const uint64_t period_ns = plan->simulations[COH_PROGRAM_BODY].period_ns;
    coh_plan_destroy(plan);
    return period_ns;
}

static void a_search_by_parts_finds_as_good_a_plan(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(20);
    coh_plan_options options = options_of(graph, 40, 40);
    const uint64_t folded_ns = searched_ns(graph, &options, 1),
                   whole_ns = searched_ns(graph, &options, 0);
    assert_true(folded_ns <= whole_ns + whole_ns / 50);
    coh_graph_destroy(graph);
}

/* A candidate that is built with all programs is the finished plan, whose programs can be dropped
 * and made again. */
static void programs_that_are_kept_or_made_again_are_the_same(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(6);
    const coh_plan_options options = options_of(graph, 40, 24);
    coh_plan *plan = NULL;
    coh_candidate candidate;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    const uint64_t hash = plan->program_hash, step_ns = coh_plan_period_ns(plan);
    coh_plan_drop_programs(plan);
    assert_false(coh_plan_is_built(plan));
    assert_int_equal(coh_plan_period_ns(plan), step_ns);
    assert_int_equal(coh_plan_finish(plan), COH_OK);
    assert_true(plan->program_hash == hash);
    coh_plan_drop_programs(plan);
    plan->folded = 0;
    assert_int_equal(coh_candidate_build(plan, &plan->decisions, 1, &candidate, &plan->layout,
                                         plan->programs, &plan->simulations[COH_PROGRAM_BODY]),
                     COH_OK);
    assert_true(coh_plan_is_built(plan));
    assert_int_equal(candidate.step_ns, step_ns);
    assert_true(coh_program_hash(&plan->layout, &plan->programs[COH_PROGRAM_BODY]) == hash);
    const coh_instruction *built = plan->programs[COH_PROGRAM_BODY].instructions;
    assert_int_equal(coh_plan_finish(plan), COH_OK);
    assert_ptr_equal(plan->programs[COH_PROGRAM_BODY].instructions, built);
    assert_true(plan->program_hash == hash);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The bytes that the verifier requests, less what each row of the program's tables may take: its
 * clocks in two runs, cells, uses. Lives of extents are as many as lie in memory at once. */
static int64_t verifier_excess(const coh_graph *graph, int32_t count)
{
    const coh_plan_options options = options_of(graph, 40, count);
    const coh_verify_options limits = { .budget_bytes = { UINT64_MAX, UINT64_MAX, UINT64_MAX } };
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const uint64_t before = atomic_load(&alloc_faults_bytes);
    assert_int_equal(coh_verify(&plan->layout, body, &limits, NULL), COH_OK);
    const uint64_t bytes = atomic_load(&alloc_faults_bytes) - before;
    const uint64_t rows = 80 * (uint64_t)body->extent_count +
                          192 * (uint64_t)body->instruction_count + 8 * (uint64_t)body->touch_count;
    coh_plan_destroy(plan);
    return (int64_t)bytes - (int64_t)rows;
}

static void the_verifier_takes_few_bytes_for_each_micro_batch(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(6);
    const int64_t few = verifier_excess(graph, 12), many = verifier_excess(graph, 48);
    assert_true(many <= few);
    coh_graph_destroy(graph);
}

/* Only long steps in micro-batch order are folded; those of long micro-batches into fewer. */
static void short_steps_and_steps_by_layers_are_whole(void **state)
{
    static const struct {
        coh_sweep_order order;
        int32_t count;
        uint64_t instructions;
        int32_t folded;
    } cases[] = { { COH_SWEEP_MICROBATCH, COH_FOLDED + 1, COH_FOLD_INSTRUCTIONS + 1, COH_FOLDED },
                  { COH_SWEEP_MICROBATCH, 10, 10 * COH_FOLD_LONG_INSTRUCTIONS, COH_FOLDED },
                  { COH_SWEEP_MICROBATCH, 10, 10 * (COH_FOLD_LONG_INSTRUCTIONS + 1),
                    COH_FOLDED_LONG },
                  { COH_SWEEP_MICROBATCH, COH_FOLDED + 1, COH_FOLD_INSTRUCTIONS, 0 },
                  { COH_SWEEP_MICROBATCH, COH_FOLDED, COH_FOLD_INSTRUCTIONS + 1, 0 },
                  { COH_SWEEP_LAYER, COH_FOLDED + 1, COH_FOLD_INSTRUCTIONS + 1, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_effort effort = { .instructions = cases[i].instructions };
        coh_plan plan = { .options = { .mode = COH_PLAN_TRAIN,
                                       .sweep_order = cases[i].order,
                                       .microbatch_count = cases[i].count } };
        assert_int_equal(coh_fold_count(&plan, &effort), cases[i].folded);
        plan.never_folds = 1;
        assert_int_equal(coh_fold_count(&plan, &effort), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_part_continue_to_those_of_the_step),
        cmocka_unit_test(a_search_by_parts_finds_as_good_a_plan),
        cmocka_unit_test(programs_that_are_kept_or_made_again_are_the_same),
        cmocka_unit_test(the_verifier_takes_few_bytes_for_each_micro_batch),
        cmocka_unit_test(short_steps_and_steps_by_layers_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
