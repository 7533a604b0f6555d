/* Normal numbers. Oracles: the formula by the C library in long double, with another range
 * reduction for the angle near a zero of the sine; then the known properties of the distribution.
 * Seeds are fixed, so a test that holds once always holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

/* In units of 2^-53 of the value, by adding up roundings. The logarithm is worst at sqrt(2) / 2,
 * where -log 2 (off by 1/2) meets half of its size (off by 3): 2 * (1/2 + 3/2) + 1 = 5; the root
 * halves that and rounds: 3.5. The angle: 2; its series and their sum: 2. The product: 1. The total
 * is 8.5, and series are truncated below half a unit: 9. */
#define BOUND 0x9p-53L

static const long double turn = 6.283185307179586476925286766559005768L;

enum { SEED = 41, DRAWS = 1 << 17 };

/* Returns the sine of `turns` whole turns: reducing to the nearest half turn is exact in binary. */
static long double sine_of(long double turns)
{
    const long double halves = roundl(2 * turns);
    const long double sine = sinl(turn * (turns - halves / 2));
    return fmodl(halves, 2) != 0 ? -sine : sine;
}

static long double error_of(double got, long double wanted)
{
    if (wanted == 0)
        return got == 0 ? 0 : INFINITY;
    return fabsl((long double)got / wanted - 1);
}

/* Tests u = 1 - n 2^-52 and v = m 2^-52; the lowest twelve bits, which must not count, are
 * random. */
static void assert_pair(uint64_t n, uint64_t m, long double *worst)
{
    const uint64_t noise = coh_rng_u64(SEED, n, m);
    const coh_normal_pair pair = coh_normal_of(n << 12 | (noise & 0xfff), m << 12 | noise >> 52);
    const long double radius = sqrtl(-2 * logl(1 - (long double)n * 0x1p-52L));
    const long double v = (long double)m * 0x1p-52L;
    const long double even = error_of(pair.even, radius * sine_of(v + 0.25L));
    const long double odd = error_of(pair.odd, radius * sine_of(v));
    if (!(even <= BOUND) || !(odd <= BOUND))
        fail_msg("u = 1 - %" PRIu64 " * 2^-52, v = %" PRIu64 " * 2^-52: off by %Lg and %Lg", n, m,
                 even, odd);
    *worst = fmaxl(*worst, fmaxl(even, odd));
}

static void values_are_the_formula_s_to_nine_units(void **state)
{
    (void)state;
    const uint64_t all = (uint64_t)1 << 52;
    long double worst = 0;
    for (uint64_t i = 0; i < DRAWS; i++)
        assert_pair(coh_rng_u64(SEED, 1, 2 * i) >> 12, coh_rng_u64(SEED, 1, 2 * i + 1) >> 12,
                    &worst);
    /* u = 1, its neighbour, values at and near powers of two and where the logarithm's reduction
     * changes its exponent, the smallest: each with v at and near every eighth of a turn. */
    const uint64_t root_half = (uint64_t)(0x1.6a09e667f3bcdp51);
    for (int power = 0; power < 53; power++)
        for (int at = 0; at < 6; at++) {
            const uint64_t u = (at < 3 ? all : root_half) >> power;
            const uint64_t n = all - u + (uint64_t)(at % 3) - 1;
            for (uint64_t m = 0; n < all && m < 24; m++)
                assert_pair(n, (m / 3 * (all / 8) + m % 3 - 1) & (all - 1), &worst);
        }
    print_message("largest relative error: %.2Lf * 2^-53\n", worst * 0x1p53L);
}

static void the_ends_are_finite(void **state)
{
    (void)state;
    const coh_normal_pair none = coh_normal_of(0, 0), most = coh_normal_of(UINT64_MAX, 0);
    assert_true(none.even == 0 && none.odd == 0);
    assert_true(most.even > 8.4 && most.even < 8.5 && most.odd == 0);
}

static void a_number_is_a_function_of_seed_stream_and_its_place(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        const coh_normal_pair pair =
            coh_normal_of(coh_rng_u64(SEED, 3, i / 2 * 2), coh_rng_u64(SEED, 3, i / 2 * 2 + 1));
        const double value = coh_rng_normal(SEED, 3, i);
        assert_true(value == (i % 2 == 0 ? pair.even : pair.odd));
        assert_true(value != coh_rng_normal(SEED + 1, 3, i) && value != coh_rng_normal(SEED, 4, i));
    }
}

static double drawn[DRAWS];

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Checks each mean within five standard deviations: the variance of x^k is E x^2k - (E x^k)^2. */
static void assert_moments(void)
{
    static const double mean[] = { 0, 1, 0, 3 }, variance[] = { 1, 2, 15, 96 };
    for (int k = 0; k < 4; k++) {
        double sum = 0;
        for (int i = 0; i < DRAWS; i++)
            sum += pow(drawn[i], k + 1);
        assert_true(fabs(sum / DRAWS - mean[k]) <= 5 * sqrt(variance[k] / DRAWS));
    }
}

/* Kolmogorov-Smirnov: the largest distance of the two distribution functions. For truly normal
 * numbers one set in a thousand reaches 1.95. */
static void assert_distribution(void)
{
    double distance = 0;
    qsort(drawn, DRAWS, sizeof(drawn[0]), by_size);
    for (int i = 0; i < DRAWS; i++) {
        const double below = erfc(-drawn[i] / sqrt(2.0)) / 2;
        distance = fmax(distance, fmax(below - (double)i / DRAWS, (i + 1.0) / DRAWS - below));
    }
    print_message("Kolmogorov-Smirnov: %.3f\n", distance * sqrt(DRAWS));
    assert_true(distance * sqrt(DRAWS) <= 1.95);
}

static void draws_are_normal_with_mean_0_and_variance_1(void **state)
{
    (void)state;
    for (uint64_t part = 0; part < 3; part++) { /* in sequence; even; odd */
        for (uint64_t i = 0; i < DRAWS; i++)
            drawn[i] = coh_rng_normal(SEED, 5, part == 0 ? i : 2 * i + part - 1);
        assert_moments();
        assert_distribution();
    }
}

/* Neighbours share a draw, but neither they nor their squares are correlated. The product has
 * variance 1, that of squares less 1 has 4. */
static void numbers_of_one_draw_are_independent(void **state)
{
    (void)state;
    double products = 0, squares = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const coh_normal_pair pair = coh_rng_normals(SEED, 6, i);
        products += pair.even * pair.odd;
        squares += (pair.even * pair.even - 1) * (pair.odd * pair.odd - 1);
    }
    assert_true(fabs(products / DRAWS) <= 5 * sqrt(1.0 / DRAWS));
    assert_true(fabs(squares / DRAWS) <= 5 * sqrt(4.0 / DRAWS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_the_formula_s_to_nine_units),
        cmocka_unit_test(the_ends_are_finite),
        cmocka_unit_test(a_number_is_a_function_of_seed_stream_and_its_place),
        cmocka_unit_test(draws_are_normal_with_mean_0_and_variance_1),
        cmocka_unit_test(numbers_of_one_draw_are_independent),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
