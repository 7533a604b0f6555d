/* element.h - a row of the element type this file is compiled for, sixteen elements at a time, as
 * lanes of floats.
 *
 * bf16 is the upper half of a float, so widening is a shift and exact. Storing rounds to nearest,
 * ties to even, in integer arithmetic (subnormals kept, overflow gives infinity, NaN stays a quiet
 * NaN), so that every instruction set gives the same bits: vcvtneps2bf16 would flush subnormals. */
#ifndef COH_KERNELS_CPU_ISA_ELEMENT_H
#define COH_KERNELS_CPU_ISA_ELEMENT_H

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/lanes.h"

#define COH_ELEMENT_IS_f32  0
#define COH_ELEMENT_IS_bf16 1
#define COH_ELEMENT_IS_BF16 COH_ISA_EXPAND(COH_ELEMENT_IS, COH_ELEMENT)

#if COH_ELEMENT_IS_BF16
typedef uint16_t element;

LANES_INLINE lanes elements_load(const element *from)
{
    return lanes_widen(from);
}

LANES_INLINE void elements_store(element *to, lanes a)
{
    lanes_narrow(to, a);
}
#else
typedef float element;

LANES_INLINE lanes elements_load(const element *from)
{
    return lanes_load(from);
}

LANES_INLINE void elements_store(element *to, lanes a)
{
    lanes_store(to, a);
}
#endif

/* Loads the last `count` < 16 elements of a row; the other lanes hold `fill`. */
LANES_INLINE lanes elements_load_part(const element *from, int64_t count, float fill)
{
    element padded[COH_LANES] = { 0 };
    memcpy(padded, from, (size_t)count * sizeof(element));
    return lanes_keep(elements_load(padded), count, fill);
}

LANES_INLINE void elements_store_part(element *to, int64_t count, lanes a)
{
    element padded[COH_LANES];
    elements_store(padded, a);
    memcpy(to, padded, (size_t)count * sizeof(element));
}

/* Loads sixteen elements, or the first `count` < 16. Loops call it with a constant COH_LANES for
 * full vectors and once for the rest, so that the compiler removes the branch. */
LANES_INLINE lanes elements_take(const element *from, int64_t count, float fill)
{
    return count == COH_LANES ? elements_load(from) : elements_load_part(from, count, fill);
}

LANES_INLINE void elements_give(element *to, int64_t count, lanes a)
{
    if (count == COH_LANES)
        elements_store(to, a);
    else
        elements_store_part(to, count, a);
}

#endif
