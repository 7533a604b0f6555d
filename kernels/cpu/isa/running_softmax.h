/* running_softmax.h - shared by the loops over scores: exponentials relative to a maximum, and the
 * factor by which sums shrink when the maximum rises. */
#ifndef COH_KERNELS_CPU_ISA_RUNNING_SOFTMAX_H
#define COH_KERNELS_CPU_ISA_RUNNING_SOFTMAX_H

#include <math.h>

#include "kernels/cpu/isa/lanes.h"

LANES_INLINE lanes exp_from(lanes score, float max)
{
    return lanes_exp(lanes_subtract(score, lanes_all(max)));
}

/* Returns exp(old - new); 0 if there is no old maximum yet. */
LANES_INLINE float shrink(float old_max, float max)
{
    return old_max == -INFINITY ? 0.0f : vector_exp(vector_all(old_max - max))[0];
}

#endif
