/* Softmax loops over rows of logits in the model's element type, for the classifier. Compiled once
 * per instruction set and element type. Next: kernels/cpu/rows.h (softmax_take, softmax_again). */
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
