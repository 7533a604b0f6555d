/* Placement never changes a bit, for random models, batches and placements: small GPT-2s of random
 * shape, alternating between f32 and bf16, each in memory and under random budgets from its
 * smallest up, disturbed.
 *
 *     test_bits_random [FIRST_SEED [SEED_COUNT]] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tests/claims/trial.h"
#include "tests/length.h"

enum { STEPS = 3, PLACEMENTS = 4, SHORT_PLACEMENTS = 1, PAGE = 4096 };

static uint64_t first_seed = 20, seed_count = 12;

typedef struct dice {
    uint64_t seed, count;
} dice;

static uint64_t draw(dice *d, uint64_t bound)
{
    return coh_rng_below(19, d->seed, d->count++, bound);
}

static trial_subject random_subject(dice *d)
{
    static const int64_t heads[] = { 1, 2, 3 };
    int64_t head_count = heads[draw(d, 3)];
    return (trial_subject){ .dtype = d->seed % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                            .sequences = 1 + (int64_t)draw(d, 3),
                            .tokens = 1 + (int64_t)draw(d, 40),
                            .config = { .layers = 1 + (int64_t)draw(d, 4),
                                        .heads = head_count,
                                        .channels = head_count * (8 + 8 * (int64_t)draw(d, 8)),
                                        .positions = 41,
                                        .vocabulary = 50 + (int64_t)draw(d, 5000),
                                        .layernorm_epsilon = 1e-5f } };
}

static trial_placement random_placement(dice *d, const char *name)
{
    static const uint64_t chunks[] = { 0, 64 << 10, 128 << 10, 1 << 20, 4 << 20 };
    uint64_t tiers = draw(d, 3), chunk_bytes = chunks[draw(d, 5)];
    if (tiers == 2 && chunk_bytes > (uint64_t)128
                                        << 10) /* a scarce host tier holds several chunks */
        chunk_bytes = (uint64_t)128 << 10;
    return (trial_placement){ .name = name,
                              .device_percent = TRIAL_PERCENT_SMALLEST,
                              .host_percent = tiers == 0   ? 0
                                              : tiers == 1 ? 500
                                                           : 120,
                              .disk = tiers != 1,
                              .chunk_bytes = chunk_bytes,
                              .thread_count = 1 + (int32_t)draw(d, 3),
                              .recompute = (coh_recompute)draw(d, 3) };
}

/* Draws a budget between the smallest and slightly above the whole. */
static void random_budget(dice *d, const trial_subject *subject, const trial_numbers *numbers,
                          trial_placement *placement)
{
    trial t;
    trial_plan(&t, subject, numbers, placement);
    uint64_t least = t.summary.smallest_device_bytes;
    trial_close(&t);
    if (draw(d, 4) > 0)
        placement->device_bytes = least + PAGE * draw(d, 3 * least / PAGE);
}

static void random_models_and_placements_keep_their_bits(void **state)
{
    (void)state;
    static const char *const stores[] = { NULL, "posix", "mem" };
    const int placement_count = test_is_short() ? SHORT_PLACEMENTS : PLACEMENTS;
    int run_count = 0, moved_count = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        dice d = { .seed = seed };
        trial_subject subject = random_subject(&d);
        const trial_numbers numbers = { "", 1 + (int32_t)draw(&d, 3), draw(&d, 2) ? 0.1f : 0 };
        const trial_placement in_memory = { .name = "in memory", .thread_count = 1 };
        trial_outcome expected, found;
        trial_subject_open(&subject);
        trial_run(&subject, &numbers, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
        for (int i = 0; i < placement_count; i++) {
            char name[64];
            snprintf(name, sizeof(name), "seed %d, placement %d", (int)seed, i);
            trial_placement placement = random_placement(&d, name);
            random_budget(&d, &subject, &numbers, &placement);
            const trial_manner manner = { .overlapped = (int32_t)draw(&d, 2),
                                          .poison = 1,
                                          .delay_seed = draw(&d, 2) * (seed + 1),
                                          .delay_most_us = 50,
                                          .store = stores[draw(&d, 3)] };
            if (getenv("TRIAL_VERBOSE") != NULL) /* prints the draws of a failing seed */
                print_message(
                    "%s: %s, %d layers, %d heads, %d wide, vocabulary %d, %d x %d x %d tokens, "
                    "clip %g; device %llu, host %d %%, disk %d, chunks of %llu, "
                    "%d threads, recompute %d; overlapped %d, delays %llu, store %s\n",
                    name, subject.dtype == COH_DTYPE_BF16 ? "bf16" : "f32",
                    (int)subject.config.layers, (int)subject.config.heads,
                    (int)subject.config.channels, (int)subject.config.vocabulary,
                    numbers.microbatch_count, (int)subject.sequences, (int)subject.tokens,
                    (double)numbers.clip, (unsigned long long)placement.device_bytes,
                    placement.host_percent, placement.disk,
                    (unsigned long long)placement.chunk_bytes, placement.thread_count,
                    (int)placement.recompute, manner.overlapped,
                    (unsigned long long)manner.delay_seed, manner.store ? manner.store : "-");
            trial_run(&subject, &numbers, &placement, &manner, STEPS, &found);
            trial_check_equal(name, &found, &expected);
            run_count++;
            moved_count += found.moved_bytes[1] > 0 || found.moved_bytes[3] > 0;
        }
        trial_subject_close(&subject);
    }
    assert_true(2 * moved_count > run_count);
    print_message("figure: %d random models, %d runs outside memory, %d of them streamed: equal\n",
                  (int)seed_count, run_count, moved_count);
}

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models_and_placements_keep_their_bits),
    };
    if (argument_count > 1)
        first_seed = strtoull(arguments[1], NULL, 10);
    if (argument_count > 2)
        seed_count = strtoull(arguments[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
