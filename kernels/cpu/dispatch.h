/* dispatch.h - which inner loops and which matrix product this process uses, chosen once.
 *
 *     COH_ISA=plain|avx2|avx512|avx512bf16|bf16-pretended
 *                             the highest instruction set to use (default: the CPU's, which may be
 *                             AVX-512 that also multiplies bf16, by pairs or by AMX's tiles);
 *                             avx512bf16: pairs, no AMX; bf16-pretended: a test setting, as
 *                             avx512 where the processor has it, but with bf16 as the default
 *                             dtype and priced as if the processor multiplied it
 *     COH_PLAIN_MATMUL=1      matrix products by our own panels in plain C
 *
 * They change speed and the bits of matrix products and attention, so coh_kernel_path and with it
 * the numeric plan name what was chosen.
 *
 * Threads: all of it may be called from any thread; the first call chooses. */
#ifndef COH_KERNELS_CPU_DISPATCH_H
#define COH_KERNELS_CPU_DISPATCH_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/tile.h"

extern const coh_rows coh_rows_plain_f32, coh_rows_plain_bf16;
#if defined(__x86_64__)
extern const coh_rows coh_rows_avx2_f32, coh_rows_avx2_bf16;
extern const coh_rows coh_rows_avx512_f32, coh_rows_avx512_bf16;
#endif

/* The table in use for tensors of this element type: f32 or bf16. */
const coh_rows *coh_rows_for(coh_dtype dtype);

/* The one for f32: what works on scratch. */
const coh_rows *coh_rows_get(void);

/* The table of an instruction set by name; NULL if it is unknown or this CPU
 * lacks it. For tests. */
const coh_rows *coh_rows_of(const char *name, coh_dtype dtype);

#endif
