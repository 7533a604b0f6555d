#include "kernels/cpu/isa/isa.h"

#include <math.h>

#include "kernels/cpu/isa/gelu.h"
#include "kernels/cpu/isa/lanes.h"

/* Loops without sums are plain: any width the compiler chooses gives the same bits. */

void ROW(adamw)(const coh_adamw *step, float *restrict work, const float *restrict grad,
                float *restrict m, float *restrict v, int64_t count)
{
    const coh_adamw s = *step;
    const float rest1 = 1.0f - s.beta1, rest2 = 1.0f - s.beta2;
    for (int64_t i = 0; i < count; i++) {
        float g = s.scale * grad[i];
        float first = s.beta1 * m[i] + rest1 * g;
        float second = s.beta2 * v[i] + rest2 * (g * g);
        float direction = (first / s.bias1) / (sqrtf(second / s.bias2) + s.epsilon);
        m[i] = first;
        v[i] = second;
        work[i] -= s.rate * (direction + s.decay * work[i]);
    }
}

int ROW(all_finite)(const float *x, int64_t count)
{
    uint32_t broken = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        broken |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return broken == 0;
}

void ROW(add)(float *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}

void ROW(sum)(float *to, const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = a[i] + b[i];
}

void ROW(add_scaled)(float *restrict to, const float *restrict from, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

void ROW(scale)(float *x, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] *= factor;
}

void ROW(gelu)(float *y, const float *x, int64_t count)
{
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        lanes_store(y + i, gelu(lanes_load(x + i)));
    if (i < count)
        lanes_store_part(y + i, count - i, gelu(lanes_load_part(x + i, count - i, 0.0f)));
}

void ROW(gelu_backward)(float *dx, const float *dy, const float *x, int64_t count, int adds)
{
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES) {
        lanes slope = lanes_multiply(lanes_load(dy + i), gelu_slope(lanes_load(x + i)));
        lanes_store(dx + i, adds ? lanes_add(lanes_load(dx + i), slope) : slope);
    }
    int64_t rest = count - i;
    if (rest > 0) {
        lanes slope = lanes_multiply(lanes_load_part(dy + i, rest, 0.0f),
                                     gelu_slope(lanes_load_part(x + i, rest, 0.0f)));
        if (adds)
            slope = lanes_add(lanes_load_part(dx + i, rest, 0.0f), slope);
        lanes_store_part(dx + i, rest, slope);
    }
}
