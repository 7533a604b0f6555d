/* Softmax loops over rows of logits in the model's element type, for the classifier. Compiled once
 * per instruction set and element type. Next: kernels/cpu/rows.h (softmax_take, softmax_again). */
#include "kernels/cpu/isa/element.h"

#include "kernels/cpu/isa/running_softmax.h"

void ROW(softmax_take)(const void *logits, int64_t count, float *max, float *sum)
{
    const element *row = logits;
    lanes largest = lanes_all(*max), total = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        largest = lanes_larger(elements_load(row + i), largest);
    if (i < count)
        largest = lanes_larger(elements_load_part(row + i, count - i, *max), largest);
    const float new_max = lanes_largest(largest);
    for (i = 0; i + COH_LANES <= count; i += COH_LANES)
        total = lanes_add(total, exp_from(elements_load(row + i), new_max));
    if (i < count)
        total =
            lanes_add(total, exp_from(elements_load_part(row + i, count - i, -INFINITY), new_max));
    *sum = *sum * shrink(*max, new_max) + lanes_sum(total);
    *max = new_max;
}

void ROW(softmax_again)(void *logits, int64_t count, float shift, float factor)
{
    element *row = logits;
    const lanes factors = lanes_all(factor);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        elements_store(row + i, lanes_multiply(factors, exp_from(elements_load(row + i), shift)));
    if (i < count) {
        const int64_t rest = count - i;
        lanes p = exp_from(elements_load_part(row + i, rest, 0.0f), shift);
        elements_store_part(row + i, rest, lanes_multiply(factors, p));
    }
}
