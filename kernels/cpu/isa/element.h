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
#define elements_take halves_take
#define elements_give halves_give
#else
typedef float element;
#define elements_take lanes_take
#define elements_give lanes_give
#endif

/* to = a, or to += a with `adds`. */
LANES_INLINE void elements_put(element *to, int64_t count, lanes a, int adds)
{
    elements_give(to, count, adds ? lanes_add(elements_take(to, count, 0.0f), a) : a);
}

#endif
