/* The peak is what the plan predicts, to the byte. The smallest budget runs, and with a page less
 * the refusal names what would fit. A replayed plan needs its own peak, and no page less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/claims/trial.h"
#include "tests/length.h"
#include "tests/search_length.h"
#include "tests/temporary.h"

enum { STEPS = 3, PAGE = 4096 };

static trial_subject nano = {
    .preset = "gpt2-nano", .vocabulary = 257, .sequences = 1, .tokens = 16, .short_layers = 2
};
static const trial_numbers clipped = { "clipped", 2, 0.5f };
static const trial_numbers unclipped = { "updates in backward", 1, 0 };

static const trial_placement smallest = {
    "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0
};
static const trial_placement smallest_host = {
    "smallest, emulated host", TRIAL_PERCENT_SMALLEST, 300, 0, 0, 2, COH_RECOMPUTE_AUTO, 0
};

static coh_plan_options tight_options(const trial_numbers *numbers, uint64_t device_bytes, int disk)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.microbatch_count = numbers->microbatch_count;
    options.deferred_update = numbers->clip > 0;
    options.thread_count = 2;
    options.device_memory_bytes = device_bytes;
    options.disk_bytes = disk ? UINT64_MAX : 0;
    return options;
}

/* Returns the device memory that the last refusal asks for. */
static uint64_t named_bytes(void)
{
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    assert_true(coh_last_refusal(&refusal));
    assert_int_equal(refusal.tier, 0);
    assert_int_equal(refusal.changes[0].kind, COH_CHANGE_RAISE);
    return refusal.changes[0].bytes;
}

static void ledger_and_plan_agree_to_the_byte_whatever_runs(void **state)
{
    (void)state;
    static const trial_placement *const placements[] = { &smallest, &smallest_host };
    static const trial_numbers *const numbers[] = { &clipped, &unclipped };
    for (int p = 0; p < 2; p++)
        for (int n = 0; n < 2; n++) {
            trial t;
            trial_outcome out = { 0 };
            double loss = 0;
            trial_open(&t, &nano, numbers[n], placements[p], &(trial_manner){ .overlapped = 1 });
            trial_steps(&t, 0, 2, &out);
            trial_check_peak(placements[p]->name, &out);
            /* evaluating, hashing and further steps stay within it */
            const coh_step_input input = trial_input(&t, 9);
            assert_int_equal(coh_engine_evaluate(t.engine, &input, &loss), COH_OK);
            (void)trial_hash(&t);
            trial_steps(&t, 2, 1, &out);
            trial_check_peak(placements[p]->name, &out);
            coh_engine_facts facts = { .struct_bytes = sizeof(facts) };
            assert_int_equal(coh_engine_facts_get(t.engine, &facts), COH_OK);
            for (int tier = 0; tier < 2; tier++)
                assert_int_equal(facts.arena_bytes[tier], t.summary.peak_bytes[tier]);
            trial_close(&t);
        }
}

static void a_page_below_the_smallest_budget_is_refused_with_what_fits(void **state)
{
    (void)state;
    static const trial_numbers *const numbers[] = { &clipped, &unclipped };
    for (int n = 0; n < 2; n++) {
        trial t;
        coh_plan *plan = NULL;
        trial_plan(&t, &nano, numbers[n], &smallest);
        uint64_t least = t.device_bytes;
        assert_int_equal(least % PAGE, 0);
        coh_plan_options options = tight_options(numbers[n], least - PAGE, 1);
        assert_int_equal(coh_plan_create(nano.graph, &options, &plan), COH_ERR_FULL);
        assert_null(plan);
        assert_int_equal(named_bytes(), least);
        trial_close(&t);
    }
}

static int shape_count;

/* The reported smallest budget has a plan, for many shapes. */
static void the_smallest_budget_plans_for_many_shapes(void **state)
{
    (void)state;
    static const struct shape {
        int64_t sequences, tokens, vocabulary;
        int32_t microbatch_count;
        float clip;
        uint64_t chunk_bytes;
        coh_recompute recompute;
    } shapes[] = {
        { 1, 1, 257, 1, 0, 0, COH_RECOMPUTE_AUTO },
        { 1, 17, 257, 2, 1, 0, COH_RECOMPUTE_AUTO },
        { 3, 100, 257, 1, 1, 0, COH_RECOMPUTE_AUTO },
        { 2, 256, 257, 2, 0, 0, COH_RECOMPUTE_NONE },
        { 8, 256, 257, 1, 1, 0, COH_RECOMPUTE_ALL },
        { 1, 64, 50257, 1, 1, 0, COH_RECOMPUTE_AUTO },
        { 2, 64, 50257, 2, 0, 0, COH_RECOMPUTE_NONE },
        { 1, 64, 5003, 1, 1, 64 << 10, COH_RECOMPUTE_AUTO },
        { 2, 33, 257, 1, 0, 1 << 20, COH_RECOMPUTE_AUTO },
        { 2, 33, 257, 3, 1, 4 << 20, COH_RECOMPUTE_AUTO },
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *s = &shapes[i];
        trial_subject subject = { .preset = "gpt2-nano",
                                  .vocabulary = s->vocabulary,
                                  .sequences = s->sequences,
                                  .tokens = s->tokens,
                                  .short_layers = 2 };
        const trial_numbers numbers = { "", s->microbatch_count, s->clip };
        trial_subject_open(&subject);
        /* disk, emulated host, both: two of these for each shape, in short runs one */
        static const int32_t host_percents[] = { 0, 400, 60 };
        const int first = (int)i % (test_is_short() ? 3 : 2);
        for (int tiers = first; tiers < 3; tiers += test_is_short() ? 3 : 2 - first) {
            char name[64];
            snprintf(name, sizeof(name), "shape %d, tiers %d", (int)i, tiers);
            const trial_placement placement = { .name = name,
                                                .device_percent = TRIAL_PERCENT_SMALLEST,
                                                .host_percent = host_percents[tiers],
                                                .disk = tiers != 1,
                                                .chunk_bytes = s->chunk_bytes,
                                                .thread_count = 2,
                                                .recompute = s->recompute };
            trial t;
            trial_plan(&t, &subject, &numbers, &placement);
            assert_int_equal(t.summary.smallest_device_bytes, t.device_bytes);
            shape_count++;
            trial_close(&t);
        }
        trial_subject_close(&subject);
    }
}

static void a_replayed_plan_runs_in_its_own_peak_and_not_in_a_page_less(void **state)
{
    (void)state;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "peak"), 0);
    static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 };
    static const trial_placement quarter = { "25 %, disk", 25, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 };
    trial_outcome expected, found = { 0 };
    trial t;
    trial_run(&nano, &clipped, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
    trial_plan(&t, &nano, &clipped, &quarter);
    if (coh_plan_write(t.plan, path) != COH_OK)
        fail_msg("%s", coh_last_error());
    uint64_t peak = t.summary.peak_bytes[0], program = t.summary.program_hash;
    coh_plan_destroy(t.plan);
    t.plan = NULL;
    coh_plan_options options = tight_options(&clipped, peak - PAGE, 1);
    assert_int_equal(coh_plan_read(nano.graph, &options, path, &t.plan), COH_ERR_FULL);
    assert_null(t.plan);
    assert_int_equal(named_bytes(), peak);
    options.device_memory_bytes = peak;
    if (coh_plan_read(nano.graph, &options, path, &t.plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    t.summary = (coh_plan_summary){ .struct_bytes = sizeof(t.summary) };
    assert_int_equal(coh_plan_summarize(t.plan, &t.summary), COH_OK);
    assert_true(t.summary.program_hash == program);
    trial_engine(&t, &(trial_manner){ .overlapped = 1 });
    trial_init(&t);
    trial_steps(&t, 0, STEPS, &found);
    found.hash = trial_hash(&t);
    trial_check_equal("replayed", &found, &expected);
    trial_check_peak("replayed", &found);
    assert_int_equal(found.last.peak_bytes[0], peak);
    trial_close(&t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ledger_and_plan_agree_to_the_byte_whatever_runs),
        cmocka_unit_test(a_page_below_the_smallest_budget_is_refused_with_what_fits),
        cmocka_unit_test(the_smallest_budget_plans_for_many_shapes),
        cmocka_unit_test(a_replayed_plan_runs_in_its_own_peak_and_not_in_a_page_less),
    };
    trial_subject_open(&nano);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed)
        print_message(
            "figure: ledger = plan to the byte, the smallest budget plans for %d settings\n",
            shape_count);
    trial_subject_close(&nano);
    return failed;
}
