/* bf16 as a storage format: rounding compared with independent arithmetic, and rows of bf16 with
 * the same bits on every instruction set. test_kinds.c tests the results of the rows, with the
 * kinds that use them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "tests/reference/float_bits.h"

#define MOST     COH_GRAIN_ELEMENTS
#define PATTERNS (1 << 16)

static const char *const isa_names[] = { "plain", "avx2", "avx512" };

static const int64_t counts[] = { 1, 2, 7, 13, 15, 16, 17, 31, 32, 33, 127, 257, 1009, MOST };
#define COUNTS ((int)(sizeof(counts) / sizeof(counts[0])))

static double widened(uint16_t half)
{
    return (double)float_of((uint32_t)half << 16);
}

/* Returns the bf16 nearest to x, by comparing distances; ties go to the even last bit. From halfway
 * beyond the largest on it is infinity. */
static uint16_t nearest(float x)
{
    const uint32_t bits = bits_of(x);
    const uint16_t down = (uint16_t)(bits >> 16), up = (uint16_t)(down + 1);
    const double wide = (double)x, sign = signbit(x) ? -1.0 : 1.0;
    if (isinf(x))
        return down;
    const double next = (up & 0x7fff) == 0x7f80 ? sign * 0x1p128 : widened(up);
    const double to_down = fabs(wide - widened(down)), to_up = fabs(next - wide);
    if (to_down == to_up)
        return down % 2 == 0 ? down : up;
    return to_down < to_up ? down : up;
}

static void storing_rounds_to_the_nearest_and_ties_to_even(void **state)
{
    (void)state;
    static const uint32_t edges[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    static float exact[PATTERNS];
    static uint16_t stored[PATTERNS];
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_BF16);
        for (int sample = 0; sample < 12 && rows != NULL; sample++) {
            for (uint32_t upper = 0; upper < PATTERNS; upper++)
                exact[upper] = float_of(
                    upper << 16 |
                    (sample < 6 ? edges[sample]
                                : (uint32_t)coh_rng_below(31, (uint64_t)sample, upper, PATTERNS)));
            rows->put(stored, exact, PATTERNS, 0);
            for (int64_t i = 0; i < PATTERNS; i++) {
                if (isnan(exact[i])) { /* the same sign, quiet */
                    assert_true(isnan(widened(stored[i])) && (stored[i] & 0x40) != 0);
                    assert_int_equal(stored[i] >> 15, bits_of(exact[i]) >> 31);
                } else {
                    assert_int_equal(stored[i], nearest(exact[i]));
                }
            }
        }
    }
}

static void widening_is_exact(void **state)
{
    (void)state;
    static float total[PATTERNS];
    static uint16_t all[PATTERNS];
    for (uint32_t i = 0; i < PATTERNS; i++)
        all[i] = (uint16_t)i;
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_BF16);
        if (rows == NULL)
            continue;
        memset(total, 0, sizeof(total));
        rows->gather(total, all, PATTERNS);
        for (uint32_t i = 0; i < PATTERNS; i++)
            assert_true(isnan(widened(all[i])) ? isnan(total[i])
                                               : (double)total[i] == widened(all[i]));
    }
}

/* ---- sums ---- */

static uint16_t a[MOST], b[MOST], c[MOST], d[MOST];
static float f[MOST], g[MOST];

static void fill(uint16_t *to, uint64_t stream, double scale)
{
    for (int64_t i = 0; i < MOST; i++)
        to[i] = nearest((float)(scale * coh_rng_normal(37, stream, (uint64_t)i)));
}

static void fill_all(void)
{
    fill(a, 1, 2.0);
    fill(b, 2, 1.0);
    fill(c, 3, 1.0);
    fill(d, 4, 0.5);
    for (int64_t i = 0; i < MOST; i++)
        f[i] = g[i] = (float)coh_rng_normal(37, 5, (uint64_t)i);
}

static void square_sum_is_exact_to_double_rounding(void **state)
{
    (void)state;
    fill_all();
    for (int n = 0; n < COUNTS; n++) {
        long double sum = 0.0L;
        for (int64_t i = 0; i < counts[n]; i++)
            sum += (long double)widened(a[i]) * widened(a[i]);
        assert_true(fabsl(coh_kernel_square_sum(COH_DTYPE_BF16, a, counts[n]) - sum) <=
                    (long double)counts[n] * 0x1p-53L * sum);
    }
}

static void a_broken_number_is_found_wherever_it_stands(void **state)
{
    (void)state;
    static const uint16_t broken[] = { 0x7fc0, 0xffff, 0x7f80, 0xff80, 0x7f81 };
    fill_all();
    for (int n = 0; n < COUNTS; n++) {
        assert_true(coh_kernel_all_finite(COH_DTYPE_BF16, a, counts[n]));
        for (int64_t at = 0; at < counts[n]; at += 1 + counts[n] / 37) {
            const uint16_t kept = a[at];
            a[at] = broken[at % 5];
            assert_false(coh_kernel_all_finite(COH_DTYPE_BF16, a, counts[n]));
            a[at] = kept;
        }
    }
    const uint16_t largest[] = { 0x7f7f, 0xff7f, 1, 0 };
    assert_true(coh_kernel_all_finite(COH_DTYPE_BF16, largest, 4));
}

/* A sum is rounded once, from f32. */
static void adding_rounds_the_exact_sum_once(void **state)
{
    (void)state;
    fill_all();
    memcpy(c, a, sizeof(c));
    coh_kernel_add(COH_DTYPE_BF16, c, b, MOST);
    for (int64_t i = 0; i < MOST; i++)
        assert_int_equal(c[i], nearest((float)widened(a[i]) + (float)widened(b[i])));
}

/* ---- bits ---- */

static uint64_t hash;

static void take(const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ from[i]) * 0x100000001b3u;
}

static void run_sums(const coh_rows *rows, int64_t n)
{
    const size_t half = (size_t)n * 2, whole = (size_t)n * 4;
    float mean, rstd, max = -INFINITY, sum = 0.0f;
    fill_all();
    const double square = rows->square_sum(a, n);
    const float dot = rows->dot(a, b, n);
    take(&square, sizeof(square));
    take(&dot, sizeof(dot));
    rows->norm(c, a, b, d, n, 1e-5f, &mean, &rstd);
    take(c, half);
    take(&mean, sizeof(mean));
    take(&rstd, sizeof(rstd));
    for (int adds = 0; adds < 2; adds++) {
        coh_norm_row row = { c, b, a, d, mean, rstd, f, g, n, adds };
        rows->norm_backward(&row);
        take(c, half);
        take(f, whole);
        take(g, whole);
    }
    rows->rms(c, a, b, n, 1e-5f, 0.75f, &rstd);
    take(c, half);
    take(&rstd, sizeof(rstd));
    for (int adds = 0; adds < 2; adds++) {
        coh_norm_row row = { c, b, a, d, 0.0f, rstd, f, NULL, n, adds };
        rows->rms_backward(&row);
        take(c, half);
        take(f, whole);
    }
    rows->softmax_take(a, n, &max, &sum);
    take(&max, sizeof(max));
    take(&sum, sizeof(sum));
}

static void run_elements(const coh_rows *rows, int64_t n)
{
    fill_all();
    rows->softmax_again(d, n, 1.5f, 0.3f);
    rows->gelu(c, a, n);
    rows->gelu_backward(d, b, a, n, 1);
    rows->gelu_backward(b, b, a, n, 0);
    rows->gelu_gradient(a, b, a, f, n);
    rows->add(c, d, n);
    rows->sum(d, b, c, n);
    rows->add_scaled(g, c, 0.37f, n);
    rows->gather(f, b, n);
    rows->put(a, g, n, 1);
    rows->put(b, f, n, 0);
    take(a, (size_t)n * 2);
    take(b, (size_t)n * 2);
    take(c, (size_t)n * 2);
    take(d, (size_t)n * 2);
    take(f, (size_t)n * 4);
    take(g, (size_t)n * 4);
}

static void run_gates(const coh_rows *rows, int64_t n)
{
    fill_all();
    rows->relu(c, a, n);
    rows->relu_backward(d, b, c, n, 1);
    rows->relu_backward(b, b, c, n, 0);
    take(b, (size_t)n * 2);
    take(c, (size_t)n * 2);
    take(d, (size_t)n * 2);
    fill_all();
    rows->relu_gradient(d, b, a, f, n);
    take(d, (size_t)n * 2);
    take(f, (size_t)n * 4);
    rows->swiglu(c, a, b, n);
    const coh_swiglu_row row = { b, a, c, d, b, n, 1, 0 };
    rows->swiglu_backward(&row);
    rows->geglu(b, c, d, n);
    const coh_swiglu_row gelu_row = { b, a, c, d, a, n, 0, 1 };
    rows->geglu_backward(&gelu_row);
    take(b, (size_t)n * 2);
    take(c, (size_t)n * 2);
    take(d, (size_t)n * 2);
    const int64_t heads = n < 6 ? 1 : 3, half_width = n / heads / 2;
    coh_rope_row turn = { a, d, f, g, heads, half_width, 1 };
    rows->rope(&turn);
    turn.y = a;
    turn.adds = 0;
    rows->rope(&turn);
    take(a, (size_t)(heads * half_width) * 4);
    take(d, (size_t)(heads * half_width) * 4);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    uint64_t first = 0;
    int compared = 0;
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_BF16);
        if (rows == NULL) {
            print_message("this CPU has no %s\n", isa_names[isa]);
            continue;
        }
        assert_string_equal(rows->name, isa_names[isa]);
        hash = 0xcbf29ce484222325u;
        for (int n = 0; n < COUNTS; n++) {
            run_sums(rows, counts[n]);
            run_elements(rows, counts[n]);
            run_gates(rows, counts[n]);
        }
        if (compared++ > 0)
            assert_int_equal(hash, first);
        first = hash;
    }
    if (compared == 1)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(storing_rounds_to_the_nearest_and_ties_to_even),
        cmocka_unit_test(widening_is_exact),
        cmocka_unit_test(square_sum_is_exact_to_double_rounding),
        cmocka_unit_test(a_broken_number_is_found_wherever_it_stands),
        cmocka_unit_test(adding_rounds_the_exact_sum_once),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
