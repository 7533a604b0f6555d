/* isa.h - names of the inner loops of the instruction set this file is compiled for: COH_ISA is
 * plain, avx2 or avx512, and ROW(dot) is coh_row_dot_avx2. */
#ifndef COH_KERNELS_CPU_ISA_ISA_H
#define COH_KERNELS_CPU_ISA_ISA_H

#include "kernels/cpu/rows.h"

#define COH_ISA_JOIN(name, isa)   name##_##isa
#define COH_ISA_EXPAND(name, isa) COH_ISA_JOIN(name, isa)
#define ROW(name)                 COH_ISA_EXPAND(coh_row_##name, COH_ISA)

#define COH_ISA_DECLARE(name) coh_row_##name ROW(name);
COH_ROW_LIST(COH_ISA_DECLARE)
#undef COH_ISA_DECLARE

#endif
