/* AdamW's three forms of states for bf16 weights under gradients that are hard on them, each step
 * compared with AdamW in float64 from what was stored before: the bounds of kernels/quantise.h hold
 * for every element, and nothing becomes NaN.
 *
 *     split   adamw      work and low, an f32 master; m and v in f32
 *     lean    adamw8     the same master; m and v in one byte
 *     sr      adamw8sr   work in bf16, rounded stochastically; m and v in one byte
 *
 * Blocks of 128 elements take turns: sizes of 1e4 and 1e-8 side by side; one gradient in a
 * thousand; none at all; 1e-8 or 1e4 throughout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "kernels/quantise.h"
#include "tests/reference/float_bits.h"

enum { BLOCK = COH_QUANTISE_BLOCK, BLOCKS = 20, MOST = BLOCKS * BLOCK + 77, STEPS = 1000 };
enum { MIXED, SPARSE, ZERO, EVEN, KINDS };
#define EPS 0x1p-24 /* half a unit in the last place of f32 */

static const float numbers[] = { 0.9f, 0.95f, 1e-8f };

typedef struct parameter {
    uint16_t work[MOST], low[MOST];
    float grad[MOST];
    float m[MOST], v[MOST]; /* of adamw; codes in the first bytes with the others */
    float m_scale[BLOCKS + 1], v_scale[BLOCKS + 1];
} parameter;

/* A parameter's values as numbers, in double. */
typedef struct values {
    double work[MOST], m[MOST], v[MOST], m_unit[MOST];
} values;

static int kind_of(int64_t i)
{
    return (int)(i / BLOCK % KINDS);
}

static void draw(parameter *p, uint64_t step)
{
    for (int64_t i = 0; i < MOST; i++) {
        const float normal = (float)coh_rng_normal(7, step, (uint64_t)i);
        const int is_drawn = coh_rng_below(8, step, (uint64_t)i, 1000) == 0;
        switch (kind_of(i)) {
        case MIXED:
            p->grad[i] = normal * (i % 7 == 0 ? 1e4f : 1e-8f);
            break;
        case SPARSE:
            p->grad[i] = is_drawn ? normal : 0;
            break;
        case ZERO:
            p->grad[i] = 0;
            break;
        case EVEN:
            p->grad[i] = normal * (i / BLOCK / KINDS % 2 ? 1e4f : 1e-8f);
            break;
        }
    }
}

/* Opens the stored numbers by the definitions in kernels/quantise.h. */
static void open_values(const parameter *p, const char *optimizer, values *out)
{
    const uint8_t *m_code = (const uint8_t *)p->m, *v_code = (const uint8_t *)p->v;
    for (int64_t i = 0; i < MOST; i++) {
        const uint32_t rest = p->low[i] < 0x8000u ? p->low[i] : p->low[i] - 0x10000u;
        out->work[i] = (double)float_of(((uint32_t)p->work[i] << 16) + rest);
        out->m[i] = (double)p->m[i];
        out->v[i] = (double)p->v[i];
        if (strcmp(optimizer, "adamw") == 0)
            continue;
        const int exponent = v_code[i] / 16, level = m_code[i] & 0x7f;
        const double fraction = (double)(v_code[i] % 16) / 16;
        out->v[i] = (exponent > 0 ? ldexp(1 + fraction, exponent - 15) : ldexp(fraction, -14)) *
                    (double)p->v_scale[i / BLOCK];
        const int k = out->v[i] > 0 ? (int)floor((double)ilogb(out->v[i]) / 2) : -64;
        out->m_unit[i] = ldexp((double)p->m_scale[i / BLOCK], k);
        out->m[i] = (m_code[i] & 0x80 ? -1.0 : 1.0) * level / 64 * out->m_unit[i];
    }
}

typedef struct stress {
    const coh_optimizer *optimizer;
    coh_cells cells;
    double decay;
    double largest_step, largest_m; /* in rates; of the bound of m */
} stress;

/* One step of AdamW in double, from `from` to `to`. `error`: of the work, if each operation is
 * rounded to f32. */
static void step_double(const stress *s, const float *grad, const values *from, values *to,
                        double *error)
{
    const double beta1 = (double)numbers[0], beta2 = (double)numbers[1];
    const double bias1 = (double)s->cells.update_scalars[0];
    const double bias2 = (double)s->cells.update_scalars[1], rate = (double)s->cells.update_rate;
    for (int64_t i = 0; i < MOST; i++) {
        const double g = (double)s->cells.update_scale * (double)grad[i];
        to->m[i] = beta1 * from->m[i] + (1 - beta1) * g;
        to->v[i] = beta2 * from->v[i] + (1 - beta2) * g * g;
        const double root = sqrt(to->v[i] / bias2) + (double)numbers[2];
        const double direction = to->m[i] / bias1 / root;
        const double size = (fabs(beta1 * from->m[i]) + fabs((1 - beta1) * g)) / bias1 / root;
        const double change = rate * (direction + s->decay * from->work[i]);
        to->work[i] = from->work[i] - change;
        error[i] = EPS * (fabs(to->work[i]) + 2 * fabs(change) + rate * 16 * size) + 0x1p-149;
    }
}

/* Checks the stored moments of one element. `quotient`: the largest |m| / sqrt(v) of its block,
 * with the stored v. */
static void check_moments(stress *s, const parameter *p, const values *exact, const values *stored,
                          int64_t i, double quotient)
{
    const double m_error = fabs(stored->m[i] - exact->m[i]);
    const double v_error = fabs(stored->v[i] - exact->v[i]), more = 1 + 0x1p-18;
    if (s->optimizer->stream_count == 2) {
        assert_true(v_error <= EPS * 8 * exact->v[i] + 0x1p-148);
        return;
    }
    const double scale = (double)p->v_scale[i / BLOCK];
    assert_true(v_error <= more * fmax(exact->v[i] / 16, ldexp(scale, -18)));
    assert_int_equal(stored->v[i] > 0, exact->v[i] > 0); /* no square is lost */
    const double bound = fmax(quotient / 31, 0x1p-93) * sqrt(stored->v[i]);
    if (bound > 0)
        s->largest_m = fmax(s->largest_m, m_error / bound);
    assert_true(m_error <= more * bound);
}

static void check_step(stress *s, const parameter *p, const values *before, const values *exact,
                       const values *stored, const double *error)
{
    double quotient[BLOCKS + 1] = { 0 };
    for (int64_t i = 0; i < MOST; i++)
        if (stored->v[i] > 0)
            quotient[i / BLOCK] = fmax(quotient[i / BLOCK], fabs(exact->m[i]) / sqrt(stored->v[i]));
    for (int64_t i = 0; i < MOST; i++) {
        assert_true(isfinite(stored->work[i]) && isfinite(stored->m[i]) && isfinite(stored->v[i]));
        /* a unit in the last place of bf16 */
        const double unit = s->optimizer->rounds_work ? ldexp(fabs(exact->work[i]), -7) : 0;
        assert_true(fabs(stored->work[i] - exact->work[i]) <= error[i] + unit * (1 + 0x1p-16));
        check_moments(s, p, exact, stored, i, quotient[i / BLOCK]);
        const double change = fabs(exact->work[i] - before->work[i]) -
                              (double)s->cells.update_rate * s->decay * fabs(before->work[i]);
        s->largest_step = fmax(s->largest_step, change / (double)s->cells.update_rate);
        if (kind_of(i) == ZERO && s->decay == 0)
            assert_true(stored->work[i] == before->work[i] && stored->v[i] == 0);
    }
}

static void update(const stress *s, parameter *p)
{
    const coh_grain_run run = { .count = MOST, .rate_factor = 1, .decay = (float)s->decay };
    const int is_adamw = s->optimizer->stream_count == 2;
    coh_update call = { .optimizer = s->optimizer,
                        .dtype = COH_DTYPE_BF16,
                        .f32_grads = 1,
                        .grains = { &run, 1 },
                        .work = p->work,
                        .low = s->optimizer->rounds_work ? NULL : p->low,
                        .grad = p->grad,
                        .states = { p->m, is_adamw ? p->v : p->m_scale, p->v, p->v_scale },
                        .cells = &s->cells,
                        .hyperparameters = numbers };
    coh_kernel_update(NULL, &call);
}

/* Runs all steps. Each begins with what the one before stored, so that bounds do not grow; the way
 * from the beginning is compared with that of AdamW in double alone. A step moves an element by at
 * most 2.7 rates in AdamW (Cauchy and Schwarz) and by less than 4 here. */
static void check_form(const char *name, double decay)
{
    static parameter p;
    static values before, exact, stored, alone;
    static double error[MOST], unused[MOST];
    stress s = { .optimizer = coh_optimizer_find(name), .decay = decay };
    double rates = 0, apart = 0;
    assert_non_null(s.optimizer);
    memset(&p, 0, sizeof(p));
    for (int64_t i = 0; i < MOST; i++)
        p.work[i] = (uint16_t)(bits_of((float)coh_rng_normal(9, 0, (uint64_t)i)) >> 16);
    open_values(&p, name, &alone);
    for (uint64_t step = 0; step < STEPS; step++) {
        s.cells = (coh_cells){ .update_rate = step < 20 ? 1e-2f : 1e-3f,
                               .update_scale = 0.7f,
                               .update_random = { .seed = 3, .step = step } };
        for (int k = 0; k < 2; k++)
            s.cells.update_scalars[k] = (float)(1 - pow((double)numbers[k], (double)(step + 1)));
        draw(&p, step);
        open_values(&p, name, &before);
        step_double(&s, p.grad, &before, &exact, error);
        step_double(&s, p.grad, &alone, &alone, unused);
        update(&s, &p);
        open_values(&p, name, &stored);
        check_step(&s, &p, &before, &exact, &stored, error);
        rates += (double)s.cells.update_rate;
    }
    for (int64_t i = 0; i < MOST; i++)
        apart = fmax(apart, fabs(stored.work[i] - alone.work[i]));
    print_message("%s: largest step %.2f rates, error of m %.2f of its bound; %.2g of the sum of "
                  "rates from AdamW in float64\n",
                  name, s.largest_step, s.largest_m, apart / rates);
    assert_true(s.largest_step < 4);
    assert_true(apart <= (strcmp(name, "adamw") == 0 ? 1e-3 : 4 + 2.7) * rates);
}

static void split_states_stay_within_their_bounds(void **state)
{
    (void)state;
    check_form("adamw", 0);
    check_form("adamw", 0.1);
}

static void lean_states_stay_within_their_bounds(void **state)
{
    (void)state;
    check_form("adamw8", 0);
    check_form("adamw8", 0.1);
}

static void states_without_master_stay_within_their_bounds(void **state)
{
    (void)state;
    check_form("adamw8sr", 0);
    check_form("adamw8sr", 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_states_stay_within_their_bounds),
        cmocka_unit_test(lean_states_stay_within_their_bounds),
        cmocka_unit_test(states_without_master_stay_within_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
