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
#include "base/rng.h"
#include "cohobate/optimizer.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "tests/reference/float_bits.h"

#define EPS 0x1p-24
enum { MOST = 1027, STEPS = 50 };

/* How a parameter is stored: f32; bf16 with a bf16 gradient; bf16 with an f32 gradient. */
enum { PLAIN, SPLIT, WIDE, FORMS };

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
    if (p->form == SPLIT) {
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
        .grad_dtype = p->form == SPLIT ? COH_DTYPE_BF16 : COH_DTYPE_F32,
        .work = p->form == PLAIN ? (void *)p->master : p->high,
        .low = p->form == PLAIN ? NULL : p->low,
        .grad = p->form == SPLIT ? (const void *)p->half_slope : p->slope,
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
    return strcmp(name, "lion") == 0 ? rows->lion : rows->sgd;
}

static const struct {
    const char *name;
    float hyperparameters[COH_OPTIMIZER_NUMBERS];
} all[] = {
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
        for (int form = 0; form < FORMS; form++)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion_is_the_formula),
        cmocka_unit_test(lion_has_no_sign_of_zero_and_keeps_nan),
        cmocka_unit_test(sgd_is_the_formula),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(a_split_update_is_the_update_of_the_joined_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
