/* The program, not timing, determines order and lifetimes: with NaN in every released extent and
 * seeded delays before instructions, and the working store in one to three folders of unequal
 * shares, gpt2-nano ends with the bits of the undisturbed run in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/claims/trial.h"
#include "tests/length.h"

enum { STEPS = 3, DELAY_MOST_US = 100 };

static trial_subject nano = {
    .preset = "gpt2-nano", .vocabulary = 257, .sequences = 1, .tokens = 16, .short_layers = 2
};
static const trial_numbers numbers[] = {
    { "clipped", 2, 0.5f },
    { "updates in backward", 2, 0 },
};
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement placements[] = {
    { "25 %, disk", 25, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "25 %, emulated host", 25, 200, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 },
    { "25 %, emulated host of 20 %, disk", 25, 20, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
};
/* The effect of a late transfer depends on who performs it: the ring, threads, or a memory copy. */
static const char *const stores[] = { NULL, "posix", "mem" };

enum {
    NUMBERS_COUNT = sizeof(numbers) / sizeof(numbers[0]),
    PLACEMENT_COUNT = sizeof(placements) / sizeof(placements[0]),
    STORE_COUNT = sizeof(stores) / sizeof(stores[0]),
    SHORT_SEEDS = NUMBERS_COUNT * PLACEMENT_COUNT /* each placement of each numeric plan once */
};

static uint64_t seed_count = 20;

static void seeds_of_delays_and_poison_change_no_bit(void **state)
{
    (void)state;
    trial_outcome expected[NUMBERS_COUNT];
    trial trials[NUMBERS_COUNT][PLACEMENT_COUNT];
    for (int n = 0; n < NUMBERS_COUNT; n++) {
        trial_run(&nano, &numbers[n], &in_memory, &(trial_manner){ 0 }, STEPS, &expected[n]);
        for (int p = 0; p < PLACEMENT_COUNT; p++)
            trial_plan(&trials[n][p], &nano, &numbers[n], &placements[p]);
    }
    for (uint64_t seed = 1; seed <= seed_count; seed++) {
        uint64_t n = seed / PLACEMENT_COUNT % NUMBERS_COUNT, p = seed % PLACEMENT_COUNT;
        const trial_manner manner = { .overlapped = 1,
                                      .poison = 1,
                                      .delay_seed = seed,
                                      .delay_most_us = DELAY_MOST_US,
                                      .store = stores[seed % STORE_COUNT],
                                      .disk_count = (uint32_t)(1 + seed / STORE_COUNT % 3) };
        trial_outcome found;
        char name[128];
        snprintf(name, sizeof(name), "seed %d, %s, %s", (int)seed, placements[p].name,
                 numbers[n].name);
        trial_run_plan(&trials[n][p], &manner, STEPS, &found);
        trial_check_equal(name, &found, &expected[n]);
        trial_check_moved(&placements[p], &found, &expected[n]);
    }
    for (int n = 0; n < NUMBERS_COUNT; n++)
        for (int p = 0; p < PLACEMENT_COUNT; p++)
            trial_close(&trials[n][p]);
    print_message(
        "figure: poison and %d seeds of delays in %d placements, %d numeric plans: equal\n",
        (int)seed_count, PLACEMENT_COUNT, NUMBERS_COUNT);
}

/* test_bits_disturbed [SEEDS [f32 | bf16]] */
int main(int argument_count, char **arguments)
{
    if (argument_count > 1)
        seed_count = strtoull(arguments[1], NULL, 10);
    if (test_is_short() && seed_count > SHORT_SEEDS)
        seed_count = SHORT_SEEDS;
    nano.dtype = trial_dtype(argument_count > 2 ? arguments[2] : "f32");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_of_delays_and_poison_change_no_bit),
    };
    trial_subject_open(&nano);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trial_subject_close(&nano);
    return failed;
}
