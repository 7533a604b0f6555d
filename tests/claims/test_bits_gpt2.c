/* Placement never changes a bit of GPT-2 with 124 M parameters; takes minutes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/claims/trial.h"
#include "tests/temporary.h"

enum { STEPS = 4 };

static trial_subject gpt2 = { .preset = "gpt2", .vocabulary = 50257, .sequences = 1, .tokens = 64 };
static const trial_manner plain = { 0 };
static const trial_manner overlapped = { .overlapped = 1 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 124, .delay_most_us = 200
};

static const trial_numbers clipped = { "clipped", 2, 0.5f };
static const trial_numbers unclipped = { "updates in backward", 1, 0 };

static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement quarter = { "25 %, disk", 25, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement smallest = {
    "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0
};
static const trial_placement host = {
    "25 %, emulated host", 25, 200, 0, 0, 1, COH_RECOMPUTE_AUTO, 0
};
static const trial_placement both = {
    "25 %, emulated host of 20 %, disk", 25, 20, 1, 4 << 20, 3, COH_RECOMPUTE_ALL, 0
};

static int run_count;
static double smallest_mib, in_memory_mib;

static void check(const trial_numbers *numbers, const trial_placement *placement,
                  const trial_manner *manner, const trial_outcome *expected)
{
    trial_outcome found;
    trial_run(&gpt2, numbers, placement, manner, STEPS, &found);
    trial_check_equal(placement->name, &found, expected);
    trial_check_moved(placement, &found, expected);
    double mib = (double)found.summary.peak_bytes[0] / (1 << 20);
    in_memory_mib = (double)expected->summary.peak_bytes[0] / (1 << 20);
    smallest_mib = run_count++ > 0 && smallest_mib < mib ? smallest_mib : mib;
    print_message("%s, %s: %.1f MiB of %.0f, read %.0f MiB a step, hash %016llx\n", numbers->name,
                  placement->name, mib, in_memory_mib,
                  (double)found.summary.link_bytes[3] / (1 << 20), (unsigned long long)found.hash);
}

static void budgets_and_tiers_change_no_bit(void **state)
{
    (void)state;
    trial_outcome expected;
    trial_run(&gpt2, &clipped, &in_memory, &plain, STEPS, &expected);
    check(&clipped, &quarter, &overlapped, &expected);
    check(&clipped, &smallest, &overlapped, &expected);
    check(&clipped, &host, &overlapped, &expected);
    check(&clipped, &both, &overlapped, &expected);
    check(&clipped, &smallest, &disturbed, &expected);
}

static void updates_in_backward_change_no_bit(void **state)
{
    (void)state;
    trial_outcome expected;
    trial_run(&gpt2, &unclipped, &in_memory, &plain, STEPS, &expected);
    check(&unclipped, &quarter, &overlapped, &expected);
    check(&unclipped, &both, &disturbed, &expected);
}

static void a_run_resumed_half_way_under_another_budget_ends_equal(void **state)
{
    (void)state;
    char folder[256], path[320];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "bits"), 0);
    snprintf(path, sizeof(path), "%s/half", folder);
    trial t;
    trial_outcome expected, found = { 0 };
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded), .numeric_changed = -1 };
    trial_run(&gpt2, &clipped, &in_memory, &plain, STEPS, &expected);
    trial_open(&t, &gpt2, &clipped, &quarter, &overlapped);
    trial_steps(&t, 0, STEPS / 2, &found);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = STEPS / 2,
                                       .json = "{}" };
    if (coh_engine_save(t.engine, path, &note) != COH_OK)
        fail_msg("%s", coh_last_error());
    trial_close(&t);
    trial_plan(&t, &gpt2, &clipped, &smallest);
    trial_engine(&t, &overlapped);
    if (coh_engine_load(t.engine, path, &loaded) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(loaded.numeric_changed, 0);
    trial_steps(&t, STEPS / 2, STEPS - STEPS / 2, &found);
    found.hash = trial_hash(&t);
    trial_check_equal("resumed", &found, &expected);
    run_count++;
    trial_close(&t);
    assert_int_equal(temporary_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_and_tiers_change_no_bit),
        cmocka_unit_test(updates_in_backward_change_no_bit),
        cmocka_unit_test(a_run_resumed_half_way_under_another_budget_ends_equal),
    };
    trial_subject_open(&gpt2);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed)
        print_message(
            "figure: %d runs outside memory, the smallest in %.1f MiB of %.0f MiB: equal\n",
            run_count, smallest_mib, in_memory_mib);
    trial_subject_close(&gpt2);
    return failed;
}
