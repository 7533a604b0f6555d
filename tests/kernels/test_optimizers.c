/* Optimizers besides AdamW (test_adamw.c): each compared with its formula in double over fifty
 * steps, in all forms of a parameter; the same bits on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/quantise.h"
#include "tests/reference/float_bits.h"

#define EPS 0x1p-24
enum { MOST = 1027, STEPS = 50 };

/* How a parameter is stored: f32; bf16 with a bf16 gradient; bf16 with an f32 gradient; the last
 * two without low halves, of optimizers that round the work. */
enum { PLAIN, SPLIT, WIDE, FORMS, ROUNDED = FORMS, ROUNDED_WIDE, ALL_FORMS };

static int has_half_slope(int form)
{
    return form == SPLIT || form == ROUNDED;
}

/* 1 - beta1^t and 1 - beta2^t of a step in the middle of a run. */
static const float some_scalars[] = { 0.271f, 0.142625f };

/* A parameter in one of the forms. `master` and `slope` are its master and gradient in f32. */
typedef struct parameter {
    int form;
    coh_random_cell random;
    float master[MOST], slope[MOST], states[4][MOST];
    uint16_t high[MOST], low[MOST], half_slope[MOST];
} parameter;

static float normal(uint64_t stream, int64_t i)
{
    return (float)coh_rng_normal(41, stream, (uint64_t)i);
}

static void begin(parameter *p, int form)
{
    memset(p, 0, sizeof(*p));
    p->form = form;
    p->random.seed = 5;
    for (int64_t i = 0; i < MOST; i++)
        p->master[i] = normal(1, i);
    coh_kernel_split(p->high, p->low, p->master, MOST);
}

/* Draws the gradient of a step. */
static void draw(parameter *p, int step)
{
    p->random.step = (uint64_t)step;
    for (int64_t i = 0; i < MOST; i++)
        p->slope[i] = normal(2 + (uint64_t)step, i);
    if (has_half_slope(p->form)) {
        coh_kernel_split(p->half_slope, NULL, p->slope, MOST);
        coh_kernel_join(p->slope, p->half_slope, NULL, MOST);
    }
}

static coh_update_call call_of(parameter *p, const float *hyperparameters)
{
    return (coh_update_call){
        .count = MOST,
        .rate = 3e-3f,
        .scale = 0.7f,
        .decay = 0.1f,
        .hyperparameters = hyperparameters,
        .scalars = some_scalars,
        .random = &p->random,
        .work_dtype = p->form == PLAIN ? COH_DTYPE_F32 : COH_DTYPE_BF16,
        .grad_dtype = has_half_slope(p->form) ? COH_DTYPE_BF16 : COH_DTYPE_F32,
        .work = p->form == PLAIN ? (void *)p->master : p->high,
        .low = p->form == PLAIN || p->form >= ROUNDED ? NULL : p->low,
        .grad = has_half_slope(p->form) ? (const void *)p->half_slope : p->slope,
        .states = { p->states[0], p->states[1], p->states[2], p->states[3] },
    };
}

static void join(parameter *p)
{
    if (p->form != PLAIN)
        coh_kernel_join(p->master, p->high, p->low, MOST);
}

static const coh_optimizer *optimizer_of(const char *name)
{
    const coh_optimizer *found = coh_optimizer_find(name);
    assert_non_null(found);
    return found;
}

/* Checks one element after a step, from its values before. */
typedef void check_element(const coh_update_call *call, double work, double grad, double state,
                           double new_work, double new_state);

/* Each step begins from the floats that the one before has stored, so that bounds do not grow. */
static void check_formula(const char *name, const float *hyperparameters, int form,
                          check_element *check)
{
    static parameter p, before;
    begin(&p, form);
    for (int step = 0; step < STEPS; step++) {
        draw(&p, step);
        before = p;
        const coh_update_call call = call_of(&p, hyperparameters);
        optimizer_of(name)->update(&call);
        join(&p);
        for (int64_t i = 0; i < MOST; i++)
            check(&call, (double)before.master[i], (double)p.slope[i], (double)before.states[0][i],
                  (double)p.master[i], (double)p.states[0][i]);
    }
}

/* ---- lion ---- */

static const float lion_numbers[] = { 0.9f, 0.99f };

static void check_lion(const coh_update_call *call, double work, double grad, double state,
                       double new_work, double new_state)
{
    const double beta1 = (double)call->hyperparameters[0], beta2 = (double)call->hyperparameters[1];
    const double g = (double)call->scale * grad, rate = (double)call->rate;
    const double c = beta1 * state + (1 - beta1) * g, m = beta2 * state + (1 - beta2) * g;
    const double c_size = fabs(beta1 * state) + fabs((1 - beta1) * g);
    const double m_size = fabs(beta2 * state) + fabs((1 - beta2) * g);
    const double decay = (double)call->decay * work;
    /* three products and a sum */
    assert_true(fabs(new_state - m) <= EPS * 5.0 * m_size);
    int is_near = 0;
    for (int sign = -1; sign <= 1; sign++) {
        const double value = work - rate * (sign + decay);
        const int is_sign = sign == (c > 0) - (c < 0) || fabs(c) <= EPS * 5.0 * c_size;
        is_near |= is_sign &&
                   fabs(new_work - value) <= EPS * (fabs(value) + rate * 20.0 * (1 + fabs(decay)));
    }
    assert_true(is_near);
}

static void lion_is_the_formula(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++)
        check_formula("lion", lion_numbers, form, check_lion);
}

/* Without momentum and gradient only the decay acts; a NaN is not taken for a sign. */
static void lion_has_no_sign_of_zero_and_keeps_nan(void **state)
{
    (void)state;
    static parameter p;
    for (int form = 0; form < FORMS; form++) {
        begin(&p, form);
        coh_update_call call = call_of(&p, lion_numbers);
        call.decay = 0;
        p.slope[5] = NAN;
        p.half_slope[5] = 0x7fc0;
        p.slope[7] = -INFINITY;
        p.half_slope[7] = 0xff80;
        p.states[0][9] = NAN;
        coh_optimizer_find("lion")->update(&call);
        join(&p);
        for (int64_t i = 0; i < MOST; i++)
            if (i != 5 && i != 7 && i != 9) {
                assert_int_equal(bits_of(p.master[i]), bits_of(normal(1, i)));
                assert_int_equal(bits_of(p.states[0][i]), 0);
            }
        assert_true(isnan(p.master[5]) && isnan(p.states[0][5]));
        assert_true(p.states[0][7] == -INFINITY);
        assert_true(isnan(p.master[9]) && isnan(p.states[0][9]));
    }
}

/* ---- sgd ---- */

static void check_sgd(const coh_update_call *call, double work, double grad, double state,
                      double new_work, double new_state)
{
    const double momentum = (double)call->hyperparameters[0], rate = (double)call->rate;
    const double slope = (double)call->scale * grad, decay = (double)call->decay * work;
    const double size = fabs(slope) + fabs(decay), buffer = momentum * state + slope + decay;
    const double buffer_size = fabs(momentum * state) + size;
    const int nesterov = call->hyperparameters[1] >= 0.5f;
    const double direction = nesterov ? slope + decay + momentum * buffer : buffer;
    const double direction_size = nesterov ? size + momentum * buffer_size : buffer_size;
    const double value = work - rate * direction;
    assert_true(fabs(new_state - buffer) <= EPS * 5.0 * buffer_size);
    assert_true(fabs(new_work - value) <= EPS * (fabs(value) + rate * 20.0 * direction_size));
}

static void sgd_is_the_formula(void **state)
{
    (void)state;
    for (int form = 0; form < FORMS; form++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            check_formula("sgd", (const float[]){ 0.9f, (float)nesterov }, form, check_sgd);
}

/* ---- all ---- */

static coh_row_update *row_of(const coh_rows *rows, const char *name)
{
    return strcmp(name, "adamw8") == 0 ? rows->adamw8
           : strcmp(name, "lion") == 0 ? rows->lion
                                       : rows->sgd;
}

static const struct {
    const char *name;
    float hyperparameters[COH_OPTIMIZER_NUMBERS];
} all[] = {
    { "adamw8", { 0.9f, 0.95f, 1e-8f } },
    { "lion", { 0.9f, 0.99f } },
    { "sgd", { 0.9f, 0 } },
    { "sgd", { 0.9f, 1 } },
};

/* Three steps of `count` elements; the last has a NaN, an infinity and a subnormal number. */
static void run_steps(parameter *p, const float *hyperparameters, coh_row_update *row,
                      int64_t count)
{
    for (int step = 0; step < 3; step++) {
        draw(p, step);
        if (step == 2) {
            static const float special[] = { NAN, -INFINITY, 0x1p-140f };
            memcpy(p->slope + 3, special, sizeof(special));
            coh_kernel_split(p->half_slope, NULL, p->slope, MOST);
        }
        coh_update_call call = call_of(p, hyperparameters);
        call.count = count;
        row(&call);
    }
    join(p);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const names[] = { "avx2", "avx512" };
    static const int64_t counts[] = { 1, 7, 15, 16, 17, 33, 257, MOST };
    static parameter plain, other;
    const coh_rows *first = coh_rows_of("plain", COH_DTYPE_F32);
    for (size_t o = 0; o < sizeof(all) / sizeof(all[0]); o++)
        for (int form = 0; form < (row_of(first, all[o].name) == first->adamw8 ? ALL_FORMS : FORMS);
             form++)
            for (size_t n = 0; n < 8; n++)
                for (int isa = 0; isa < 2; isa++) {
                    const coh_rows *rows = coh_rows_of(names[isa], COH_DTYPE_F32);
                    if (rows == NULL)
                        continue;
                    begin(&plain, form);
                    begin(&other, form);
                    run_steps(&plain, all[o].hyperparameters, row_of(first, all[o].name),
                              counts[n]);
                    run_steps(&other, all[o].hyperparameters, row_of(rows, all[o].name), counts[n]);
                    assert_memory_equal(&plain, &other, sizeof(plain));
                }
}

/* A bf16 parameter's master takes the same values as an f32 parameter with the same gradients. */
static void a_split_update_is_the_update_of_the_joined_master(void **state)
{
    (void)state;
    static parameter whole, split;
    for (size_t o = 0; o < sizeof(all) / sizeof(all[0]); o++)
        for (int form = SPLIT; form < FORMS; form++) {
            begin(&whole, PLAIN);
            begin(&split, form);
            for (int step = 0; step < STEPS; step++) {
                draw(&split, step);
                memcpy(whole.slope, split.slope, sizeof(whole.slope));
                whole.random = split.random;
                const coh_update_call one = call_of(&whole, all[o].hyperparameters);
                const coh_update_call two = call_of(&split, all[o].hyperparameters);
                optimizer_of(all[o].name)->update(&one);
                optimizer_of(all[o].name)->update(&two);
            }
            join(&split);
            assert_memory_equal(whole.master, split.master, sizeof(whole.master));
            assert_memory_equal(whole.states, split.states, sizeof(whole.states));
        }
}

/* ---- adamw8 ---- */

enum { BLOCK = COH_QUANTISE_BLOCK, M = 0, V = 1 };

static const float adamw8_numbers[] = { 0.9f, 0.95f, 1e-8f };

static const uint8_t *codes_of(const parameter *p, int moment)
{
    return (const uint8_t *)p->states[2 * moment];
}

static float scale_of(const parameter *p, int moment, int64_t i)
{
    return p->states[2 * moment + 1][i / BLOCK];
}

/* The number of a code of v, by the definition in kernels/quantise.h. */
static double opened_v(const parameter *p, int64_t i)
{
    const int code = codes_of(p, V)[i], exponent = code / 16;
    const double fraction = (double)(code % 16) / 16;
    const double value = exponent > 0 ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14);
    return value * (double)scale_of(p, V, i);
}

/* The number of m's level 64. */
static double m_place(const parameter *p, int64_t i)
{
    const double v = opened_v(p, i);
    const int k = v > 0 ? (int)floor((double)ilogb(v) / 2) : -64;
    return ldexp((double)scale_of(p, M, i), k);
}

static double opened(const parameter *p, int moment, int64_t i)
{
    const int code = codes_of(p, M)[i];
    const double size = (double)(code & 0x7f) / 64 * m_place(p, i);
    return moment == V ? opened_v(p, i) : code >= 0x80 ? -size : size;
}

/* The distance of the codes next to x. */
static double step_at(const parameter *p, int moment, int64_t i, double x)
{
    const double least = ldexp((double)scale_of(p, V, i), -14);
    return moment == M ? m_place(p, i) / 64 : ldexp(1, ilogb(fmax(x, least)) - 4);
}

/* The number of an adamw8 parameter's first element: a multiple of a block. */
enum { FIRST = 37 * BLOCK };

static void update(parameter *p, int step, const float *hyperparameters)
{
    p->random.step = (uint64_t)step;
    coh_update_call call = call_of(p, hyperparameters);
    call.first = FIRST;
    optimizer_of("adamw8")->update(&call);
    join(p);
}

/* The half of number n in the stream of tensor 0 and this use (kernels/random.h). */
static uint32_t half_of(const coh_random_cell *cell, int use, uint64_t n)
{
    const uint64_t word = n / 128 * 64 + n % 64;
    const uint64_t group = word / 64, w = word % 64 / 16, counter = 16 * group + word % 16;
    const coh_random random = coh_random_of(cell, 0, -1 - use);
    const uint32_t from[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), random.high[0],
                               random.high[1] };
    uint32_t block[4];
    coh_philox(block, from, random.key);
    return n % 128 < 64 ? block[w] & 0xffffu : block[w] >> 16;
}

/* The code of |x|: its place among the codes, plus the fraction (half + 1/2) / 2^16, rounded down.
 * For v with E > 0 only. */
static int code_for(const parameter *p, int moment, int64_t i, double x)
{
    const float fraction = ((float)half_of(&p->random, 0, FIRST + (uint64_t)i) + 0.5f) / 65536;
    if (moment == M)
        return (int)((float)(fabs(x) / m_place(p, i) * 64) + fraction);
    const double size = x / (double)scale_of(p, V, i);
    const int exponent = ilogb(size);
    const double place = 16 * (exponent + 15) + 16 * (ldexp(size, -exponent) - 1);
    return (int)floor(place + (double)fraction);
}

/* Updates f32 copies by adamw, with the numbers of `call`. */
static void run_adamw(coh_update_call call, float *work, const float *slope, float *m, float *v)
{
    call.count = MOST;
    call.work_dtype = call.grad_dtype = COH_DTYPE_F32;
    call.work = work;
    call.low = NULL;
    call.grad = slope;
    call.states[0] = m;
    call.states[1] = v;
    optimizer_of("adamw")->update(&call);
}

/* A step gives the work adamw's bits for the moments that were opened. Each new code is one of the
 * two around the new moment: which one, the half of the element's number decides. */
static void adamw8_is_adamw_between_codes(void **state)
{
    static parameter p;
    static float work[MOST], m[MOST], v[MOST];
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        begin(&p, form);
        for (int step = 0; step < STEPS; step++) {
            draw(&p, step);
            for (int64_t i = 0; i < MOST; i++) {
                p.slope[i] = form == PLAIN ? ldexpf(p.slope[i], (int)(i % 41) - 35) : p.slope[i];
                work[i] = p.master[i];
                m[i] = (float)opened(&p, M, i);
                v[i] = (float)opened(&p, V, i);
            }
            const coh_update_call call = call_of(&p, adamw8_numbers);
            run_adamw(call, work, p.slope, m, v);
            update(&p, step, adamw8_numbers);
            assert_memory_equal(work, p.master, sizeof(work));
            for (int64_t i = 0; i < MOST; i++) {
                const double m_error = fabs(opened(&p, M, i) - (double)m[i]);
                const double v_error = fabs(opened(&p, V, i) - (double)v[i]);
                assert_true(m_error <= step_at(&p, M, i, (double)m[i]));
                assert_true(v_error <= step_at(&p, V, i, (double)v[i]));
                assert_true(v[i] == 0 || codes_of(&p, V)[i] > 0);
                assert_int_equal(codes_of(&p, M)[i] & 0x7f, code_for(&p, M, i, (double)m[i]));
                if ((double)v[i] >= ldexp((double)scale_of(&p, V, i), -14))
                    assert_int_equal(codes_of(&p, V)[i], code_for(&p, V, i, (double)v[i]));
                assert_true(v[i] <= 1.9375f * scale_of(&p, V, i)); /* the largest code */
            }
        }
    }
}

/* Over fifty steps, the work differs from adamw's by less than a twentieth of its way, in the root
 * of the mean square: v is stored with a relative error of at most 1/16 and mean zero. */
static void adamw8_stays_near_adamw(void **state)
{
    static parameter p;
    static float work[MOST], m[MOST], v[MOST];
    double error = 0, way = 0;
    (void)state;
    begin(&p, PLAIN);
    memcpy(work, p.master, sizeof(work));
    memset(m, 0, sizeof(m));
    memset(v, 0, sizeof(v));
    for (int step = 0; step < STEPS; step++) {
        const float scalars[] = { 1 - powf(0.9f, (float)(step + 1)),
                                  1 - powf(0.95f, (float)(step + 1)) };
        draw(&p, step);
        for (int64_t i = 0; i < MOST; i++) /* sizes from 2^-6 to 2 side by side */
            p.slope[i] = ldexpf(p.slope[i] + 0.5f, (int)(i % 8) - 6);
        coh_update_call call = call_of(&p, adamw8_numbers);
        call.scalars = scalars;
        run_adamw(call, work, p.slope, m, v);
        optimizer_of("adamw8")->update(&call);
    }
    for (int64_t i = 0; i < MOST; i++) {
        error += pow((double)work[i] - (double)p.master[i], 2);
        way += pow((double)work[i] - (double)normal(1, i), 2);
    }
    print_message("adamw8 after %d steps: %.3f of the way\n", STEPS, sqrt(error / way));
    assert_true(sqrt(error / way) < 0.05);
}

/* Without gradients the moments shrink by their betas, even if a step changes them by much less
 * than a code: the mean difference from the exact moving average is 0 within five standard
 * errors. */
static void moving_averages_have_no_bias(void **state)
{
    static const float numbers[] = { 0.99f, 0.999f, 1e-8f };
    static parameter p;
    enum { DECAYS = 300 };
    static double first[2][MOST];
    (void)state;
    begin(&p, PLAIN);
    draw(&p, 0);
    for (int64_t i = 0; i < MOST; i++) /* v stays above the lower end of its range */
        p.slope[i] = copysignf(0.5f + fabsf(p.slope[i]), p.slope[i]);
    update(&p, 0, numbers);
    for (int64_t i = 0; i < MOST; i++) {
        first[M][i] = opened(&p, M, i);
        first[V][i] = opened(&p, V, i);
    }
    memset(p.slope, 0, sizeof(p.slope));
    for (int step = 1; step <= DECAYS; step++)
        update(&p, step, numbers);
    for (int k = 0; k < 2; k++) {
        double size = 0, mean = 0, square = 0;
        for (int64_t i = 0; i < MOST; i++) {
            const double exact = fabs(first[k][i]) * pow((double)numbers[k], DECAYS);
            const double error = copysign(opened(&p, k, i), opened(&p, k, i) * first[k][i]) - exact;
            size += exact / MOST;
            mean += error / MOST;
            square += error * error / MOST;
        }
        const double standard_error = sqrt((square - mean * mean) / MOST);
        print_message("%c: mean error %.4f, standard error %.4f of the mean\n", "mv"[k],
                      mean / size, standard_error / size);
        assert_true(fabs(mean) <= 5 * standard_error);
        assert_true(standard_error < 0.02 * size);
    }
}

/* Blocks: sizes from 1e-8 to 1e4 side by side; one gradient in a thousand; no gradient at all. The
 * change of a step stays within a few rates, as adamw's: |m| / sqrt(v) is below 2.7 there, by
 * Cauchy and Schwarz. */
static void stress_stays_finite_and_small(void **state)
{
    static parameter p, before;
    (void)state;
    begin(&p, PLAIN);
    double largest = 0;
    for (int step = 0; step < 1000; step++) {
        const float scalars[] = { 1 - powf(0.9f, (float)(step + 1)),
                                  1 - powf(0.95f, (float)(step + 1)) };
        draw(&p, step);
        for (int64_t i = 0; i < MOST; i++) {
            const int kind = (int)(i / BLOCK % 3);
            if (kind == 0)
                p.slope[i] *= i % 7 == 0 ? 1e4f : 1e-8f;
            if (kind == 1 && coh_rng_below(43, (uint64_t)step, (uint64_t)i, 1000) > 0)
                p.slope[i] = 0;
            if (kind == 2)
                p.slope[i] = 0;
        }
        before = p;
        coh_update_call call = call_of(&p, adamw8_numbers);
        call.scalars = scalars;
        call.decay = 0;
        optimizer_of("adamw8")->update(&call);
        for (int64_t i = 0; i < MOST; i++) {
            const double change = fabs((double)p.master[i] - (double)before.master[i]);
            largest = fmax(largest, change / (double)call.rate);
            assert_true(isfinite(p.master[i]) && isfinite(scale_of(&p, M, i)) &&
                        isfinite(scale_of(&p, V, i)));
            if (i / BLOCK % 3 == 2) {
                assert_true(change == 0);
                assert_int_equal(codes_of(&p, M)[i] | codes_of(&p, V)[i], 0);
                assert_true(scale_of(&p, M, i) == 0 && scale_of(&p, V, i) == 0);
            }
        }
    }
    print_message("largest change: %.2f rates\n", largest);
    assert_true(largest < 4);
}

static void a_gradient_that_is_not_finite_shows(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY, 3e38f, 1e20f };
    static parameter p;
    (void)state;
    for (int k = 0; k < 5; k++) {
        begin(&p, PLAIN);
        draw(&p, 0);
        update(&p, 0, adamw8_numbers);
        p.slope[5] = bad[k];
        update(&p, 1, adamw8_numbers);
        assert_true(isnan(scale_of(&p, V, 5)));
        assert_false(isnan(scale_of(&p, V, BLOCK)));
        if (k < 3)
            assert_true(isnan(p.master[5]) && isnan(scale_of(&p, M, 5)));
        draw(&p, 2);
        update(&p, 2, adamw8_numbers);
        for (int64_t i = 0; i < MOST; i++)
            assert_int_equal(isnan(p.master[i]), i < BLOCK);
    }
}

/* ---- adamw8's bits depend on no order ---- */

enum { GRAIN = COH_GRAIN_ELEMENTS, TENSOR = 3 * GRAIN + 77 };

typedef struct tensor {
    float work[TENSOR], grad[TENSOR];
    uint16_t high[TENSOR], half_grad[TENSOR];
    uint8_t m[TENSOR], v[TENSOR];
    float m_scale[TENSOR / BLOCK + 1], v_scale[TENSOR / BLOCK + 1];
} tensor;

/* Updates grains [begin, end) as one chunk: `work` by adamw8, or `high` by adamw8sr. */
static void update_grains(coh_pool *pool, tensor *t, int form, const coh_cells *cells,
                          int64_t begin, int64_t end)
{
    const int64_t first = begin * GRAIN, last = end * GRAIN < TENSOR ? end * GRAIN : TENSOR;
    const coh_grain_run run = {
        .count = last - first, .partial_begin = 4 + begin, .rate_factor = 1, .decay = 0.1f
    };
    void *const work = form == PLAIN ? (void *)(t->work + first) : t->high + first;
    void *const grad = form == SPLIT ? (void *)(t->half_grad + first) : t->grad + first;
    coh_kernel_update(
        pool, &(coh_update){ .optimizer = optimizer_of(form == PLAIN ? "adamw8" : "adamw8sr"),
                             .dtype = form == PLAIN ? COH_DTYPE_F32 : COH_DTYPE_BF16,
                             .f32_grads = form == WIDE,
                             .grains = { &run, 1 },
                             .work = work,
                             .grad = grad,
                             .states = { t->m + first, t->m_scale + first / BLOCK, t->v + first,
                                         t->v_scale + first / BLOCK },
                             .cells = cells,
                             .hyperparameters = adamw8_numbers });
}

/* Draws the gradient of a step, representable in bf16. Returns the step's cells. */
static coh_cells draw_grains(tensor *t, int step)
{
    for (int64_t i = 0; i < TENSOR; i++) {
        t->half_grad[i] = (uint16_t)(bits_of(normal(90 + (uint64_t)step, i)) >> 16);
        t->grad[i] = float_of((uint32_t)t->half_grad[i] << 16);
    }
    return (coh_cells){ .update_rate = 1e-3f,
                        .update_scale = 1,
                        .update_random = { 5, (uint64_t)step },
                        .update_scalars = { 0.3f, 0.2f } };
}

static void chunks_and_threads_change_no_bit(void **state)
{
    static tensor whole, other;
    (void)state;
    for (int k = 0; k < FORMS * 2 * 4; k++) {
        const int form = k % FORMS, cut = 1 + k / FORMS % 4, threads = 1 + 2 * (k / FORMS / 4);
        coh_pool *pool;
        assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        memset(&whole, 0, sizeof(whole));
        memset(&other, 0, sizeof(other));
        for (int step = 0; step < 3; step++) {
            const coh_cells cells = draw_grains(&whole, step);
            draw_grains(&other, step);
            update_grains(NULL, &whole, form, &cells, 0, 4);
            for (int64_t grain = 3 / cut * cut; grain >= 0; grain -= cut)
                update_grains(pool, &other, form, &cells, grain, grain + cut < 4 ? grain + cut : 4);
        }
        coh_pool_destroy(pool);
        assert_memory_equal(&whole, &other, sizeof(whole));
    }
}

/* ---- a work without master ---- */

/* A step of adamw8sr is one of adamw8 from the widened work. The result is rounded to a neighbour
 * in bf16: away from zero if the lower bits plus the half of the element's number reach 2^16. The
 * moments are those of adamw8. */
static void adamw8sr_is_adamw8_rounded_by_the_halves_of_its_elements(void **state)
{
    static tensor sr, wide;
    (void)state;
    for (int form = SPLIT; form < FORMS; form++) {
        memset(&sr, 0, sizeof(sr));
        for (int64_t i = 0; i < TENSOR; i++)
            sr.high[i] = (uint16_t)(bits_of(normal(80, i)) >> 16);
        for (int step = 0; step < STEPS; step++) {
            const coh_cells cells = draw_grains(&sr, step);
            wide = sr;
            for (int64_t i = 0; i < TENSOR; i++)
                wide.work[i] = float_of((uint32_t)sr.high[i] << 16);
            update_grains(NULL, &wide, PLAIN, &cells, 0, 4);
            update_grains(NULL, &sr, form, &cells, 0, 4);
            for (int64_t i = 0; i < TENSOR; i++) {
                const uint64_t number = 4 * GRAIN + (uint64_t)i;
                const uint32_t half = half_of(&cells.update_random, 1, number);
                assert_int_equal(sr.high[i], (bits_of(wide.work[i]) + half) >> 16);
            }
            assert_memory_equal(sr.m, wide.m, sizeof(sr.m));
            assert_memory_equal(sr.v, wide.v, sizeof(sr.v));
            assert_memory_equal(sr.m_scale, wide.m_scale, sizeof(sr.m_scale));
            assert_memory_equal(sr.v_scale, wide.v_scale, sizeof(sr.v_scale));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion_is_the_formula),
        cmocka_unit_test(lion_has_no_sign_of_zero_and_keeps_nan),
        cmocka_unit_test(sgd_is_the_formula),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(a_split_update_is_the_update_of_the_joined_master),
        cmocka_unit_test(adamw8_is_adamw_between_codes),
        cmocka_unit_test(adamw8_stays_near_adamw),
        cmocka_unit_test(moving_averages_have_no_bias),
        cmocka_unit_test(stress_stays_finite_and_small),
        cmocka_unit_test(a_gradient_that_is_not_finite_shows),
        cmocka_unit_test(chunks_and_threads_change_no_bit),
        cmocka_unit_test(adamw8sr_is_adamw8_rounded_by_the_halves_of_its_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
