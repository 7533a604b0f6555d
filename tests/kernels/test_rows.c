/* The inner loops: compared with double precision, and the same bits on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"

#define EPS  0x1p-24
#define MOST COH_GRAIN_ELEMENTS

static const char *const isa_names[] = { "plain", "avx2", "avx512" };

/* 1, primes, one below, at and above the sixteen lanes and their multiples, a whole grain. */
static const int64_t counts[] = { 1, 2, 7, 13, 15, 16, 17, 31, 32, 33, 127, 257, 1009, MOST };
#define COUNTS ((int)(sizeof(counts) / sizeof(counts[0])))

static float a[MOST], b[MOST], c[MOST], d[MOST];

static void fill(float *to, uint64_t stream, double scale)
{
    for (int64_t i = 0; i < MOST; i++)
        to[i] = (float)(scale * coh_rng_normal(23, stream, (uint64_t)i));
}

static void fill_all(void)
{
    fill(a, 1, 2.0);
    fill(b, 2, 1.0);
    fill(c, 3, 1.0);
    fill(d, 4, 0.5);
    for (int64_t i = 0; i < MOST; i++)
        d[i] *= d[i]; /* AdamW's v */
}

static void square_sum_is_exact_to_double_rounding(void **state)
{
    (void)state;
    fill_all();
    for (int n = 0; n < COUNTS; n++) {
        long double sum = 0.0L;
        for (int64_t i = 0; i < counts[n]; i++)
            sum += (long double)a[i] * a[i];
        assert_true(fabsl(coh_kernel_square_sum(COH_DTYPE_F32, a, counts[n]) - sum) <=
                    (long double)counts[n] * 0x1p-53L * sum);
    }
}

/* As docs/numerics.md has it: a GPU's kernel has these bits, too. */
static double summed_by_pieces(const float *x, int64_t count)
{
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += 1024) {
        const int64_t end = begin + 1024 < count ? begin + 1024 : count;
        double sums[16] = { 0 };
        for (int64_t i = begin; i < end; i++)
            sums[(i - begin) % 16] += (double)x[i] * x[i];
        for (int half = 8; half > 0; half /= 2)
            for (int j = 0; j < half; j++)
                sums[j] += sums[j + half];
        total += sums[0];
    }
    return total;
}

static void square_sum_has_the_order_of_its_pieces(void **state)
{
    (void)state;
    fill_all();
    for (int n = 0; n < COUNTS; n++) {
        const double expected = summed_by_pieces(a, counts[n]);
        const double found = coh_kernel_square_sum(COH_DTYPE_F32, a, counts[n]);
        assert_memory_equal(&found, &expected, sizeof(found));
    }
}

static void a_broken_number_is_found_wherever_it_stands(void **state)
{
    (void)state;
    static const float broken[] = { NAN, -NAN, INFINITY, -INFINITY };
    fill_all();
    for (int n = 0; n < COUNTS; n++) {
        assert_true(coh_kernel_all_finite(COH_DTYPE_F32, a, counts[n]));
        for (int64_t at = 0; at < counts[n]; at += 1 + counts[n] / 37) {
            const float kept = a[at];
            a[at] = broken[at % 4];
            assert_false(coh_kernel_all_finite(COH_DTYPE_F32, a, counts[n]));
            a[at] = kept;
        }
    }
    const float largest[] = { 3.4028235e38f, -3.4028235e38f, 1e-45f, 0.0f };
    assert_true(coh_kernel_all_finite(COH_DTYPE_F32, largest, 4));
}

/* softmax_again with shift 0 and factor 1 is the exponential itself. */
static void exp_is_within_its_documented_error(void **state)
{
    (void)state;
    double worst = 0.0;
    for (int block = 0; block < 200; block++) {
        for (int64_t i = 0; i < MOST; i++) {
            const double place = (double)(block * MOST + i) / (200.0 * MOST);
            a[i] = (float)(-86.99 + place * (88.0 + 86.99));
            b[i] = a[i];
        }
        coh_rows_get()->softmax_again(b, MOST, 0.0f, 1.0f);
        for (int64_t i = 0; i < MOST; i++) {
            const double error = fabs(b[i] / exp((double)a[i]) - 1.0);
            worst = error > worst ? error : worst;
        }
    }
    print_message("largest relative error of exp: %.3f * 2^-24\n", worst / EPS);
    assert_true(worst <= 3.0 * EPS);
}

/* soft_cap with cap 1 is the hyperbolic tangent. */
static void tanh_is_within_its_documented_error(void **state)
{
    (void)state;
    double worst = 0.0;
    for (int block = 0; block < 200; block++) {
        for (int64_t i = 0; i < MOST; i++) {
            const double place = (double)(block * MOST + i) / (200.0 * MOST);
            a[i] = (float)((i % 2 ? -1.0 : 1.0) * pow(2.0, -120.0 + 126.0 * place));
        }
        coh_rows_get()->soft_cap(b, a, MOST, 1.0f);
        for (int64_t i = 0; i < MOST; i++) {
            const double error = fabs(b[i] / tanh((double)a[i]) - 1.0);
            worst = error > worst ? error : worst;
        }
    }
    print_message("largest relative error of tanh: %.3f * 2^-24\n", worst / EPS);
    assert_true(worst <= 8.0 * EPS);
    const float x[] = { 0.0f, -0.0f, 1e30f, -INFINITY, NAN, 3.0f };
    const float ones[] = { 1, 1, 1, 1, 1, 1 };
    float y[6], dx[6];
    coh_rows_get()->soft_cap(y, x, 6, 30.0f);
    coh_rows_get()->soft_cap_back(dx, ones, y, 6, 30.0f);
    assert_true(y[0] == 0.0f && signbit(y[1]) && y[2] == 30.0f && y[3] == -30.0f && isnan(y[4]));
    assert_true(dx[0] == 1.0f && dx[2] == 0.0f && dx[3] == 0.0f && isnan(dx[4]));
    assert_true(fabs((double)dx[5] - 1.0 / pow(cosh(0.1), 2.0)) < 8.0 * EPS);
}

static void exp_ends_as_documented(void **state)
{
    (void)state;
    float x[] = { -87.5f, -1000.0f, -INFINITY, 0.0f, 89.0f, INFINITY, NAN };
    coh_rows_get()->softmax_again(x, 7, 0.0f, 1.0f);
    assert_true(x[0] == 0.0f && x[1] == 0.0f && x[2] == 0.0f && x[3] == 1.0f);
    assert_true(x[4] == x[5] && fabs(x[4] / exp(88.0) - 1.0) < 1e-6);
    assert_true(isnan(x[6]));
}

static void gelu_holds_at_the_ends(void **state)
{
    (void)state;
    float x[] = { 1e30f, -1e30f, 40.0f, -40.0f, NAN, INFINITY, 0.0f };
    const float ones[] = { 1, 1, 1, 1, 1, 1, 1 };
    float y[7], dx[7];
    coh_rows_get()->gelu(y, x, 7);
    coh_rows_get()->gelu_backward(dx, ones, x, 7, 0);
    assert_true(y[0] == 1e30f && y[2] == 40.0f && y[5] == INFINITY && y[6] == 0.0f);
    assert_true(fabsf(y[1]) < 1e-7f && fabsf(y[3]) < 1e-35f);
    assert_true(dx[0] == 1.0f && dx[2] == 1.0f && dx[6] == 0.5f);
    assert_true(fabsf(dx[1]) < 1e-30f && fabsf(dx[3]) < 1e-30f);
    assert_true(isnan(y[4]) && isnan(dx[4]));
}

static void relu_keeps_what_is_above_zero_and_nan(void **state)
{
    (void)state;
    const float x[] = { 1e30f, -1e30f, 1e-45f, -1e-45f, NAN, INFINITY, -INFINITY, 0.0f };
    const float dy[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    float y[8], dx[8];
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_F32);
        if (rows == NULL)
            continue;
        rows->relu(y, x, 8);
        assert_true(y[0] == 1e30f && y[1] == 0.0f && y[2] == 1e-45f && y[3] == 0.0f);
        assert_true(isnan(y[4]) && y[5] == INFINITY && y[6] == 0.0f && y[7] == 0.0f);
        rows->relu_backward(dx, dy, y, 8, 0);
        assert_true(dx[0] == 1.0f && dx[1] == 0.0f && dx[2] == 3.0f && dx[3] == 0.0f);
        assert_true(dx[5] == 6.0f && dx[6] == 0.0f && dx[7] == 0.0f);
    }
}

static void swiglu_holds_at_the_ends(void **state)
{
    (void)state;
    const float gate[] = { 1e30f, -1e30f, 40.0f, -40.0f, NAN, INFINITY, 0.0f };
    const float ones[] = { 1, 1, 1, 1, 1, 1, 1 }, twos[] = { 2, 2, 2, 2, 2, 2, 2 };
    float y[7], dgate[7], dup[7];
    const coh_swiglu_row row = { ones, gate, twos, dgate, dup, 7, 0, 0 };
    coh_rows_get()->swiglu(y, gate, twos, 7);
    coh_rows_get()->swiglu_backward(&row);
    assert_true(y[0] == 2e30f && y[2] == 80.0f && y[5] == INFINITY && y[6] == 0.0f);
    assert_true(fabsf(y[1]) < 1e-7f && fabs(y[3] / -80.0 * exp(40.0) - 1.0) < 1e-6);
    assert_true(dgate[0] == 2.0f && dgate[2] == 2.0f && dgate[6] == 1.0f);
    assert_true(fabsf(dgate[1]) < 1e-30f && fabsf(dgate[3]) < 1e-14f);
    assert_true(dup[0] == 1e30f && dup[2] == 40.0f && dup[6] == 0.0f);
    assert_true(isnan(y[4]) && isnan(dgate[4]) && isnan(dup[4]));
}

/* Bounds: half a unit in the last place of values below one, plus the error of double. */
static void turns_are_the_nearest_floats(void **state)
{
    (void)state;
    static const float positions[] = { 0, 1, 2, 3, 1000, 131071, 0x1p24f };
    enum { COUNT = 4001 };
    for (int p = 0; p < 7; p++) {
        const int count = p < 6 ? COUNT : 2000; /* angles stay below 2^31 */
        for (int i = 0; i < COUNT; i++) /* 1 down to 1e-7, and multiples of an eighth turn */
            a[i] = i < 2000 ? (float)pow(10.0, -7.0 * i / 2000.0)
                            : (float)((i - 2000) * 0.78539816339744831);
        for (int isa = 0; isa < 3; isa++) {
            const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_F32);
            if (rows == NULL)
                continue;
            rows->turns(b, c, a, positions[p], count);
            for (int i = 0; i < count; i++) {
                const float angle = positions[p] * a[i];
                assert_true(fabs(b[i] - cos((double)angle)) <= 0x1.001p-25 + angle * 0x1p-52);
                assert_true(fabs(c[i] - sin((double)angle)) <= 0x1.001p-25 + angle * 0x1p-52);
            }
        }
    }
}

/* ---- bits ---- */

static uint64_t hash;

static void take(const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ from[i]) * 0x100000001b3u;
}

static void take_floats(const float *data, int64_t count)
{
    take(data, (size_t)count * sizeof(float));
}

static void run_sums(const coh_rows *rows, int64_t n)
{
    fill_all();
    double square = rows->square_sum(a, n);
    float dot = rows->dot(a, b, n), mean, rstd, max = -INFINITY, sum = 0.0f;
    take(&square, sizeof(square));
    take(&dot, sizeof(dot));
    fill_all();
    rows->norm(c, a, b, d, n, 1e-5f, &mean, &rstd);
    take_floats(c, n);
    take(&mean, sizeof(mean));
    take(&rstd, sizeof(rstd));
    static float dweight[MOST], dbias[MOST];
    memset(dweight, 0, sizeof(dweight));
    memset(dbias, 0, sizeof(dbias));
    for (int adds = 0; adds < 2; adds++) {
        coh_norm_row row = { c, b, a, d, mean, rstd, dweight, dbias, n, adds };
        rows->norm_backward(&row);
        take_floats(c, n);
        take_floats(dweight, n);
        take_floats(dbias, n);
    }
    fill_all();
    rows->rms(c, a, b, n, 1e-5f, 0.75f, &rstd);
    take_floats(c, n);
    take(&rstd, sizeof(rstd));
    for (int adds = 0; adds < 2; adds++) {
        coh_norm_row row = { c, b, a, d, 0.0f, rstd, dweight, NULL, n, adds };
        rows->rms_backward(&row);
        take_floats(c, n);
        take_floats(dweight, n);
    }
    fill_all();
    rows->softmax_take(a, n, &max, &sum);
    float factor = rows->softmax_exp(b, n, &max, &sum);
    take(&factor, sizeof(factor));
    take(&max, sizeof(max));
    take(&sum, sizeof(sum));
    take_floats(b, n);
}

static void run_elements(const coh_rows *rows, int64_t n)
{
    const coh_update_call step = { .count = n,
                                   .rate = 1e-3f,
                                   .scale = 0.7f,
                                   .decay = 0.1f,
                                   .hyperparameters = (const float[]){ 0.9f, 0.95f, 1e-8f },
                                   .scalars = (const float[]){ 0.271f, 0.142625f },
                                   .work = a,
                                   .grad = b,
                                   .states = { c, d } };
    fill_all();
    rows->softmax_again(a, n, 1.5f, 0.3f);
    rows->adamw(&step);
    take_floats(a, n);
    take_floats(b, n);
    take_floats(c, n);
    take_floats(d, n);
    fill_all();
    rows->gelu(c, a, n);
    rows->gelu_backward(d, b, a, n, 1);
    rows->gelu_backward(b, b, a, n, 0);
    rows->add(c, d, n);
    rows->sum(d, b, c, n);
    rows->add_scaled(c, a, 0.37f, n);
    rows->scale(b, 1.7f, n);
    take_floats(b, n);
    take_floats(c, n);
    take_floats(d, n);
}

static void run_gates(const coh_rows *rows, int64_t n)
{
    fill_all();
    rows->relu(c, a, n);
    rows->relu_backward(d, b, c, n, 1);
    rows->relu_backward(b, b, c, n, 0);
    take_floats(b, n);
    take_floats(c, n);
    take_floats(d, n);
    fill_all();
    rows->relu_gradient(c, b, a, d, n);
    rows->gelu_gradient(a, b, c, d, n);
    take_floats(a, n);
    take_floats(d, n);
    rows->soft_cap(c, a, n, 1.7f);
    rows->soft_cap_back(d, b, c, n, 1.7f);
    take_floats(c, n);
    take_floats(d, n);
    rows->swiglu(c, a, b, n);
    const coh_swiglu_row row = { b, a, c, d, b, n, 1, 0 };
    rows->swiglu_backward(&row);
    rows->geglu(b, c, d, n);
    const coh_swiglu_row gelu_row = { b, a, c, d, a, n, 0, 1 };
    rows->geglu_backward(&gelu_row);
    take_floats(b, n);
    take_floats(c, n);
    take_floats(d, n);
}

/* Turns some heads in one row of at most n elements. */
static void run_turns(const coh_rows *rows, int64_t n)
{
    const int64_t heads = n < 6 ? 1 : 3, half = n / heads / 2, count = heads * half * 2;
    static float cosine[MOST], sine[MOST];
    fill_all();
    rows->turns(cosine, sine, b, 1234.0f, half);
    take_floats(cosine, half);
    take_floats(sine, half);
    coh_rope_row row = { a, c, cosine, sine, heads, half, 1 };
    rows->rope(&row);
    row.y = a;
    row.adds = 0;
    rows->rope(&row);
    take_floats(a, count);
    take_floats(c, count);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    uint64_t first = 0;
    int compared = 0;
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isa_names[isa], COH_DTYPE_F32);
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
            run_turns(rows, counts[n]);
        }
        if (compared++ == 0)
            first = hash;
        assert_int_equal(hash, first);
    }
    if (compared == 1)
        skip();
}

static void an_unknown_instruction_set_is_not_found(void **state)
{
    (void)state;
    assert_null(coh_rows_of("vax", COH_DTYPE_F32));
    assert_non_null(coh_rows_of("plain", COH_DTYPE_F32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(square_sum_is_exact_to_double_rounding),
        cmocka_unit_test(square_sum_has_the_order_of_its_pieces),
        cmocka_unit_test(a_broken_number_is_found_wherever_it_stands),
        cmocka_unit_test(exp_is_within_its_documented_error),
        cmocka_unit_test(tanh_is_within_its_documented_error),
        cmocka_unit_test(exp_ends_as_documented),
        cmocka_unit_test(gelu_holds_at_the_ends),
        cmocka_unit_test(relu_keeps_what_is_above_zero_and_nan),
        cmocka_unit_test(swiglu_holds_at_the_ends),
        cmocka_unit_test(turns_are_the_nearest_floats),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(an_unknown_instruction_set_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
