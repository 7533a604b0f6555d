/* The learning rate compared with its definition, given as points instead of a formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/training_note.h"

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-15 * 8))
        fail_msg("%.17g is not %.17g", got, wanted);
}

static void warm_up_rises_by_equal_parts_to_the_highest_rate(void **state)
{
    (void)state;
    const coh_schedule schedule = {
        .highest = 0.8, .lowest = 0.0, .warmup_steps = 4, .schedule_steps = 100
    };
    const double wanted[] = { 0.2, 0.4, 0.6, 0.8 };
    for (uint64_t step = 0; step < 4; step++)
        assert_near(coh_schedule_rate(&schedule, step), wanted[step]);
}

static void the_cosine_passes_its_known_points(void **state)
{
    (void)state;
    /* Twelve steps of cosine: a third leaves (1 + cos 60)/2 = 3/4 of the way, half 1/2, two thirds
     * 1/4. */
    const coh_schedule schedule = {
        .highest = 1.0, .lowest = 0.2, .warmup_steps = 2, .schedule_steps = 14
    };
    assert_near(coh_schedule_rate(&schedule, 1 + 4), 0.2 + 0.8 * 0.75);
    assert_near(coh_schedule_rate(&schedule, 1 + 6), 0.2 + 0.8 * 0.5);
    assert_near(coh_schedule_rate(&schedule, 1 + 8), 0.2 + 0.8 * 0.25);
    assert_near(coh_schedule_rate(&schedule, 1 + 12), 0.2);
}

static void the_rate_never_rises_after_the_warm_up_and_stays_lowest_at_the_end(void **state)
{
    (void)state;
    const coh_schedule schedule = {
        .highest = 6e-4, .lowest = 6e-5, .warmup_steps = 7, .schedule_steps = 50
    };
    for (uint64_t step = 7; step < 100; step++)
        assert_true(coh_schedule_rate(&schedule, step) <= coh_schedule_rate(&schedule, step - 1));
    for (uint64_t step = 49; step < 100; step++)
        assert_near(coh_schedule_rate(&schedule, step), 6e-5);
}

static void degenerate_schedules_divide_by_nothing(void **state)
{
    (void)state;
    const coh_schedule cases[] = {
        { .highest = 1, .lowest = 0.5, .warmup_steps = 0, .schedule_steps = 1 },
        { .highest = 1, .lowest = 0.5, .warmup_steps = 1, .schedule_steps = 1 },
        { .highest = 1, .lowest = 0.5, .warmup_steps = 3, .schedule_steps = 3 },
        { .highest = 0, .lowest = 0, .warmup_steps = 0, .schedule_steps = 5 },
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (uint64_t step = 0; step < 8; step++) {
            double rate = coh_schedule_rate(&cases[c], step);
            assert_true(rate >= 0 && rate <= cases[c].highest);
        }
}

/* ---- other kinds ---- */

/* Formulas of transformers 4.57, optimization.py, in its names: factors of `current_step`, whose
 * first step is 0. */
static double most(double a, double b)
{
    return a > b ? a : b;
}

/* _get_linear_schedule_with_warmup_lr_lambda */
static double transformers_linear(double current_step, double num_warmup_steps,
                                  double num_training_steps)
{
    if (current_step < num_warmup_steps)
        return current_step / most(1, num_warmup_steps);
    return most(0.0, (num_training_steps - current_step) /
                         most(1, num_training_steps - num_warmup_steps));
}

/* _get_constant_schedule_with_warmup_lr_lambda */
static double transformers_constant(double current_step, double num_warmup_steps)
{
    return current_step < num_warmup_steps ? current_step / most(1.0, num_warmup_steps) : 1.0;
}

/* _get_wsd_scheduler_lambda, with warmup_type and decay_type "linear"; its warm-up begins at
 * min_lr_ratio, and ours at 0 */
static double transformers_wsd(double current_step, double num_warmup_steps,
                               double num_stable_steps, double num_decay_steps, double min_lr_ratio)
{
    if (current_step < num_warmup_steps)
        return most(0.0,
                    current_step / most(1, num_warmup_steps) * (1.0 - min_lr_ratio) + min_lr_ratio);
    if (current_step < num_warmup_steps + num_stable_steps)
        return 1.0;
    if (current_step < num_warmup_steps + num_stable_steps + num_decay_steps) {
        const double progress =
            (current_step - num_warmup_steps - num_stable_steps) / most(1, num_decay_steps);
        return most(0.0, (1.0 - progress) * (1.0 - min_lr_ratio) + min_lr_ratio);
    }
    return min_lr_ratio;
}

static void the_other_kinds_have_the_rates_of_transformers_one_step_on(void **state)
{
    (void)state;
    static const uint64_t cases[][3] = { /* warm-up, schedule, decay */
                                         { 0, 1, 1 },  { 0, 20, 5 }, { 1, 20, 19 },
                                         { 4, 20, 1 }, { 7, 20, 6 }, { 19, 20, 1 }
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const uint64_t warmup = cases[c][0], steps = cases[c][1], decay = cases[c][2];
        const double w = (double)warmup, s = (double)steps, d = (double)decay;
        const coh_schedule to_zero = { 0.7, 0, warmup, steps };
        const coh_schedule to_part = { 0.7, 0.7 * 0.3, warmup, steps };
        for (uint64_t step = 0; step < 30; step++) {
            const double next = (double)(step + 1);
            assert_near(coh_schedule_kind_rate(&to_zero, COH_SCHEDULE_LINEAR, 0, step),
                        0.7 * transformers_linear(next, w, s));
            assert_near(coh_schedule_kind_rate(&to_part, COH_SCHEDULE_CONSTANT, 0, step),
                        0.7 * transformers_constant(next, w));
            assert_near(coh_schedule_kind_rate(&to_zero, COH_SCHEDULE_WSD, decay, step),
                        0.7 * transformers_wsd(next, w, s - w - d, d, 0));
            if (step >= warmup)
                assert_near(coh_schedule_kind_rate(&to_part, COH_SCHEDULE_WSD, decay, step),
                            0.7 * transformers_wsd(next, w, s - w - d, d, 0.3));
        }
    }
}

static void each_kind_passes_its_known_points(void **state)
{
    (void)state;
    const coh_schedule schedule = { 1.0, 0.2, 2, 10 };
    /* step: 0    1    2    3    4    5    6    7    8    9    10 */
    static const double wanted[COH_SCHEDULE_KIND_COUNT][11] = {
        [COH_SCHEDULE_LINEAR] = { 0.5, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2 },
        [COH_SCHEDULE_CONSTANT] = { 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 },
        [COH_SCHEDULE_WSD] = { 0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2 },
    };
    for (int kind = COH_SCHEDULE_LINEAR; kind < COH_SCHEDULE_KIND_COUNT; kind++)
        for (uint64_t step = 0; step < 11; step++)
            assert_near(coh_schedule_kind_rate(&schedule, (coh_schedule_kind)kind, 4, step),
                        wanted[kind][step]);
    for (uint64_t step = 0; step < 11; step++)
        assert_true(coh_schedule_kind_rate(&schedule, COH_SCHEDULE_COSINE, 0, step) ==
                    coh_schedule_rate(&schedule, step));
}

static void no_kind_divides_by_nothing_or_leaves_the_rates(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < 4 * 4 * 4; bits++) {
        const coh_schedule schedule = { 1, 0.5, bits % 4, 1 + bits / 4 % 4 };
        for (int kind = 0; kind < COH_SCHEDULE_KIND_COUNT; kind++)
            for (uint64_t step = 0; step < 8; step++) {
                const double rate =
                    coh_schedule_kind_rate(&schedule, (coh_schedule_kind)kind, bits / 16, step);
                assert_true(rate > 0 && rate <= 1);
                assert_true(step < schedule.warmup_steps || rate >= 0.5);
            }
    }
    const coh_schedule any = { 1, 0.5, 0, 1 };
    assert_true(coh_schedule_kind_rate(NULL, COH_SCHEDULE_LINEAR, 0, 1) == 0);
    assert_true(coh_schedule_kind_rate(&any, COH_SCHEDULE_KIND_COUNT, 0, 1) == 0);
    assert_null(coh_schedule_kind_name(COH_SCHEDULE_KIND_COUNT));
    assert_null(coh_schedule_kind_name((coh_schedule_kind)-1));
    assert_string_equal(coh_schedule_kind_name(COH_SCHEDULE_WSD), "wsd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_by_equal_parts_to_the_highest_rate),
        cmocka_unit_test(the_cosine_passes_its_known_points),
        cmocka_unit_test(the_rate_never_rises_after_the_warm_up_and_stays_lowest_at_the_end),
        cmocka_unit_test(degenerate_schedules_divide_by_nothing),
        cmocka_unit_test(the_other_kinds_have_the_rates_of_transformers_one_step_on),
        cmocka_unit_test(each_kind_passes_its_known_points),
        cmocka_unit_test(no_kind_divides_by_nothing_or_leaves_the_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
