/* The built-in profile: what it promises of its arguments, whatever its constants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "planner/profile.h"

static void the_built_in_profile_depends_on_its_arguments_alone(void **state)
{
    (void)state;
    coh_profile a, b;
    coh_profile_builtin(2, 1, 0, &a);
    memset(&b, 0xff, sizeof(b));
    coh_profile_builtin(2, 1, 0, &b);
    assert_string_equal(a.name, b.name);
    assert_true(a.flops_per_s == b.flops_per_s && a.cores == 2 && b.cores == 2);
    assert_true(a.link[COH_LANE_READ].bytes_per_s == b.link[COH_LANE_READ].bytes_per_s);
    assert_true(a.bf16_flops_per_s == b.bf16_flops_per_s);
    assert_true(a.bf16_flops_per_s > 2 * a.flops_per_s);
    coh_profile_builtin(2, 0, 0, &b); /* bf16 widened: as fast as f32 */
    assert_true(b.flops_per_s == a.flops_per_s && b.bf16_flops_per_s == a.flops_per_s);
    coh_profile_builtin(4, 1, 1e9, &b);
    assert_true(b.flops_per_s == 2 * a.flops_per_s);
    assert_true(b.link[COH_LANE_H2D].bytes_per_s == 1e9);
    assert_true(b.link[COH_LANE_H2D].core_demand < a.link[COH_LANE_H2D].core_demand);
    coh_profile_builtin(-3, 1, 1e300, &b); /* as one thread; no link is faster than a copy */
    assert_true(b.cores == 1 &&
                b.link[COH_LANE_D2H].bytes_per_s == a.link[COH_LANE_D2H].bytes_per_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_profile_depends_on_its_arguments_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
