/* The limit of a step's writes to the drive: it applies to the body alone, is met by a plan that
 * writes less if there is one, and otherwise the step is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cohobate/refusal.h"
#include "planner/plan.h"
#include "tests/planner/toy_graph.h"

static coh_graph *make_graph(const toy_options *toy)
{
    coh_graph *graph = NULL;
    if (toy_graph_make(toy, &graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

/* Sets `percent` of the in-memory bytes and a drive. */
static coh_plan_options make_options(const coh_graph *graph, uint64_t percent)
{
    coh_plan_options options;
    uint64_t memory = 0;
    coh_plan_options_init(&options);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = memory / 100 * percent;
    options.disk_bytes = UINT64_MAX;
    return options;
}

/* An estimate is of the plan that would be made, but for what is not computed. */
static void check_estimate(const coh_graph *graph, const coh_plan_options *options,
                           const coh_plan *plan)
{
    coh_plan_summary made = { .struct_bytes = sizeof(made) }, estimated = made;
    assert_int_equal(coh_plan_estimate(graph, options, &estimated),
                     plan != NULL ? COH_OK : COH_ERR_FULL);
    if (plan == NULL)
        return;
    assert_int_equal(coh_plan_summarize(plan, &made), COH_OK);
    assert_true(made.program_hash != 0 && made.step_p50_ns > 0 && made.save_ns > 0);
    assert_true(estimated.bound_ns == 0 || estimated.bound_ns == made.bound_ns);
    memset(made.bounds_ns, 0, sizeof(made.bounds_ns));
    memset(made.least_link_bytes, 0, sizeof(made.least_link_bytes));
    made.bound_ns = estimated.bound_ns;
    made.step_alone_ns = made.step_contended_ns = 0;
    made.step_p10_ns = made.step_p50_ns = made.step_p90_ns = 0;
    made.drain_ns = made.save_ns = made.evaluate_ns = made.program_hash = 0;
    made.binding = made.runner_up = COH_PLAN_BOUND_COMPUTE;
    assert_memory_equal(&estimated, &made, sizeof(made));
}

/* Returns NULL if refused. */
static coh_plan *make_plan(const coh_graph *graph, uint64_t percent, uint64_t wear_bytes)
{
    coh_plan_options options = make_options(graph, percent);
    coh_plan *plan = NULL;
    options.wear_bytes = wear_bytes;
    coh_status status = coh_plan_create(graph, &options, &plan);
    if (status != COH_OK && status != COH_ERR_FULL)
        fail_msg("%s", coh_last_error());
    check_estimate(graph, &options, plan);
    return plan;
}

static uint64_t written(const coh_plan *plan, coh_program_kind kind)
{
    return plan->simulations[kind].link_bytes[COH_LANE_WRITE];
}

/* Data that never changes is written once, at the begin of the run, and counts for no step. */
static void frozen_weights_are_written_once_and_no_step_is_charged(void **state)
{
    (void)state;
    const toy_options toy = {
        .layers = 1, .width = 512, .vocabulary = 64, .rows = 16, .freezes = 1
    };
    coh_graph *graph = make_graph(&toy);
    coh_plan *plan = make_plan(graph, 80, 0);
    assert_non_null(plan);
    const uint64_t limit = written(plan, COH_PROGRAM_BODY) + 65536;
    assert_true(written(plan, COH_PROGRAM_INIT) > limit);
    coh_plan_destroy(plan);
    plan = make_plan(graph, 80, limit);
    assert_non_null(plan);
    assert_true(written(plan, COH_PROGRAM_BODY) <= limit);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The fastest plan found without a limit writes too much: another one within the limit is found, or
 * the step is refused. */
static void a_plan_that_writes_less_is_found_where_there_is_one(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 4, .width = 256, .vocabulary = 200, .rows = 200 };
    coh_graph *graph = make_graph(&toy);
    coh_plan *fastest = make_plan(graph, 40, 0);
    assert_non_null(fastest);
    const uint64_t most = written(fastest, COH_PROGRAM_BODY);
    const coh_plan_options options = make_options(graph, 40);
    uint64_t least = 0;
    assert_int_equal(coh_plan_least_written(graph, &options, &least), COH_OK);
    assert_in_range(least, 1, most - 1);
    const uint64_t limit = least + (most - least) / 4;
    coh_plan *less = make_plan(graph, 40, limit);
    assert_non_null(less);
    assert_true(written(less, COH_PROGRAM_BODY) <= limit);
    assert_null(make_plan(graph, 40, 4096));
    coh_plan_destroy(less);
    coh_plan_destroy(fastest);
    coh_graph_destroy(graph);
}

/* The least that a refusal names has a plan, and a byte less has none, although no plan was made to
 * find it. */
static void the_least_that_is_written_has_a_plan_and_a_byte_less_has_none(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 4, .width = 256, .vocabulary = 200, .rows = 200 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = make_options(graph, 40);
    uint64_t least = 0;
    assert_int_equal(coh_plan_least_written(graph, &options, &least), COH_OK);
    coh_plan *plan = make_plan(graph, 40, least);
    assert_non_null(plan);
    assert_true(written(plan, COH_PROGRAM_BODY) <= least);
    assert_null(make_plan(graph, 40, least - 1));
    options.device_memory_bytes = UINT64_MAX; /* nothing is written */
    assert_int_equal(coh_plan_least_written(graph, &options, &least), COH_OK);
    assert_int_equal(least, 0);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* A refused step says as data what it has to write, which saves a second search. */
static void a_refused_limit_says_the_least_that_is_written(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 4, .width = 256, .vocabulary = 200, .rows = 200 };
    coh_graph *graph = make_graph(&toy);
    const coh_plan_options options = make_options(graph, 40);
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    uint64_t least = 0;
    assert_int_equal(coh_plan_least_written(graph, &options, &least), COH_OK);
    assert_null(make_plan(graph, 40, 4096));
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.reason, COH_REFUSAL_SEARCH);
    assert_int_equal(refusal.given_bytes, 4096);
    assert_int_equal(refusal.needed_bytes, least);
    coh_graph_destroy(graph);
}

/* The first remedy is the limit itself, and it works as it is named; the drive's size is none. */
static void a_refused_limit_proposes_a_larger_one_and_no_larger_drive(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 4, .width = 256, .vocabulary = 200, .rows = 200 };
    coh_graph *graph = make_graph(&toy);
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_null(make_plan(graph, 40, 4096));
    assert_non_null(strstr(coh_last_error(), "wear_bytes lets a step write 4096 bytes"));
    assert_non_null(strstr(coh_last_error(), "; raise wear_bytes to "));
    assert_true(coh_last_refusal(&refusal));
    for (int32_t i = 0; i < refusal.change_count; i++) {
        assert_int_not_equal(refusal.changes[i].kind, COH_CHANGE_ADD_DISK);
        if (refusal.changes[i].kind == COH_CHANGE_RAISE)
            assert_int_not_equal(refusal.changes[i].tier, COH_TIER_DISK);
    }
    assert_string_equal(coh_change_kind_name(refusal.changes[0].kind), "raise-wear");
    coh_plan *plan = make_plan(graph, 40, refusal.changes[0].bytes);
    assert_non_null(plan);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_weights_are_written_once_and_no_step_is_charged),
        cmocka_unit_test(a_plan_that_writes_less_is_found_where_there_is_one),
        cmocka_unit_test(the_least_that_is_written_has_a_plan_and_a_byte_less_has_none),
        cmocka_unit_test(a_refused_limit_says_the_least_that_is_written),
        cmocka_unit_test(a_refused_limit_proposes_a_larger_one_and_no_larger_drive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
