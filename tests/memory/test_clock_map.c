/* A clock that is mapped to another. The oracle: the device's clock is a known function of the
 * host's, and each pair is wrong by a known amount. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "memory/clock_map.h"

enum { ERROR_NS = 2000 };
#define BEGIN_NS 5e12
#define GAP_NS   50e6

/* The device's clock: another zero, another rate, and a rate that changes by 1 ppm in 10 s. */
static double device_ns(double host_ns)
{
    const double since = host_ns - BEGIN_NS;
    return 77e9 + since * 1.00008 + since * since * 0.5e-16;
}

/* Adds pairs number 0 to `count` - 1; the host's times are wrong by up to ERROR_NS. */
static void add_pairs(coh_clock_map *map, int count)
{
    for (int i = 0; i < count; i++) {
        const double at = BEGIN_NS + i * GAP_NS;
        const double wrong = (double)coh_rng_below(3, 0, (uint64_t)i, 2 * ERROR_NS + 1) - ERROR_NS;
        coh_clock_map_add(map, &(coh_clock_pair){ .device_ns = device_ns(at),
                                                  .host_ns = (uint64_t)(at + wrong),
                                                  .error_ns = ERROR_NS });
    }
}

static double wrong_by(const coh_clock_map *map, double host_ns)
{
    return fabs((double)coh_clock_map_host_ns(map, device_ns(host_ns)) - host_ns);
}

/* 2 ns: rounding, and the bend of the clock between two pairs. */
static void a_time_between_pairs_is_as_exact_as_they_are(void **state)
{
    (void)state;
    coh_clock_map map = { .pair_count = 0 };
    add_pairs(&map, COH_CLOCK_PAIRS);
    assert_int_equal(coh_clock_map_error_ns(&map, device_ns(BEGIN_NS + GAP_NS)), ERROR_NS);
    for (double at = BEGIN_NS; at < BEGIN_NS + (COH_CLOCK_PAIRS - 1) * GAP_NS; at += 1.7e6)
        assert_true(wrong_by(&map, at) <= ERROR_NS + 2);
}

/* The slope over all pairs is wrong by two errors over their distance, and by the bend. */
static void a_time_outside_of_them_follows_their_mean_rate(void **state)
{
    (void)state;
    coh_clock_map map = { .pair_count = 0 };
    const int count = 3 * COH_CLOCK_PAIRS;
    add_pairs(&map, count);
    const double kept_ns = (COH_CLOCK_PAIRS - 1) * GAP_NS;
    const double newest = BEGIN_NS + (count - 1) * GAP_NS, oldest = newest - kept_ns;
    for (double far = 0; far < 2e9; far += 7e6) {
        const double bound = ERROR_NS * (1 + 2 * far / kept_ns) + far * 1e-6 + 2;
        assert_true(wrong_by(&map, newest + far) <= bound);
        assert_true(wrong_by(&map, oldest - far) <= bound);
    }
}

/* Two pairs 1 ms apart, each wrong by 10 us: their slope is wrong by 20,000 ppm, and clocks differ
 * by less than 100. The bound holds on both sides, up to 2 ns of rounding. */
static void two_close_pairs_do_not_set_the_rate(void **state)
{
    (void)state;
    enum { WRONG_NS = 10000 };
    for (int sign = -1; sign <= 1; sign += 2) {
        coh_clock_map map = { .pair_count = 0 };
        for (int i = 0; i < 2; i++) {
            const double at = BEGIN_NS + i * 1e6;
            coh_clock_map_add(
                &map, &(coh_clock_pair){ .device_ns = device_ns(at),
                                         .host_ns = (uint64_t)(at + (i ? sign : -sign) * WRONG_NS),
                                         .error_ns = WRONG_NS });
        }
        for (double far = -50e6; far <= 50e6; far += 0.3e6) {
            const double at = BEGIN_NS + far;
            const uint64_t bound_ns = coh_clock_map_error_ns(&map, device_ns(at));
            assert_true(wrong_by(&map, at) <= (double)bound_ns + 2);
            assert_true(bound_ns <= WRONG_NS + 10002);
        }
    }
}

static void one_pair_counts_both_clocks_as_equally_fast(void **state)
{
    (void)state;
    coh_clock_map map = { .pair_count = 0 };
    assert_null(coh_clock_map_newest(&map));
    coh_clock_map_add(&map, &(coh_clock_pair){ .device_ns = 10, .host_ns = 1000 });
    assert_int_equal(coh_clock_map_host_ns(&map, 110), 1100);
    assert_int_equal(coh_clock_map_host_ns(&map, -90), 900);
    assert_int_equal(coh_clock_map_host_ns(&map, -9000), 0); /* before the host's zero */
}

/* Later times never map to earlier ones, whatever pairs were added. */
static void the_map_is_monotone(void **state)
{
    (void)state;
    coh_clock_map map = { .pair_count = 0 };
    uint64_t before = 0;
    add_pairs(&map, 20);
    const coh_clock_pair newest = *coh_clock_map_newest(&map);
    coh_clock_map_add(&map, &(coh_clock_pair){ newest.device_ns, newest.host_ns + 5, 0 });
    coh_clock_map_add(&map, &(coh_clock_pair){ newest.device_ns + 5, newest.host_ns, 0 });
    assert_int_equal(map.pair_count, 20);
    for (double at = BEGIN_NS - 3 * GAP_NS; at < BEGIN_NS + 25 * GAP_NS; at += 1e5) {
        const uint64_t host_ns = coh_clock_map_host_ns(&map, device_ns(at));
        assert_true(host_ns >= before);
        before = host_ns;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_between_pairs_is_as_exact_as_they_are),
        cmocka_unit_test(a_time_outside_of_them_follows_their_mean_rate),
        cmocka_unit_test(two_close_pairs_do_not_set_the_rate),
        cmocka_unit_test(one_pair_counts_both_clocks_as_equally_fast),
        cmocka_unit_test(the_map_is_monotone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
