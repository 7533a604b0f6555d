/* swiglu.h - x / (1 + e^-x) and its slope, sixteen floats at a time.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_SWIGLU_H
#define COH_KERNELS_CPU_ISA_SWIGLU_H

#include "kernels/cpu/isa/lanes.h"

/* Limit of the exponential. Below -87 the quotient stays x / (1 + e^87), 1e-38 of x. */
#define SWIGLU_HOLD 87.0f

typedef struct swish {
    vector held, decay, gate; /* x clamped, e^-x, 1 / (1 + e^-x) */
} swish;

LANES_INLINE swish swish_of(vector x)
{
    swish s = { .held = vector_larger(vector_all(-SWIGLU_HOLD),
                                      vector_smaller(vector_all(SWIGLU_HOLD), x)) };
    s.decay = vector_exp_within(vector_all(0.0f) - s.held);
    s.gate = vector_all(1.0f) / (vector_all(1.0f) + s.decay);
    return s;
}

/* Slope s + x s (1 - s); 1 - s is computed as e^-x s, which does not cancel. */
LANES_INLINE vector swish_slope(swish s)
{
    return s.gate + s.held * (s.gate * (s.decay * s.gate));
}

#endif
