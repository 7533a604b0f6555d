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

LANES_INLINE void backward_part(float *score, float *gradient, int64_t count, float shift,
                                lanes mean_gradient, lanes scale)
{
    const int whole = count == COH_LANES;
    lanes p = exp_from(whole ? lanes_load(score) : lanes_load_part(score, count, 0.0f), shift);
    lanes away = lanes_subtract(
        whole ? lanes_load(gradient) : lanes_load_part(gradient, count, 0.0f), mean_gradient);
    away = lanes_multiply(scale, lanes_multiply(p, away));
    if (whole) {
        lanes_store(score, p);
        lanes_store(gradient, away);
    } else {
        lanes_store_part(score, count, p);
        lanes_store_part(gradient, count, away);
    }
}

void ROW(softmax_backward)(float *score, float *gradient, int64_t count, float shift,
                           float mean_gradient, float scale)
{
    const lanes mean_gradients = lanes_all(mean_gradient), scales = lanes_all(scale);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        backward_part(score + i, gradient + i, COH_LANES, shift, mean_gradients, scales);
    if (i < count)
        backward_part(score + i, gradient + i, count - i, shift, mean_gradients, scales);
}

void ROW(scale)(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}
