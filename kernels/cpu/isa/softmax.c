#include "kernels/cpu/isa/isa.h"

#include <math.h>

#include "kernels/cpu/isa/lanes.h"

static float row_max(const float *row, int64_t count, float start)
{
    lanes largest = lanes_all(start);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        largest = lanes_larger(lanes_load(row + i), largest);
    if (i < count)
        largest = lanes_larger(lanes_load_part(row + i, count - i, start), largest);
    return lanes_largest(largest);
}

static float exp_one(float x)
{
    return vector_exp(vector_all(x))[0];
}

/* exp(old - now), also when nothing came before. */
static float shrink(float old_max, float max)
{
    return old_max == -INFINITY ? 0.0f : exp_one(old_max - max);
}

LANES_INLINE lanes exp_of(const float *row, int64_t count, float max)
{
    lanes score = lanes_load_part(row, count, -INFINITY);
    return lanes_exp(lanes_subtract(score, lanes_all(max)));
}

void ROW(softmax_take)(const float *row, int64_t count, float *max, float *sum)
{
    const float new_max = row_max(row, count, *max);
    lanes total = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        total = lanes_add(total, exp_of(row + i, COH_LANES, new_max));
    if (i < count)
        total = lanes_add(total, exp_of(row + i, count - i, new_max));
    *sum = *sum * shrink(*max, new_max) + lanes_sum(total);
    *max = new_max;
}

float ROW(softmax_exp)(float *row, int64_t count, float *max, float *sum)
{
    const float new_max = row_max(row, count, *max), factor = shrink(*max, new_max);
    lanes total = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES) {
        lanes p = exp_of(row + i, COH_LANES, new_max);
        total = lanes_add(total, p);
        lanes_store(row + i, p);
    }
    if (i < count) {
        lanes p = exp_of(row + i, count - i, new_max);
        total = lanes_add(total, p);
        lanes_store_part(row + i, count - i, p);
    }
    *sum = *sum * factor + lanes_sum(total);
    *max = new_max;
    return factor;
}

void ROW(softmax_again)(float *row, int64_t count, float shift, float factor)
{
    const lanes factors = lanes_all(factor);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        lanes_store(row + i, lanes_multiply(factors, exp_of(row + i, COH_LANES, shift)));
    if (i < count)
        lanes_store_part(row + i, count - i,
                         lanes_multiply(factors, exp_of(row + i, count - i, shift)));
}

LANES_INLINE void backward_part(float *score, float *gradient, int64_t count, float shift,
                                lanes mean_gradient, lanes scale)
{
    lanes p = exp_of(score, count, shift);
    lanes away = lanes_subtract(lanes_load_part(gradient, count, 0.0f), mean_gradient);
    lanes_store_part(score, count, p);
    lanes_store_part(gradient, count, lanes_multiply(scale, lanes_multiply(p, away)));
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
