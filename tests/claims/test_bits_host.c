/* Where updates and light operators run changes no bit: compares a small tied GPT-2 in memory with
 * the same steps under an emulated host tier, where all parameters, those of the last blocks, of
 * one in between or none are updated on the host lane, in backward half of them late, or light
 * operators run again; with a disk as well, with NaN in released memory and delays before lines,
 * across quiet points and a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "planner/lower_late.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "tests/claims/trial.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { STEPS = 4, LAYERS = 3, ALL = LAYERS + 1, DELAY_MOST_US = 100, LATE = COH_LATE_PARTS / 2 };

static const trial_subject small = { .vocabulary = 600,
                                     .sequences = 2,
                                     .tokens = 24,
                                     .config = { .layers = LAYERS,
                                                 .heads = 2,
                                                 .channels = 64,
                                                 .positions = 24,
                                                 .vocabulary = 600,
                                                 .layernorm_epsilon = 1e-5f } };

/* Gradient norms are above 0.5 here. */
static const trial_numbers numbers[] = {
    { "clipped, 1 micro-batch", 1, 0.5f },
    { "clipped, 3 micro-batches", 3, 0.5f },
    { "in backward, 1 micro-batch", 1, 0 },
    { "in backward, 3 micro-batches", 3, 0 },
};
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement placements[] = {
    { "60 %, emulated host", 60, 400, 0, 64 << 10, 2, COH_RECOMPUTE_AUTO, 0 },
    { "40 %, emulated host of 20 %, disk", 40, 20, 1, 64 << 10, 1, COH_RECOMPUTE_AUTO, 0 },
};

/* Survivors exceed the host tier: some of them lie only on the device between programs. */
static const trial_placement apart = {
    "60 %, emulated host of 55 %", 60, 55, 0, 64 << 10, 2, COH_RECOMPUTE_AUTO, 0
};

enum {
    NUMBERS_COUNT = sizeof(numbers) / sizeof(numbers[0]),
    PLACEMENT_COUNT = sizeof(placements) / sizeof(placements[0])
};

/* Plans again with these decisions. */
static void put_decisions(trial *t, const coh_decisions *decisions)
{
    coh_plan *plan = NULL;
    if (coh_plan_open(t->subject->graph, &t->plan->options, &plan) != COH_OK)
        fail_msg("%s: %s", t->placement->name, coh_last_error());
    plan->decisions = *decisions;
    if (coh_plan_finish(plan) != COH_OK)
        fail_msg("%s, host updates %d, light %d: %s", t->placement->name,
                 (int)decisions->host_updates, (int)decisions->light, coh_last_error());
    coh_plan_destroy(t->plan);
    t->plan = plan;
    t->summary = (coh_plan_summary){ .struct_bytes = sizeof(t->summary) };
    assert_int_equal(coh_plan_summarize(plan, &t->summary), COH_OK);
}

static uint32_t host_lines(const trial *t)
{
    return t->plan->programs[COH_PROGRAM_BODY].lane_length[COH_LANE_HOST];
}

static void plan_with(trial *t, const trial_subject *subject, const trial_numbers *numeric,
                      const trial_placement *placement, int32_t host_updates, int32_t late)
{
    trial_plan(t, subject, numeric, placement);
    assert_false(t->plan->decisions.in_memory);
    coh_decisions decisions = t->plan->decisions;
    decisions.host_updates = host_updates;
    decisions.late = late;
    put_decisions(t, &decisions);
    assert_int_equal(host_lines(t) > 0, host_updates > 0);
}

static trial_subject subject_of(coh_dtype dtype)
{
    trial_subject subject = small;
    subject.dtype = dtype;
    trial_subject_open(&subject);
    return subject;
}

/* Tests all, some and none of the updates on the host lane, each with other delays; short runs test
 * one of the three, a different one for each placement and numbers. */
static void check_numbers(const trial_subject *subject, const trial_numbers *numeric, uint64_t seed)
{
    trial_outcome expected, found;
    trial_run(subject, numeric, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
    assert_true(expected.loss[STEPS - 1] != expected.loss[0]);
    assert_true(numeric->clip == 0 || expected.grad_norm[0] > (double)numeric->clip);
    for (int p = 0; p < PLACEMENT_COUNT; p++)
        for (int32_t count = 0; count <= ALL; count += count == 0 ? 1 : 2) {
            const trial_manner manner = {
                .overlapped = 1,
                .poison = 1,
                .delay_seed = seed,
                .delay_most_us = DELAY_MOST_US,
                .disk_count = (uint32_t)(1 + seed / 3 % 3),
            };
            seed++;
            if (test_is_short() && manner.delay_seed % 3 != (uint64_t)p)
                continue;
            char name[128];
            trial t;
            const int32_t late = numeric->clip == 0 && count > 0 ? LATE : 0; /* in backward */
            plan_with(&t, subject, numeric, &placements[p], count, late);
            snprintf(name, sizeof(name), "%s, %s, %d on the host, late %d", placements[p].name,
                     numeric->name, (int)count, (int)late);
            trial_run_plan(&t, &manner, STEPS, &found);
            trial_check_equal(name, &found, &expected);
            trial_check_moved(&placements[p], &found, &expected);
            trial_close(&t);
        }
}

/* Races do not depend on the numeric plan: each test looks for them in a different one. */
static int is_left_out(int test, int numeric)
{
    return test_seeks_races() && numeric != test;
}

static void the_lane_that_updates_changes_no_bit(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        trial_subject subject = subject_of(half ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        for (int n = 0; n < NUMBERS_COUNT; n++) {
            if (test_is_brief() && (n + n / 2) % 2 != half) /* each numeric plan in one dtype */
                continue;
            if (is_left_out(0, n))
                continue;
            check_numbers(&subject, &numbers[n], 100 * (uint64_t)half + 10 * (uint64_t)n + 1);
        }
        trial_subject_close(&subject);
    }
}

/* Plans again with light operators that run again and writes to dead space, nothing else
 * recomputed. Returns 1 if an attention is one of them. */
static int put_light(trial *t)
{
    coh_decisions decisions = t->plan->decisions;
    int is_light = 0;
    decisions.recompute = coh_block_set_first(0);
    decisions.light = COH_LIGHT_CHEAP;
    decisions.patient = COH_PATIENT_MOVED;
    put_decisions(t, &decisions);
    const coh_program *body = &t->plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++)
        is_light |=
            body->instructions[i].opcode == COH_OP_RECOMPUTE &&
            strstr(t->plan->graph->ops[body->calls[body->instructions[i].call].operator_index]
                       .kind.name,
                   "attention") != NULL;
    return is_light;
}

static void light_operators_that_run_again_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * NUMBERS_COUNT; i++) {
        if (test_is_short() && i % 2 != i / 2 % 2) /* each numeric plan in one dtype */
            continue;
        if (is_left_out(2, i / 2))
            continue;
        trial_subject subject = subject_of(i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        const trial_numbers *numeric = &numbers[i / 2];
        const trial_manner manner = { .overlapped = 1,
                                      .poison = 1,
                                      .delay_seed = 31 + (uint64_t)i,
                                      .delay_most_us = DELAY_MOST_US,
                                      .disk_count = 1 };
        trial_outcome expected, found;
        trial t;
        trial_run(&subject, numeric, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
        trial_plan(&t, &subject, numeric, &placements[i / 2 % PLACEMENT_COUNT]);
        assert_true(put_light(&t));
        trial_run_plan(&t, &manner, STEPS, &found);
        trial_check_equal("light", &found, &expected);
        trial_close(&t);
        trial_subject_close(&subject);
    }
}

/* Runs steps with quiet points between them: drained, evaluated, hashed; saved after half of
 * them. */
static void run_and_save(trial *t, const char *path, trial_outcome *found)
{
    const trial_manner manner = { .overlapped = 1, .poison = 1 };
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = STEPS / 2,
                                       .json = "{}" };
    trial_engine(t, &manner);
    trial_init(t);
    for (uint64_t step = 0; step < STEPS; step++) {
        double loss = 0;
        trial_steps(t, step, 1, found);
        const coh_step_input input = trial_input(t, step);
        if (step == 0)
            assert_int_equal(coh_engine_drain(t->engine), COH_OK);
        if (step + 1 == STEPS / 2 && coh_engine_save(t->engine, path, &note) != COH_OK)
            fail_msg("%s: %s", t->placement->name, coh_last_error());
        if (step == 2)
            assert_int_equal(coh_engine_evaluate(t->engine, &input, &loss), COH_OK);
    }
    found->hash = trial_hash(t);
}

static void resume(trial *t, const char *path, trial_outcome *found)
{
    const trial_manner manner = {
        .overlapped = 1, .poison = 1, .delay_seed = 7, .delay_most_us = DELAY_MOST_US
    };
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded), .numeric_changed = -1 };
    trial_engine(t, &manner);
    if (coh_engine_load(t->engine, path, &loaded) != COH_OK)
        fail_msg("%s: %s", t->placement->name, coh_last_error());
    assert_int_equal(loaded.numeric_changed, 0);
    trial_steps(t, STEPS / 2, STEPS - STEPS / 2, found);
    found->hash = trial_hash(t);
}

static void quiet_points_and_a_resume_elsewhere_change_no_bit(void **state)
{
    (void)state;
    char folder[256], path[320];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "bits-host"), 0);
    snprintf(path, sizeof(path), "%s/half", folder);
    for (int i = 0; i < 2 * NUMBERS_COUNT; i++) {
        const int32_t elsewhere = (test_is_short() ? i / 2 : i) % 3;
        if (test_is_short() && i % 2 != i / 2 % 2) /* each numeric plan in one dtype */
            continue;
        if (is_left_out(1, i / 2))
            continue;
        trial_subject subject = subject_of(i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        const trial_numbers *numeric = &numbers[i / 2];
        trial_outcome expected, found = { 0 };
        trial t;
        trial_run(&subject, numeric, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
        plan_with(&t, &subject, numeric, &placements[i % 2], ALL, 0);
        run_and_save(&t, path, &found);
        trial_check_equal("with quiet points", &found, &expected);
        trial_check_peak("with quiet points", &found);
        trial_close(&t);
        plan_with(&t, &subject, numeric, &placements[1 - i % 2], elsewhere, 0);
        resume(&t, path, &found);
        trial_check_equal("resumed", &found, &expected);
        trial_close(&t);
        assert_int_equal(temporary_remove(path), 0);
        trial_subject_close(&subject);
    }
    rmdir(folder);
}

static void survivors_in_both_tiers_change_no_bit(void **state)
{
    (void)state;
    char folder[256], path[320];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "bits-host"), 0);
    snprintf(path, sizeof(path), "%s/half", folder);
    for (int i = 0; i < 2 * NUMBERS_COUNT; i++) {
        if (test_is_short() && i % 2 != i / 2 % 2) /* each numeric plan in one dtype */
            continue;
        if (is_left_out(2, i / 2))
            continue;
        trial_subject subject = subject_of(i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        const trial_numbers *numeric = &numbers[i / 2];
        trial_outcome expected, found = { 0 };
        trial t;
        trial_run(&subject, numeric, &in_memory, &(trial_manner){ 0 }, STEPS, &expected);
        trial_plan(&t, &subject, numeric, &apart);
        assert_true(t.plan->survivor_bytes > t.plan->options.host_memory_bytes);
        run_and_save(&t, path, &found);
        trial_check_equal(apart.name, &found, &expected);
        trial_check_peak(apart.name, &found);
        trial_close(&t);
        trial_plan(&t, &subject, numeric, &apart);
        resume(&t, path, &found);
        trial_check_equal("resumed there", &found, &expected);
        trial_close(&t);
        assert_int_equal(temporary_remove(path), 0);
        trial_subject_close(&subject);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lane_that_updates_changes_no_bit),
        cmocka_unit_test(light_operators_that_run_again_change_no_bit),
        cmocka_unit_test(quiet_points_and_a_resume_elsewhere_change_no_bit),
        cmocka_unit_test(survivors_in_both_tiers_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
