/* Placement never changes a bit: compares gpt2-nano (11 M parameters, tokens are bytes) in memory
 * with every other way of running the same numeric plan.
 *
 *     test_bits [f32 | bf16] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/claims/trial.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { STEPS = 4, MIB = 1 << 20, OUTCOMES_MOST = 16 };

static trial_subject nano = {
    .preset = "gpt2-nano", .vocabulary = 257, .sequences = 1, .tokens = 16, .short_layers = 2
};
static const trial_manner plain = { 0 };
static const trial_manner overlapped = { .overlapped = 1 };

/* Gradient norms are above 1 here: a norm of 0.5 clips every step. */
static const trial_numbers clipped = { "clipped", 2, 0.5f };
static const trial_numbers unclipped = { "updates in backward", 2, 0 };
static const trial_numbers whole_batch = { "one micro-batch", 1, 0.5f };
static const trial_numbers three_parts = { "three micro-batches, updates in backward", 3, 0 };

#define IN_MEMORY                                                                                  \
    {                                                                                              \
        "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0                                          \
    }
static const trial_placement in_memory = IN_MEMORY;

static const trial_placement budgets[] = {
    { "25 %, disk", 25, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "25 %, emulated host", 25, 200, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "25 %, emulated host of 20 %, disk", 25, 20, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, emulated host of 20 %, disk", TRIAL_PERCENT_SMALLEST, 20, 1, 0, 1,
      COH_RECOMPUTE_AUTO, 0 },
};

static const trial_placement chunks[] = {
    { "64 KiB, one thread", 25, 0, 1, 64 << 10, 1, COH_RECOMPUTE_AUTO, 0 },
    { "256 KiB, two threads", 25, 0, 1, 256 << 10, 2, COH_RECOMPUTE_AUTO, 0 },
    { "4 MiB, three threads", 35, 0, 1, 4 * MIB, 3, COH_RECOMPUTE_AUTO, 0 },
    { "recompute all, 1 MiB", 25, 0, 1, MIB, 2, COH_RECOMPUTE_ALL, 0 },
    { "recompute nothing", 25, 0, 1, 0, 2, COH_RECOMPUTE_NONE, 0 },
};

static int placement_count; /* number of placements compared */

/* In short runs every second placement is tested in f32, the others in bf16, a host tier alone in
 * both; `other`: with the dtypes exchanged. */
static int is_taken(int index, int other)
{
    return !test_is_short() || index % 2 == ((nano.dtype == COH_DTYPE_BF16) != (other != 0));
}

static int is_placement_taken(const trial_placement *placements, int index)
{
    const trial_placement *placement = &placements[index];
    return is_taken(index, 0) || (placement->host_percent > 0 && !placement->disk);
}

/* ---- one numeric plan ---- */

static int is_clipped(const trial_outcome *out, const trial_numbers *numbers)
{
    for (uint64_t i = 0; i < out->step_count; i++)
        if (out->grad_norm[i] > (double)numbers->clip)
            return 1;
    return 0;
}

/* Returns the run in memory, one for each numeric plan; kept. */
static const trial_outcome *reference_of(const trial_numbers *numbers)
{
    static struct {
        const trial_numbers *numbers;
        trial_outcome outcome;
    } known[OUTCOMES_MOST];
    int i = 0;
    while (known[i].numbers != NULL && known[i].numbers != numbers)
        assert_true(++i < OUTCOMES_MOST);
    trial_outcome *out = &known[i].outcome;
    if (known[i].numbers == NULL) {
        trial_run(&nano, numbers, &in_memory, &plain, STEPS, out);
        known[i].numbers = numbers;
    }
    assert_true(is_clipped(out, numbers));
    assert_true(out->loss[STEPS - 1] != out->loss[0]);
    return out;
}

/* Runs `numbers` under each placement; all program hashes must differ. */
static void check_placements(const trial_numbers *numbers, const trial_placement *placements,
                             int count)
{
    uint64_t programs[OUTCOMES_MOST];
    int program_count = 0;
    const trial_outcome *reference = reference_of(numbers);
    programs[program_count++] = reference->summary.program_hash;
    for (int i = 0; i < count; i++) {
        trial_outcome found;
        if (count > 1 && !is_placement_taken(placements, i))
            continue;
        trial_run(&nano, numbers, &placements[i], &overlapped, STEPS, &found);
        trial_check_equal(placements[i].name, &found, reference);
        trial_check_moved(&placements[i], &found, reference);
        for (int k = 0; k < program_count; k++)
            if (programs[k] == found.summary.program_hash)
                fail_msg("%s: a program that was run before", placements[i].name);
        programs[program_count++] = found.summary.program_hash;
        placement_count++;
    }
}

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static void budgets_and_tiers_change_no_bit(void **state)
{
    (void)state;
    check_placements(&clipped, budgets, COUNT_OF(budgets));
}

static void chunks_threads_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    check_placements(&clipped, chunks, COUNT_OF(chunks));
}

static void other_numeric_plans_have_bits_of_their_own(void **state)
{
    (void)state;
    static const trial_numbers *const numbers[] = { &clipped, &unclipped, &whole_batch,
                                                    &three_parts };
    static const trial_placement *const far[] = { NULL, &budgets[1], &budgets[0], &budgets[3] };
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        if (far[i] != NULL)
            check_placements(numbers[i], far[i], 1);
        const trial_outcome *mine = reference_of(numbers[i]);
        for (int k = 0; k < i; k++) {
            const trial_outcome *other = reference_of(numbers[k]);
            assert_true(mine->summary.numeric_fingerprint != other->summary.numeric_fingerprint);
            assert_true(mine->hash != other->hash);
        }
    }
}

static void fetch_part(const trial *t, int32_t parameter, const char *stream, float *data)
{
    const coh_parameter which = { parameter };
    assert_int_equal(stream == NULL ? coh_engine_fetch(t->engine, which, COH_FETCH_VALUE, data)
                                    : coh_engine_fetch_state(t->engine, which, stream, data),
                     COH_OK);
}

/* In case the hash misses a difference: compares the values of every ninth parameter (each fetch
 * walks all chunks); with fewer layers, every fifth. */
static void values_and_moments_are_equal_not_only_the_hash(void **state)
{
    (void)state;
    static const char *const streams[] = { NULL, "m", "v" }; /* NULL: the values */
    static float expected[1536 * 384], found[1536 * 384];    /* the largest: h.N.mlp.c_fc.weight */
    trial a, b;
    trial_outcome out = { 0 };
    trial_open(&a, &nano, &clipped, &in_memory, &plain);
    trial_steps(&a, 0, 2, &out);
    trial_open(&b, &nano, &clipped, &budgets[1], &overlapped);
    trial_steps(&b, 0, 2, &out);
    uint64_t different = 0, compared = 0;
    for (int p = 0;; p += test_is_short() ? 5 : 9) {
        if (coh_engine_fetch(a.engine, (coh_parameter){ p }, COH_FETCH_VALUE, expected) != COH_OK)
            break;
        for (int i = 0; i < COUNT_OF(streams); i++) {
            memset(expected, 0, sizeof(expected));
            memset(found, 0, sizeof(found));
            fetch_part(&a, p, streams[i], expected);
            fetch_part(&b, p, streams[i], found);
            different += memcmp(found, expected, sizeof(found)) != 0;
            for (size_t e = 0; e < sizeof(found) / sizeof(found[0]); e++)
                compared += found[e] != 0;
        }
    }
    assert_int_equal(different, 0);
    /* not all zeros: few values are exactly zero (rows that no token used) */
    assert_true(compared > (test_is_short() ? 128 * 512 : 384 * 1536) * 3);
    trial_close(&a);
    trial_close(&b);
}

/* ---- quiet points ---- */

static void save(trial *t, const char *path, uint64_t step)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = step, .json = "{}" };
    if (coh_engine_save(t->engine, path, &note) != COH_OK)
        fail_msg("%s: %s", t->placement->name, coh_last_error());
}

static void a_run_resumed_half_way_under_another_budget_ends_equal(void **state)
{
    (void)state;
    static const trial_placement *const before[] = { &budgets[0], &in_memory };
    static const trial_placement *const after[] = { &budgets[4], &chunks[0] };
    static const trial_numbers *const numbers[] = { &clipped, &unclipped };
    char folder[256], path[320];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "bits"), 0);
    snprintf(path, sizeof(path), "%s/half", folder);
    for (int i = 0; i < COUNT_OF(before); i++) {
        trial_outcome found = { 0 };
        if (!is_taken(i, 0))
            continue;
        trial t;
        coh_load_facts loaded = { .struct_bytes = sizeof(loaded), .numeric_changed = -1 };
        trial_open(&t, &nano, numbers[i], before[i], &overlapped);
        trial_steps(&t, 0, STEPS / 2, &found);
        save(&t, path, STEPS / 2);
        uint64_t half = trial_hash(&t);
        trial_close(&t);
        trial_plan(&t, &nano, numbers[i], after[i]);
        trial_engine(&t, &overlapped);
        if (coh_engine_load(t.engine, path, &loaded) != COH_OK)
            fail_msg("%s: %s", after[i]->name, coh_last_error());
        assert_int_equal(loaded.numeric_changed, 0);
        assert_true(trial_hash(&t) == half);
        trial_steps(&t, STEPS / 2, STEPS - STEPS / 2, &found);
        found.hash = trial_hash(&t);
        trial_check_equal(after[i]->name, &found, reference_of(numbers[i]));
        trial_close(&t);
        assert_int_equal(temporary_remove(path), 0);
    }
    rmdir(folder);
}

static void evaluations_saves_and_drains_between_steps_change_no_bit(void **state)
{
    (void)state;
    static const trial_numbers *const numbers[] = { &clipped, &unclipped };
    char folder[256], path[320];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "bits"), 0);
    snprintf(path, sizeof(path), "%s/between", folder);
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        trial_outcome found = { 0 };
        if (!is_taken(i, 1))
            continue;
        trial t;
        trial_open(&t, &nano, numbers[i], &budgets[i], &overlapped);
        for (uint64_t step = 0; step < STEPS; step++) {
            double loss = 0;
            trial_steps(&t, step, 1, &found);
            const coh_step_input input = trial_input(&t, step);
            if (step == 0)
                assert_int_equal(coh_engine_drain(t.engine), COH_OK);
            if (step <= 1)
                assert_int_equal(coh_engine_evaluate(t.engine, &input, &loss), COH_OK);
            if (step == 2)
                save(&t, path, step + 1);
            if (step >= 1)
                (void)trial_hash(&t);
        }
        found.hash = trial_hash(&t);
        trial_check_equal("with quiet points", &found, reference_of(numbers[i]));
        trial_check_peak("with quiet points", &found);
        trial_close(&t);
        assert_int_equal(temporary_remove(path), 0);
    }
    rmdir(folder);
}

int main(int argument_count, char **arguments)
{
    nano.dtype = trial_dtype(argument_count > 1 ? arguments[1] : "f32");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_and_tiers_change_no_bit),
        cmocka_unit_test(chunks_threads_and_recomputation_change_no_bit),
        cmocka_unit_test(other_numeric_plans_have_bits_of_their_own),
        cmocka_unit_test(values_and_moments_are_equal_not_only_the_hash),
        cmocka_unit_test(a_run_resumed_half_way_under_another_budget_ends_equal),
        cmocka_unit_test(evaluations_saves_and_drains_between_steps_change_no_bit),
    };
    trial_subject_open(&nano);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed)
        print_message("figure: 4 numeric plans, %d placements outside memory, resumed %s: equal\n",
                      placement_count, test_is_short() ? "once" : "twice");
    trial_subject_close(&nano);
    return failed;
}
