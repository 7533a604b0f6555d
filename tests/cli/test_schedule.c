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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_rises_by_equal_parts_to_the_highest_rate),
        cmocka_unit_test(the_cosine_passes_its_known_points),
        cmocka_unit_test(the_rate_never_rises_after_the_warm_up_and_stays_lowest_at_the_end),
        cmocka_unit_test(degenerate_schedules_divide_by_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
