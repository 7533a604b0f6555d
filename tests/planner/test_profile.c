/* The built-in profile: guarantees that hold for any arguments, whatever its constants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "planner/profile.h"

static double flops(const coh_profile *profile, coh_roof roof)
{
    return profile->flops_per_s[roof].p50;
}

static void the_built_in_profile_depends_on_its_arguments_alone(void **state)
{
    (void)state;
    coh_profile a, b;
    memset(&a, 0, sizeof(a));
    memset(&b, 0xff, sizeof(b));
    coh_profile_builtin(2, 1, 0, &a);
    coh_profile_builtin(2, 1, 0, &b);
    assert_string_equal(a.name, b.name);
    assert_true(flops(&a, COH_ROOF_F32) == flops(&b, COH_ROOF_F32));
    assert_memory_equal(a.contention, b.contention, sizeof(a.contention));
    assert_true(a.threads == 2 && b.threads == 2 && b.source == COH_PROFILE_BUILT_IN);
    assert_true(b.operators == NULL && b.operator_count == 0);
    assert_true(flops(&a, COH_ROOF_BF16) > 2 * flops(&a, COH_ROOF_F32));
    coh_profile_builtin(2, 0, 0, &b); /* bf16 widened: as fast as f32 */
    assert_true(flops(&b, COH_ROOF_F32) == flops(&a, COH_ROOF_F32));
    assert_true(flops(&b, COH_ROOF_BF16) == flops(&a, COH_ROOF_F32));
    coh_profile_builtin(4, 1, 1e9, &b);
    assert_true(flops(&b, COH_ROOF_F32) == 2 * flops(&a, COH_ROOF_F32));
    assert_true(b.link[COH_LANE_H2D].bytes_per_s.p50 == 1e9);
    coh_profile_builtin(-3, 1, 1e300, &b); /* as for one thread; no link is faster than a copy */
    assert_true(b.threads == 1 &&
                b.link[COH_LANE_D2H].bytes_per_s.p50 == a.link[COH_LANE_D2H].bytes_per_s.p50);
}

static void parts_of_speed_are_parts(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 64; threads *= 2) {
        coh_profile profile;
        coh_profile_builtin(threads, 1, 0, &profile);
        for (int i = 0; i < COH_LANE_COUNT; i++)
            for (int j = 0; j < COH_LANE_COUNT; j++)
                assert_true(profile.contention[i][j] > 0 && profile.contention[i][j] <= 1);
    }
}

/* A link at half its rate copies for half of the time, so it takes half as much from computing. */
static void a_throttled_link_slows_computing_by_that_much_less(void **state)
{
    (void)state;
    coh_profile whole, half;
    coh_profile_builtin(2, 1, 0, &whole);
    coh_profile_builtin(2, 1, whole.link[COH_LANE_H2D].bytes_per_s.p50 / 2, &half);
    double lost = 1 / whole.contention[COH_LANE_COMPUTE][COH_LANE_H2D] - 1;
    double lost_half = 1 / half.contention[COH_LANE_COMPUTE][COH_LANE_H2D] - 1;
    assert_true(lost > 0);
    assert_true(fabs(lost_half - lost / 2) < 1e-12);
    coh_profile_throttle(&half, 0); /* no limit: nothing changes */
    assert_true(1 / half.contention[COH_LANE_COMPUTE][COH_LANE_H2D] - 1 == lost_half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_profile_depends_on_its_arguments_alone),
        cmocka_unit_test(parts_of_speed_are_parts),
        cmocka_unit_test(a_throttled_link_slows_computing_by_that_much_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
