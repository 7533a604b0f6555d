/* Softmax and soft cap over rows of logits in the model's element type, for the classifier.
 * Compiled once per instruction set and element type. Next: kernels/cpu/rows.h (softmax_take,
 * soft_cap). */
#include "kernels/cpu/isa/element.h"

void ROW(softmax_take)(const void *logits, int64_t count, float *max, float *sum)
{
    const element *row = logits;
    lanes largest = lanes_all(*max), total = lanes_all(0.0f);
    EACH_LANES(i, n, count, largest = lanes_larger(elements_take(row + i, n, *max), largest));
    const float new_max = lanes_largest(largest);
    EACH_LANES(i, n, count,
               total =
                   lanes_add(total, lanes_exp_from(elements_take(row + i, n, -INFINITY), new_max)));
    *sum = *sum * shrink_by(*max, new_max) + lanes_sum(total);
    *max = new_max;
}

void ROW(softmax_again)(void *logits, int64_t count, float shift, float factor)
{
    element *row = logits;
    const lanes factors = lanes_all(factor);
    EACH_LANES(i, n, count,
               elements_give(row + i, n,
                             lanes_multiply(
                                 factors, lanes_exp_from(elements_take(row + i, n, 0.0f), shift))));
}

LANES_INLINE lanes lanes_capped(lanes x, vector to_cap, vector cap)
{
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = cap * vector_tanh(x.part[k] * to_cap);
    return x;
}

void ROW(soft_cap)(float *to, const void *from, int64_t count, float cap)
{
    const element *row = from;
    const vector caps = vector_all(cap), to_cap = vector_all(1.0f / cap);
    EACH_LANES(i, n, count,
               lanes_give(to + i, n, lanes_capped(elements_take(row + i, n, 0.0f), to_cap, caps)));
}

LANES_INLINE lanes lanes_slope(lanes gradient, lanes capped, vector to_cap)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        const vector t = capped.part[k] * to_cap;
        gradient.part[k] = gradient.part[k] * (vector_all(1.0f) - t * t);
    }
    return gradient;
}

void ROW(soft_cap_back)(void *to, const float *gradient, const float *capped, int64_t count,
                        float cap)
{
    element *row = to;
    const vector to_cap = vector_all(1.0f / cap);
    EACH_LANES(i, n, count,
               elements_give(row + i, n,
                             lanes_slope(lanes_take(gradient + i, n, 0.0f),
                                         lanes_take(capped + i, n, 0.0f), to_cap)));
}
