/* Updates made before their norm is known, and taken back if it is above the limit: the losses,
 * norms and hash of exact clipping in memory, bit for bit, whether no step, every step or every
 * third step is clipped, for every form of the states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/claims/trial.h"
#include "tests/length.h"

enum { STEPS = 7 };

static const trial_manner plain = { 0 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 3, .delay_most_us = 60
};

static const struct {
    const char *name, *optimizer;
    coh_dtype dtype;
} states[] = {
    { "f32", "adamw", COH_DTYPE_F32 },
    { "bf16, split", "adamw", COH_DTYPE_BF16 },
    { "bf16, lean", "adamw8", COH_DTYPE_BF16 },
    { "bf16, sr", "adamw8sr", COH_DTYPE_BF16 },
};

/* How often the norm is above the limit. */
static const struct {
    float clip;
    uint64_t every, twice; /* steps of STEPS that run twice */
} limits[] = { { 1e30f, 0, 0 }, { 1e-2f, 0, STEPS }, { 1e-2f, 3, STEPS / 3 } };
enum { LIMITS = sizeof(limits) / sizeof(limits[0]) };

static const trial_placement in_memory = { .name = "in memory", .thread_count = 1 };
static const trial_placement placements[] = {
    { .name = "smallest, disk",
      .device_percent = TRIAL_PERCENT_SMALLEST,
      .disk = 1,
      .thread_count = 2,
      .speculates = 1 },
    { .name = "25 %, host and disk, recomputed, 64 KiB",
      .device_percent = 25,
      .host_percent = 50,
      .disk = 1,
      .chunk_bytes = 64 << 10,
      .thread_count = 1,
      .recompute = COH_RECOMPUTE_ALL,
      .speculates = 1 },
};
enum { PLACEMENTS = sizeof(placements) / sizeof(placements[0]) };

static void run_limits(const trial_subject *subject, trial_numbers *numbers,
                       const trial_placement *placement, const trial_manner *manner,
                       trial_outcome outcomes[LIMITS])
{
    trial t;
    trial_plan(&t, subject, numbers, placement);
    for (int i = 0; i < LIMITS; i++) {
        numbers->clip = limits[i].clip;
        numbers->clip_every = limits[i].every;
        trial_run_plan(&t, manner, STEPS, &outcomes[i]);
    }
    trial_close(&t);
}

/* Short runs: each kind of states with one number of micro-batches, in one placement. */
static void check_states(int state, int microbatches)
{
    trial_outcome expected[LIMITS], found[LIMITS];
    if (test_is_short() && state / 2 != microbatches - 1)
        return;
    trial_numbers numbers = { .name = states[state].name,
                              .microbatch_count = microbatches,
                              .clip = 1,
                              .optimizer = states[state].optimizer };
    trial_subject subject = { .preset = "gpt2-nano",
                              .vocabulary = 257,
                              .sequences = 2,
                              .tokens = 24,
                              .dtype = states[state].dtype,
                              .short_layers = 2 };
    trial_subject_open(&subject);
    run_limits(&subject, &numbers, &in_memory, &plain, expected);
    for (int p = 0; p < PLACEMENTS; p++) {
        if (test_is_short() && p != (state + microbatches) % PLACEMENTS)
            continue;
        run_limits(&subject, &numbers, &placements[p], &disturbed, found);
        for (int i = 0; i < LIMITS; i++) {
            trial_check_equal(placements[p].name, &found[i], &expected[i]);
            assert_int_equal(expected[i].twice_count, 0);
            assert_int_equal(found[i].twice_count, limits[i].twice);
            assert_true(found[i].summary.kept_bytes > 0);
        }
    }
    trial_subject_close(&subject);
}

static void one_micro_batch(void **unused)
{
    (void)unused;
    for (int state = 0; state < (int)(sizeof(states) / sizeof(states[0])); state++)
        check_states(state, 1);
}

static void two_micro_batches(void **unused)
{
    (void)unused;
    for (int state = 0; state < (int)(sizeof(states) / sizeof(states[0])); state++)
        check_states(state, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_micro_batch),
        cmocka_unit_test(two_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
