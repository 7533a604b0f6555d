/* A batch is planned with a micro-batch that the caller permits: the largest that fits, or a faster
 * one; a refusal names what was found to help, and it helps. Limits of writes per day and the spare
 * disk are options of every plan. The oracle: coh_plan_create of each micro-batch by itself. A
 * short run under a sanitizer mostly leaves it out: the batch's plan is made by the same code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cohobate/cohobate.h"
#include "planner/profile.h"
#include "tests/length.h"

#define MIB ((uint64_t)1 << 20)

enum { BATCH = 8, TOKENS = 64 };

static coh_status make_graph(void *context, int64_t microbatch, coh_graph **out_graph)
{
    coh_model model;
    int *count = context;
    coh_status status = coh_model_preset("gpt2-nano", 0, &model);
    if (count != NULL)
        ++*count;
    return status == COH_OK ? coh_model_train_graph(&model, microbatch, TOKENS, out_graph) : status;
}

static coh_plan_options options_of(uint64_t device_bytes)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.thread_count = 2;
    options.search = COH_SEARCH_QUICK;
    options.device_memory_bytes = device_bytes;
    return options;
}

static coh_batch batch_of(int64_t microbatch, int32_t may_change)
{
    return (coh_batch){ .struct_bytes = sizeof(coh_batch),
                        .may_change = may_change,
                        .make_graph = make_graph,
                        .batch = BATCH,
                        .microbatch = microbatch };
}

/* Plans one micro-batch by itself. */
static coh_status plan_one(int64_t microbatch, const coh_plan_options *options,
                           coh_plan_summary *out_summary)
{
    coh_plan_options each = *options;
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    assert_int_equal(make_graph(NULL, microbatch, &graph), COH_OK);
    each.microbatch_count = (int32_t)(BATCH / microbatch);
    const coh_status status = coh_plan_create(graph, &each, &plan);
    if (status == COH_OK)
        assert_int_equal(coh_plan_summarize(plan, out_summary), COH_OK);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return status;
}

static uint64_t in_memory_bytes(int64_t microbatch)
{
    const coh_plan_options unlimited = options_of(UINT64_MAX);
    coh_plan_options options = unlimited;
    coh_graph *graph = NULL;
    uint64_t bytes = 0;
    options.recompute = COH_RECOMPUTE_NONE;
    options.microbatch_count = (int32_t)(BATCH / microbatch);
    assert_int_equal(make_graph(NULL, microbatch, &graph), COH_OK);
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_OK);
    coh_graph_destroy(graph);
    return bytes;
}

/* An estimate is of the plan that was made. */
static void check_estimate(const coh_batch *batch, const coh_plan_options *options,
                           const coh_plan_summary *made)
{
    coh_plan_summary estimated = { .struct_bytes = sizeof(estimated) };
    if (coh_batch_plan_estimate(batch, options, &estimated) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(estimated.step_ns, made->step_ns);
    assert_int_equal(estimated.instruction_count, made->instruction_count);
    assert_int_equal(estimated.numeric_fingerprint, made->numeric_fingerprint);
    assert_memory_equal(estimated.peak_bytes, made->peak_bytes, sizeof(made->peak_bytes));
}

static coh_refusal refused(const coh_batch *batch, const coh_plan_options *options)
{
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_int_equal(coh_batch_plan_create(batch, options, &made), COH_ERR_FULL);
    assert_null(made.plan);
    assert_null(made.graph);
    assert_true(coh_last_refusal(&refusal));
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(coh_batch_plan_estimate(batch, options, &summary), COH_ERR_FULL);
    return refusal;
}

static void the_largest_micro_batch_that_fits_is_taken_where_one_may_be(void **state)
{
    (void)state;
    coh_plan_options options = options_of(in_memory_bytes(2));
    options.recompute = COH_RECOMPUTE_NONE;
    const coh_batch fixed = batch_of(8, 0), free_ = batch_of(8, 1);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    int64_t largest = 0;
    for (int64_t m = 1; m < 8; m *= 2)
        if (plan_one(m, &options, &summary) == COH_OK)
            largest = m;
    assert_true(largest >= 2);
    const coh_refusal refusal = refused(&fixed, &options);
    assert_int_equal(refusal.microbatch, 8);
    const coh_change *first = &refusal.changes[0];
    assert_int_equal(first->kind, COH_CHANGE_LOWER_MICROBATCH);
    assert_int_equal(first->microbatch, largest);
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    if (coh_batch_plan_create(&free_, &options, &made) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(made.microbatch, largest);
    assert_int_equal(made.wanted_step_ns, 0);
    assert_int_equal(coh_plan_summarize(made.plan, &summary), COH_OK);
    const uint64_t hash = summary.program_hash;
    if (!test_is_brief()) {
        assert_int_equal(plan_one(largest, &options, &summary), COH_OK);
        assert_int_equal(summary.program_hash, hash);
    }
    coh_batch_plan_destroy(&made);
}

static void a_faster_micro_batch_is_taken_only_where_one_may_be(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(UINT64_MAX);
    coh_plan_summary best = { .struct_bytes = sizeof(best) }, one = best;
    const coh_batch fixed = batch_of(1, 0), free_ = batch_of(1, 1);
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    assert_int_equal(coh_batch_plan_create(&fixed, &options, &made), COH_OK);
    assert_int_equal(made.microbatch, 1);
    coh_batch_plan_destroy(&made);
    assert_int_equal(coh_batch_plan_create(&free_, &options, &made), COH_OK);
    assert_int_equal(coh_plan_summarize(made.plan, &best), COH_OK);
    assert_int_equal(plan_one(1, &options, &one), COH_OK);
    assert_int_equal(made.wanted_step_ns, one.step_ns);
    assert_int_equal(made.chosen_step_ns, best.step_ns);
    assert_true(made.microbatch > 1 && (double)best.step_ns <= 0.97 * (double)one.step_ns);
    coh_batch_plan_destroy(&made);
    check_estimate(&free_, &options, &best);
}

/* Counts the graphs of each micro-batch: a bound takes one, a search another. */
static coh_status count_graphs(void *context, int64_t microbatch, coh_graph **out_graph)
{
    int *counts = context;
    counts[microbatch]++;
    return make_graph(NULL, microbatch, out_graph);
}

/* The search leaves it for a slower one; the plan that is returned has all that a plan of its own
 * has. */
static void a_micro_batch_that_others_did_not_beat_is_searched_once(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(UINT64_MAX);
    int counts[BATCH + 1] = { 0 };
    coh_plan_summary one = { .struct_bytes = sizeof(one) }, chosen = one;
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    coh_batch batch = batch_of(BATCH, 1);
    batch.make_graph = count_graphs;
    batch.context = counts;
    assert_int_equal(coh_batch_plan_create(&batch, &options, &made), COH_OK);
    assert_int_equal(made.microbatch, BATCH);
    assert_int_equal(counts[BATCH / 2], 2); /* bounded and planned */
    assert_int_equal(counts[BATCH], 1);
    assert_int_equal(coh_plan_summarize(made.plan, &chosen), COH_OK);
    if (!test_is_brief()) {
        assert_int_equal(plan_one(BATCH, &options, &one), COH_OK);
        assert_memory_equal(&chosen, &one, sizeof(one));
    }
    coh_batch_plan_destroy(&made);
    check_estimate(&batch, &options, &chosen); /* of a plan whose programs were dropped */
}

/* Two sequences at once are twice as long, so that only they are slower. Counts as count_graphs. */
static coh_status make_slow_second(void *context, int64_t microbatch, coh_graph **out_graph)
{
    coh_model model;
    int *counts = context;
    const int64_t tokens = microbatch == 2 ? 2 * TOKENS : TOKENS;
    counts[microbatch]++;
    const coh_status status = coh_model_preset("gpt2-nano", 0, &model);
    return status == COH_OK ? coh_model_train_graph(&model, microbatch, tokens, out_graph) : status;
}

static void the_largest_is_compared_though_the_next_one_is_slower(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(UINT64_MAX);
    int counts[BATCH + 1] = { 0 };
    coh_plan_summary wanted = { .struct_bytes = sizeof(wanted) }, largest = wanted;
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    coh_batch batch = batch_of(1, 1);
    batch.make_graph = make_slow_second;
    batch.context = counts;
    assert_int_equal(plan_one(1, &options, &wanted), COH_OK);
    assert_int_equal(plan_one(BATCH, &options, &largest), COH_OK);
    assert_true((double)largest.step_ns <= 0.97 * (double)wanted.step_ns);
    assert_int_equal(coh_batch_plan_create(&batch, &options, &made), COH_OK);
    assert_int_equal(made.microbatch, BATCH);
    assert_int_equal(made.wanted_step_ns, wanted.step_ns);
    assert_int_equal(made.chosen_step_ns, largest.step_ns);
    assert_true(counts[2] > 0);
    assert_int_equal(counts[4], 0); /* two were slower, so the walk ended there */
    coh_batch_plan_destroy(&made);
}

/* As above, and a graph of all sequences cannot be made. */
static coh_status make_none_of_all(void *context, int64_t microbatch, coh_graph **out_graph)
{
    *out_graph = NULL;
    return microbatch == BATCH ? COH_ERR_SHAPE : make_slow_second(context, microbatch, out_graph);
}

static void a_micro_batch_without_a_graph_is_passed_over(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(UINT64_MAX);
    int counts[BATCH + 1] = { 0 };
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    coh_batch batch = batch_of(1, 1);
    batch.make_graph = make_none_of_all;
    batch.context = counts;
    if (coh_batch_plan_create(&batch, &options, &made) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(made.microbatch, 1);
    coh_batch_plan_destroy(&made);
}

static int64_t failing; /* micro-batch */

static coh_status make_failing(void *context, int64_t microbatch, coh_graph **out_graph)
{
    *out_graph = NULL;
    return microbatch == failing ? coh_kind_fail(COH_ERR_ARGUMENT, "stopped by the user")
                                 : make_graph(context, microbatch, out_graph);
}

/* As Ctrl-C in a callback: not a property of this micro-batch, so no other one is taken, neither a
 * faster nor a smaller one. */
static void any_other_failure_of_the_source_ends_the_search(void **state)
{
    (void)state;
    const struct {
        int64_t wanted, failing;
        uint64_t device_bytes;
        int32_t may_change;
    } cases[] = { { 1, 1, UINT64_MAX, 1 },
                  { 1, 2, UINT64_MAX, 1 },
                  { 8, 4, UINT64_MAX, 1 },
                  { 8, 4, in_memory_bytes(1), 1 },
                  { 8, 4, in_memory_bytes(1), 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_plan_options options = options_of(cases[i].device_bytes);
        coh_batch_plan made = { .struct_bytes = sizeof(made) };
        coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
        coh_batch batch = batch_of(cases[i].wanted, cases[i].may_change);
        options.recompute = COH_RECOMPUTE_NONE;
        batch.make_graph = make_failing;
        failing = cases[i].failing;
        assert_int_equal(coh_batch_plan_create(&batch, &options, &made), COH_ERR_ARGUMENT);
        assert_string_equal(coh_last_error(), "stopped by the user");
        assert_null(made.plan);
        assert_null(made.graph);
        assert_int_equal(coh_batch_plan_estimate(&batch, &options, &summary), COH_ERR_ARGUMENT);
        assert_string_equal(coh_last_error(), "stopped by the user");
    }
}

static void the_disk_that_is_named_suffices(void **state)
{
    (void)state;
    coh_plan_options options = options_of(24 * MIB);
    const coh_batch batch = batch_of(8, 0);
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    const coh_refusal refusal = refused(&batch, &options);
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_ADD_DISK);
    assert_int_equal(refusal.changes[0].microbatch, 8);
    options.disk_bytes = refusal.changes[0].bytes;
    if (coh_batch_plan_create(&batch, &options, &made) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_batch_plan_destroy(&made);
    /* with a memory that is too small for any disk the refusal says so */
    options = options_of(MIB);
    assert_true(refused(&batch, &options).is_with_disk);
}

static void a_spare_disk_is_used_only_where_nothing_fits_without_it(void **state)
{
    (void)state;
    coh_plan_options options = options_of(UINT64_MAX);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    options.spare_disk_bytes = 1024 * MIB;
    assert_int_equal(plan_one(2, &options, &summary), COH_OK);
    assert_int_equal(summary.disk_limit_bytes, 0);
    options.device_memory_bytes = 24 * MIB;
    assert_int_equal(plan_one(2, &options, &summary), COH_OK);
    assert_int_equal(summary.disk_limit_bytes, 1024 * MIB);
    assert_true(summary.peak_bytes[2] > 0);
    options.spare_disk_bytes = 0;
    assert_int_equal(plan_one(2, &options, &summary), COH_ERR_FULL);
}

/* The profile was measured in a group of 100 MiB, and the budget is 200 MiB. */
static void the_limit_of_the_process_that_runs_replaces_that_of_the_one_that_measured(void **state)
{
    (void)state;
    static const struct {
        uint64_t measured, now, limit; /* `limit` 0: not refused */
    } cases[] = {
        { 100 * MIB, 0, 100 * MIB },         { 100 * MIB, 150 * MIB, 150 * MIB },
        { 100 * MIB, 200 * MIB, 0 },         { 100 * MIB, UINT64_MAX, 0 },
        { 300 * MIB, 150 * MIB, 150 * MIB }, { UINT64_MAX, 150 * MIB, 0 }, /* an entry lifted it */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_profile profile;
        coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
        coh_plan_options options = options_of(200 * MIB);
        coh_profile_init(&profile);
        (void)snprintf(profile.name, sizeof(profile.name), "measured");
        profile.cgroup_bytes = cases[i].measured;
        options.profile = &profile;
        options.main_memory_limit_bytes = cases[i].now;
        const coh_status status = coh_plan_check_budgets(&options);
        assert_int_equal(status, cases[i].limit > 0 ? COH_ERR_FULL : COH_OK);
        if (status == COH_OK)
            continue;
        assert_true(coh_last_refusal(&refusal));
        assert_int_equal(refusal.given_bytes, cases[i].limit);
        assert_string_equal(refusal.profile, cases[i].now > 0 ? "" : "measured");
        assert_non_null(strstr(coh_last_error(), cases[i].now > 0 ? "of this process has a limit"
                                                                  : "and measure again"));
    }
}

static double per_day(const coh_plan_summary *summary)
{
    return summary->disk_bytes_written * 86400e9 / (double)summary->step_ns;
}

/* A limit below what the fastest plan writes is kept, or refused with a limit that can be kept. */
static void the_drive_is_written_as_much_as_a_day_may(void **state)
{
    (void)state;
    coh_plan_options options = options_of(24 * MIB);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    options.disk_bytes = UINT64_MAX;
    assert_int_equal(plan_one(2, &options, &summary), COH_OK);
    const double day = per_day(&summary);
    assert_true(day > 1e6);
    options.disk_write_bytes_per_day = (uint64_t)day + 1;
    assert_int_equal(plan_one(2, &options, &summary), COH_OK);
    options.disk_write_bytes_per_day = 1000000;
    assert_int_equal(plan_one(2, &options, &summary), COH_ERR_FULL);
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.reason, COH_REFUSAL_WRITES);
    assert_int_equal(refusal.given_bytes, 1000000);
    assert_int_equal(refusal.needed_bytes, (uint64_t)day);
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_RAISE_WRITES);
    options.disk_write_bytes_per_day = refusal.changes[0].bytes + refusal.changes[0].bytes / 100;
    if (plan_one(2, &options, &summary) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(per_day(&summary) <= (double)options.disk_write_bytes_per_day);
}

static coh_status make_none(void *context, int64_t microbatch, coh_graph **out_graph)
{
    (void)context;
    (void)microbatch;
    (void)out_graph;
    return COH_OK;
}

static void a_batch_that_is_none_is_refused(void **state)
{
    (void)state;
    const coh_plan_options options = options_of(UINT64_MAX);
    coh_batch batch = batch_of(3, 0);
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    assert_int_equal(coh_batch_plan_create(&batch, &options, &made), COH_ERR_ARGUMENT);
    batch = batch_of(8, 0);
    batch.make_graph = make_none;
    assert_int_equal(coh_batch_plan_create(&batch, &options, &made), COH_ERR_ARGUMENT);
    assert_null(made.graph);
    coh_batch_plan_destroy(&made);
    coh_batch_plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_micro_batch_that_fits_is_taken_where_one_may_be),
        cmocka_unit_test(a_faster_micro_batch_is_taken_only_where_one_may_be),
        cmocka_unit_test(a_micro_batch_that_others_did_not_beat_is_searched_once),
        cmocka_unit_test(the_largest_is_compared_though_the_next_one_is_slower),
        cmocka_unit_test(a_micro_batch_without_a_graph_is_passed_over),
        cmocka_unit_test(any_other_failure_of_the_source_ends_the_search),
        cmocka_unit_test(the_disk_that_is_named_suffices),
        cmocka_unit_test(a_spare_disk_is_used_only_where_nothing_fits_without_it),
        cmocka_unit_test(the_limit_of_the_process_that_runs_replaces_that_of_the_one_that_measured),
        cmocka_unit_test(the_drive_is_written_as_much_as_a_day_may),
        cmocka_unit_test(a_batch_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
