/* Row loops of gelu, relu, swiglu and geglu and of their gradients, sixteen elements at a time.
 * Compiled once per instruction set and element type. Next: kernels/cpu/rows.h for each loop's
 * meaning, activation.h for the formulas. */
#include "kernels/cpu/isa/element.h"

#include "kernels/cpu/isa/activation.h"

/* ---- gelu and relu ---- */

/* The functions of an activation are constants where the loops are inlined. */
typedef lanes activate(lanes x);
typedef lanes pass_back(lanes dy, lanes of);

LANES_INLINE void value_row(void *out, const void *row, int64_t count, activate *value)
{
    element *y = out;
    const element *x = row;
    EACH_LANES(i, n, count, elements_give(y + i, n, value(elements_take(x + i, n, 0.0f))));
}

LANES_INLINE lanes gradient_at(const element *dy, const element *of, int64_t n, pass_back *back)
{
    return back(elements_take(dy, n, 0.0f), elements_take(of, n, 0.0f));
}

LANES_INLINE void backward_row(void *out, const void *gradient, const void *row, int64_t count,
                               int adds, pass_back *back)
{
    element *dx = out;
    const element *dy = gradient, *of = row;
    EACH_LANES(i, n, count, elements_put(dx + i, n, gradient_at(dy + i, of + i, n, back), adds));
}

LANES_INLINE void gradient_part(element *dh, float *sums, int64_t n, lanes value)
{
    elements_give(dh, n, value);
    lanes_add_to(sums, n, value);
}

LANES_INLINE void gradient_row(void *out, const void *gradient, const void *row, float *sums,
                               int64_t count, pass_back *back)
{
    element *dh = out;
    const element *dy = gradient, *of = row;
    EACH_LANES(i, n, count,
               gradient_part(dh + i, sums + i, n, gradient_at(dy + i, of + i, n, back)));
}

#define ACTIVATION_ROWS(name)                                                                      \
    void ROW(name)(void *y, const void *x, int64_t count)                                          \
    {                                                                                              \
        value_row(y, x, count, name);                                                              \
    }                                                                                              \
    void ROW(name##_backward)(void *dx, const void *dy, const void *of, int64_t count, int adds)   \
    {                                                                                              \
        backward_row(dx, dy, of, count, adds, name##_back);                                        \
    }                                                                                              \
    void ROW(name##_gradient)(void *dh, const void *dy, const void *of, float *sums,               \
                              int64_t count)                                                       \
    {                                                                                              \
        gradient_row(dh, dy, of, sums, count, name##_back);                                        \
    }

ACTIVATION_ROWS(gelu)
ACTIVATION_ROWS(relu)

/* ---- swiglu ---- */

/* Limit of the exponential. Below -87 the quotient stays x / (1 + e^87), 1e-38 of x. */
#define SWIGLU_HOLD 87.0f

typedef struct swish {
    vector held, decay, gate; /* x clamped, e^-x, 1 / (1 + e^-x) */
} swish;

LANES_INLINE swish swish_of(vector x)
{
    swish s = { .held = vector_larger(vector_all(-SWIGLU_HOLD),
                                      vector_smaller(vector_all(SWIGLU_HOLD), x)) };
    s.decay = vector_exp_within(vector_all(0.0f) - s.held);
    s.gate = vector_all(1.0f) / (vector_all(1.0f) + s.decay);
    return s;
}

LANES_INLINE void swiglu_part(element *y, const element *gate, const element *up, int64_t count)
{
    lanes x = elements_take(gate, count, 0.0f);
    const lanes other = elements_take(up, count, 0.0f);
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = x.part[k] * swish_of(x.part[k]).gate * other.part[k];
    elements_give(y, count, x);
}

void ROW(swiglu)(void *out, const void *gates, const void *ups, int64_t count)
{
    element *y = out;
    const element *gate = gates, *up = ups;
    EACH_LANES(i, n, count, swiglu_part(y + i, gate + i, up + i, n));
}

/* The slope of x s is s + x s (1 - s); 1 - s is computed as e^-x s, which does not cancel. */
LANES_INLINE void swiglu_backward_part(const coh_swiglu_row *row, int64_t i, int64_t count)
{
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes gate = elements_take((const element *)row->gate + i, count, 0.0f);
    const lanes up = elements_take((const element *)row->up + i, count, 0.0f);
    lanes dgate, dup;
    for (int k = 0; k < COH_VECTORS; k++) {
        const swish s = swish_of(gate.part[k]);
        const vector slope = s.gate + s.held * (s.gate * (s.decay * s.gate));
        dgate.part[k] = dy.part[k] * up.part[k] * slope;
        dup.part[k] = dy.part[k] * (gate.part[k] * s.gate);
    }
    if (row->dgate != NULL)
        elements_put((element *)row->dgate + i, count, dgate, row->dgate_adds);
    if (row->dup != NULL)
        elements_put((element *)row->dup + i, count, dup, row->dup_adds);
}

void ROW(swiglu_backward)(const coh_swiglu_row *row)
{
    EACH_LANES(i, n, row->count, swiglu_backward_part(row, i, n));
}

/* ---- geglu ---- */

void ROW(geglu)(void *out, const void *gates, const void *ups, int64_t count)
{
    element *y = out;
    const element *gate = gates, *up = ups;
    EACH_LANES(i, n, count,
               elements_give(y + i, n,
                             lanes_multiply(gelu(elements_take(gate + i, n, 0.0f)),
                                            elements_take(up + i, n, 0.0f))));
}

LANES_INLINE void geglu_backward_part(const coh_swiglu_row *row, int64_t i, int64_t count)
{
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes gate = elements_take((const element *)row->gate + i, count, 0.0f);
    const lanes up = elements_take((const element *)row->up + i, count, 0.0f);
    const lanes dgate = gelu_back(lanes_multiply(dy, up), gate);
    const lanes dup = lanes_multiply(dy, gelu(gate));
    if (row->dgate != NULL)
        elements_put((element *)row->dgate + i, count, dgate, row->dgate_adds);
    if (row->dup != NULL)
        elements_put((element *)row->dup + i, count, dup, row->dup_adds);
}

void ROW(geglu_backward)(const coh_swiglu_row *row)
{
    EACH_LANES(i, n, row->count, geglu_backward_part(row, i, n));
}
