/* The optimizer's pass: compares it with the formula, and the split master with the whole one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "tests/reference/float_bits.h"

#define EPS  0x1p-24
#define MOST COH_GRAIN_ELEMENTS

typedef struct adamw {
    float rate, scale, beta1, beta2, bias1, bias2, epsilon, decay;
} adamw;

static const adamw step = { 1e-3f, 0.7f, 0.9f, 0.95f, 0.271f, 0.142625f, 1e-8f, 0.1f };

/* Updates a bf16 parameter if `low` is not NULL, by the table of the host if `rows` is NULL. */
static void run_adamw(const coh_rows *rows, const adamw *s, void *to, uint16_t *low,
                      const void *slope, coh_dtype grad_dtype, float *m_state, float *v_state,
                      int64_t count)
{
    const float hyperparameters[] = { s->beta1, s->beta2, s->epsilon };
    const float scalars[] = { s->bias1, s->bias2 };
    (rows != NULL ? rows : coh_rows_get())
        ->adamw(&(coh_update_call){ .count = count,
                                    .rate = s->rate,
                                    .scale = s->scale,
                                    .decay = s->decay,
                                    .hyperparameters = hyperparameters,
                                    .scalars = scalars,
                                    .work_dtype = low != NULL ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                                    .grad_dtype = grad_dtype,
                                    .work = to,
                                    .low = low,
                                    .grad = slope,
                                    .states = { m_state, v_state } });
}

static float work[MOST], grad[MOST], m[MOST], v[MOST];

static void fill(float *to, uint64_t stream, double scale)
{
    for (int64_t i = 0; i < MOST; i++)
        to[i] = (float)(scale * coh_rng_normal(23, stream, (uint64_t)i));
}

static void fill_all(void)
{
    fill(work, 1, 2.0);
    fill(grad, 2, 1.0);
    fill(m, 3, 1.0);
    fill(v, 4, 0.5);
    for (int64_t i = 0; i < MOST; i++)
        v[i] *= v[i];
}

static void adamw_is_the_formula(void **state)
{
    (void)state;
    static float w0[MOST], m0[MOST], v0[MOST];
    fill_all();
    memcpy(w0, work, sizeof(work));
    memcpy(m0, m, sizeof(m));
    memcpy(v0, v, sizeof(v));
    const adamw s = step;
    run_adamw(NULL, &s, work, NULL, grad, COH_DTYPE_F32, m, v, MOST);
    for (int64_t i = 0; i < MOST; i++) {
        const double g = (double)s.scale * grad[i];
        const double first = (double)s.beta1 * m0[i] + (1.0 - s.beta1) * g;
        const double second = (double)s.beta2 * v0[i] + (1.0 - s.beta2) * g * g;
        const double direction = first / s.bias1 / (sqrt(second / s.bias2) + (double)s.epsilon);
        const double value = w0[i] - s.rate * (direction + (double)s.decay * w0[i]);
        /* a product, 1 - beta (exact to eps / 0.05), a sum */
        const double first_size = fabs(s.beta1 * m0[i]) + fabs((1.0 - s.beta1) * g);
        assert_true(fabs(m[i] - first) <= EPS * 5.0 * first_size);
        assert_true(fabs(v[i] - second) <= EPS * 8.0 * second);
        const double step_size = first_size / s.bias1 / (sqrt(second / s.bias2) + s.epsilon);
        const double bound =
            EPS * (fabs(value) + s.rate * 20.0 * (step_size + fabs(s.decay * w0[i])));
        assert_true(fabs(work[i] - value) <= bound);
    }
}

/* ---- the split master ---- */

/* Every upper half, with the lower halves at the rounding boundary and some others. */
static void a_split_master_joins_to_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t edges[] = { 0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff };
    static float master[1 << 16], joined[1 << 16];
    static uint16_t high[1 << 16], low[1 << 16], alone[1 << 16];
    for (int sample = 0; sample < 64; sample++) {
        for (uint32_t upper = 0; upper < 1 << 16; upper++) {
            const uint32_t lower =
                sample < 8 ? edges[sample]
                           : (uint32_t)coh_rng_below(29, (uint64_t)sample, upper, 1 << 16);
            master[upper] = float_of(upper << 16 | lower);
        }
        coh_kernel_split(high, low, master, 1 << 16);
        coh_kernel_split(alone, NULL, master, 1 << 16);
        coh_kernel_join(joined, high, low, 1 << 16);
        assert_memory_equal(joined, master, sizeof(master));
        assert_memory_equal(alone, high, sizeof(high));
        for (int64_t i = 0; i < 1 << 16; i++) {
            const uint32_t bits = bits_of(master[i]);
            const int64_t rest = (int64_t)bits - ((int64_t)high[i] << 16);
            /* modulo 2^32: the upper half wraps from ffff to 0 */
            assert_true(rest == (int16_t)low[i] || rest - (INT64_C(1) << 32) == (int16_t)low[i]);
        }
        coh_kernel_join(joined, high, NULL, 1 << 16);
        for (int64_t i = 0; i < 1 << 16; i++)
            assert_int_equal(bits_of(joined[i]), (uint32_t)high[i] << 16);
    }
}

/* Rounding to the upper half costs at most half of its last place. */
static void the_upper_half_is_the_nearest_bf16(void **state)
{
    (void)state;
    static uint16_t high[MOST];
    fill_all();
    coh_kernel_split(high, NULL, work, MOST);
    for (int64_t i = 0; i < MOST; i++) {
        const double error = fabs((double)float_of((uint32_t)high[i] << 16) - (double)work[i]);
        assert_true(error <= 0x1p-8 * fabs((double)work[i]));
    }
}

static void a_split_update_is_the_update_of_the_joined_master(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 7, 15, 16, 17, 33, 257, MOST };
    static uint16_t high[MOST], low[MOST], half_grad[MOST];
    static float joined[MOST], m2[MOST], v2[MOST];
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        fill_all();
        coh_kernel_split(high, low, work, MOST);
        coh_kernel_split(half_grad, NULL, grad, MOST);
        coh_kernel_join(grad, half_grad, NULL, MOST);
        memcpy(m2, m, sizeof(m));
        memcpy(v2, v, sizeof(v));
        for (int t = 0; t < 3; t++) {
            run_adamw(NULL, &step, work, NULL, grad, COH_DTYPE_F32, m, v, counts[n]);
            run_adamw(NULL, &step, high, low, half_grad, COH_DTYPE_BF16, m2, v2, counts[n]);
        }
        coh_kernel_join(joined, high, low, MOST);
        assert_memory_equal(joined, work, sizeof(work));
        assert_memory_equal(m2, m, sizeof(m));
        assert_memory_equal(v2, v, sizeof(v));
    }
}

/* On every instruction set. `grad` remains f32. */
static void a_wide_update_is_the_update_of_the_joined_master(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 7, 15, 16, 17, 33, 257, MOST };
    static const char *const names[] = { "plain", "avx2", "avx512" };
    static uint16_t high[MOST], low[MOST];
    static float joined[MOST], m2[MOST], v2[MOST];
    for (size_t n = 0; n < 3 * sizeof(counts) / sizeof(counts[0]); n++) {
        const coh_rows *rows = coh_rows_of(names[n % 3], COH_DTYPE_F32);
        if (rows == NULL)
            continue;
        fill_all();
        coh_kernel_split(high, low, work, MOST);
        memcpy(m2, m, sizeof(m));
        memcpy(v2, v, sizeof(v));
        for (int t = 0; t < 3; t++) {
            run_adamw(coh_rows_of("plain", COH_DTYPE_F32), &step, work, NULL, grad, COH_DTYPE_F32,
                      m, v, counts[n / 3]);
            run_adamw(rows, &step, high, low, grad, COH_DTYPE_F32, m2, v2, counts[n / 3]);
        }
        coh_kernel_join(joined, high, low, MOST);
        assert_memory_equal(joined, work, sizeof(work));
        assert_memory_equal(m2, m, sizeof(m));
        assert_memory_equal(v2, v, sizeof(v));
    }
}

/* Updates far below a bf16's last place add up, since the lower half keeps them. */
static void updates_below_the_upper_half_are_not_lost(void **state)
{
    (void)state;
    uint16_t high = 0x3f80, low = 0, half_grad = 0x3f80; /* 1, 0, 1 */
    float first = 0.0f, second = 0.0f, master;
    const adamw small = { 1e-5f, 1.0f, 0.0f, 0.0f, 1.0f, 1.0f, 0.0f, 0.0f };
    for (int t = 0; t < 1000; t++)
        run_adamw(NULL, &small, &high, &low, &half_grad, COH_DTYPE_BF16, &first, &second, 1);
    coh_kernel_join(&master, &high, &low, 1);
    assert_true(fabs(master - 0.99) < 1e-4);
    assert_true(high < 0x3f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_the_formula),
        cmocka_unit_test(a_split_master_joins_to_the_same_bits),
        cmocka_unit_test(the_upper_half_is_the_nearest_bf16),
        cmocka_unit_test(a_split_update_is_the_update_of_the_joined_master),
        cmocka_unit_test(a_wide_update_is_the_update_of_the_joined_master),
        cmocka_unit_test(updates_below_the_upper_half_are_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
