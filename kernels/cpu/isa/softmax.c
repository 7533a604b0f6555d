/* Loops over rows of f32 scores: the running softmax, with the factor for earlier sums, and a
 * scale. Compiled once per instruction set. Next: kernels/cpu/rows.h (coh_row_softmax_exp). */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/lanes.h"

float ROW(softmax_exp)(float *row, int64_t count, float *max, float *sum)
{
    lanes largest = lanes_all(*max), total = lanes_all(0.0f);
    EACH_LANES(i, n, count, largest = lanes_larger(lanes_take(row + i, n, *max), largest));
    const float new_max = lanes_largest(largest), factor = shrink_by(*max, new_max);
    EACH_LANES(i, n, count, {
        const lanes p = lanes_exp_from(lanes_take(row + i, n, -INFINITY), new_max);
        total = lanes_add(total, p);
        lanes_give(row + i, n, p);
    });
    *sum = *sum * factor + lanes_sum(total);
    *max = new_max;
    return factor;
}

void ROW(scale)(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}
