/* relu.h - max(x, 0), sixteen floats at a time: NaN stays NaN.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_RELU_H
#define COH_KERNELS_CPU_ISA_RELU_H

#include "kernels/cpu/isa/lanes.h"

LANES_INLINE lanes relu(lanes x)
{
    return lanes_larger(lanes_all(0.0f), x);
}

/* a where relu gave y above 0, else 0. */
LANES_INLINE lanes relu_keep(lanes a, lanes y)
{
    for (int k = 0; k < COH_VECTORS; k++)
        a.part[k] =
            vector_select((vector_bits)(y.part[k] > vector_all(0.0f)), a.part[k], vector_all(0.0f));
    return a;
}

#endif
