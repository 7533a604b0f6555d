/* activation.h - gelu and relu and their gradients, sixteen floats at a time. The activation loops
 * and the products that end in an activation use them, so both give the same bits.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_ACTIVATION_H
#define COH_KERNELS_CPU_ISA_ACTIVATION_H

#include "kernels/cpu/isa/lanes.h"

/* 0.5 (1 + tanh u) = 1 / (1 + e^-2u): one exponential, and no cancellation where gelu is tiny. x is
 * clamped to +-9.98, where |2u| is 86.9, the limit of the exponential. Beyond, the quotient is 1,
 * or below 2e-38. */
#define GELU_ROOT 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715f
#define GELU_HOLD 9.98f

LANES_INLINE vector gelu_hold(vector x)
{
    return vector_larger(vector_all(-GELU_HOLD), vector_smaller(vector_all(GELU_HOLD), x));
}

/* e^-2u */
LANES_INLINE vector gelu_decay(vector held)
{
    const vector first = vector_all(-2.0f * GELU_ROOT);
    const vector third = vector_all(-2.0f * GELU_ROOT * GELU_CUBE);
    return vector_exp_within(held * (first + third * (held * held)));
}

LANES_INLINE lanes gelu(lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = x.part[k] / (vector_all(1.0f) + gelu_decay(gelu_hold(x.part[k])));
    return x;
}

/* dy times the slope at x. With s = 1 / (1 + e^-2u): d/dx x s = s + x s (1 - s) 2 u', 2u' = root (2
 * + 6 cube x^2). 1 - s is computed as e^-2u s, which does not cancel. */
LANES_INLINE lanes gelu_back(lanes dy, lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        vector held = gelu_hold(x.part[k]), decay = gelu_decay(held);
        vector s = vector_all(1.0f) / (vector_all(1.0f) + decay);
        vector twice_slope =
            vector_all(2.0f * GELU_ROOT) + vector_all(6.0f * GELU_ROOT * GELU_CUBE) * (held * held);
        x.part[k] = s + held * (s * (decay * s)) * twice_slope;
    }
    return lanes_multiply(dy, x);
}

/* max(x, 0): NaN stays NaN. */
LANES_INLINE lanes relu(lanes x)
{
    return lanes_larger(lanes_all(0.0f), x);
}

/* dy where relu gave y above 0, else 0. */
LANES_INLINE lanes relu_back(lanes dy, lanes y)
{
    for (int k = 0; k < COH_VECTORS; k++)
        dy.part[k] = vector_select((vector_bits)(y.part[k] > vector_all(0.0f)), dy.part[k],
                                   vector_all(0.0f));
    return dy;
}

#endif
