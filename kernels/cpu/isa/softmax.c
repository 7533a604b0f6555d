/* Loops over rows of f32 scores: the running softmax, with the factor for earlier sums, and a
 * scale. Compiled once per instruction set. Next: kernels/cpu/rows.h (coh_row_softmax_exp). */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/running_softmax.h"

float ROW(softmax_exp)(float *row, int64_t count, float *max, float *sum)
{
    lanes largest = lanes_all(*max), total = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        largest = lanes_larger(lanes_load(row + i), largest);
    if (i < count)
        largest = lanes_larger(lanes_load_part(row + i, count - i, *max), largest);
    const float new_max = lanes_largest(largest), factor = shrink(*max, new_max);
    for (i = 0; i + COH_LANES <= count; i += COH_LANES) {
        lanes p = exp_from(lanes_load(row + i), new_max);
        total = lanes_add(total, p);
        lanes_store(row + i, p);
    }
    if (i < count) {
        lanes p = exp_from(lanes_load_part(row + i, count - i, -INFINITY), new_max);
        total = lanes_add(total, p);
        lanes_store_part(row + i, count - i, p);
    }
    *sum = *sum * factor + lanes_sum(total);
    *max = new_max;
    return factor;
}

void ROW(scale)(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}
