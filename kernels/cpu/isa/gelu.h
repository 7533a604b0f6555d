/* gelu.h - gelu and its slope, sixteen floats at a time: the kernels of that name and the products
 * that end in a gelu give the same bits.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_GELU_H
#define COH_KERNELS_CPU_ISA_GELU_H

#include "kernels/cpu/isa/lanes.h"

/* 0.5 (1 + tanh u) = 1 / (1 + e^-2u): one exponential, and no cancellation where gelu is tiny.
 * Outside +-30 the quotient is 0 or 1 in float; x is held there so that x^3 cannot overflow. */
#define GELU_ROOT 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715f

LANES_INLINE vector gelu_hold(vector x)
{
    const vector bound = vector_all(30.0f);
    x = vector_select((vector_bits)(x > bound), bound, x);
    return vector_select((vector_bits)(x < -bound), -bound, x);
}

/* e^-2u, at most e^88 */
LANES_INLINE vector gelu_decay(vector held)
{
    vector u = held * (vector_all(GELU_ROOT) + vector_all(GELU_ROOT * GELU_CUBE) * (held * held));
    return vector_exp(vector_all(-2.0f) * u);
}

LANES_INLINE lanes gelu(lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = x.part[k] / (vector_all(1.0f) + gelu_decay(gelu_hold(x.part[k])));
    return x;
}

/* With s = 1 / (1 + e^-2u): d/dx x s = s + x s (1 - s) 2 u', 2u' = root (2 + 6 cube x^2), and 1 - s
 * as e^-2u s, which does not cancel. */
LANES_INLINE lanes gelu_slope(lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        vector held = gelu_hold(x.part[k]), decay = gelu_decay(held);
        vector s = vector_all(1.0f) / (vector_all(1.0f) + decay);
        vector twice_slope =
            vector_all(2.0f * GELU_ROOT) + vector_all(6.0f * GELU_ROOT * GELU_CUBE) * (held * held);
        x.part[k] = s + held * (s * (decay * s)) * twice_slope;
    }
    return x;
}

#endif
