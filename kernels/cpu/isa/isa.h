/* isa.h - names of the inner loops for the instruction set and element type of this compilation.
 * COH_ISA is plain, avx2 or avx512, COH_ELEMENT is f32 or bf16; ROW(dot) is then, for example,
 * coh_row_dot_avx2_bf16. Files for f32 only are compiled without COH_ELEMENT: there ROW(scale) is
 * coh_row_scale_avx2. */
#ifndef COH_KERNELS_CPU_ISA_ISA_H
#define COH_KERNELS_CPU_ISA_ISA_H

#include "kernels/cpu/rows.h"

#define COH_ISA_JOIN(name, isa)   name##_##isa
#define COH_ISA_EXPAND(name, isa) COH_ISA_JOIN(name, isa)
#define FLOAT_ROW(name)           COH_ISA_EXPAND(coh_row_##name, COH_ISA)

#define COH_ISA_DECLARE(name) coh_row_##name FLOAT_ROW(name);
COH_FLOAT_ROW_LIST(COH_ISA_DECLARE)
#undef COH_ISA_DECLARE

#if defined(COH_ELEMENT)
#define ROW(name) COH_ISA_EXPAND(FLOAT_ROW(name), COH_ELEMENT)

#define COH_ISA_DECLARE(name) coh_row_##name ROW(name);
COH_ROW_LIST(COH_ISA_DECLARE)
#undef COH_ISA_DECLARE
#else
#define ROW(name) FLOAT_ROW(name)
#endif

#endif
