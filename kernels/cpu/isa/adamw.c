#include "kernels/cpu/isa/isa.h"

#include <math.h>

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
