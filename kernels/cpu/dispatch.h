/* dispatch.h - selects the inner loops and the matrix product of this process, once.
 *
 *    COH_ISA=plain|avx2|avx512|avx512bf16|bf16-pretended
 *                            the highest instruction set to use (default: the CPU's, which may be
 *                            AVX-512 with bf16 products, by pairs or by AMX's tiles);
 *                            avx512bf16: pairs, no AMX; bf16-pretended: a test setting, as
 *                            avx512 if the processor has it, but with bf16 as the default
 *                            dtype and priced as if the processor had bf16 products
 *    COH_PLAIN_MATMUL=1      matrix products by our own panels in plain C
 *
 * Both change speed and the bits of matrix products and attention. So coh_kernel_path, and with it
 * the numeric plan, names the selection.
 *
 * Threads: any, for all functions; the first call selects. */
#ifndef COH_KERNELS_CPU_DISPATCH_H
#define COH_KERNELS_CPU_DISPATCH_H

#include "kernels/cpu/rows.h"
#include "kernels/cpu/tile.h"

extern const coh_rows coh_rows_plain_f32, coh_rows_plain_bf16;
#if defined(__x86_64__)
extern const coh_rows coh_rows_avx2_f32, coh_rows_avx2_bf16;
extern const coh_rows coh_rows_avx512_f32, coh_rows_avx512_bf16;
#endif

/* Returns the table in use for tensors of this element type: f32 or bf16. */
const coh_rows *coh_rows_for(coh_dtype dtype);

/* Returns the table for f32, which works on scratch. */
const coh_rows *coh_rows_get(void);

/* Returns the table of an instruction set by name; NULL if it is unknown or this CPU lacks it. For
 * tests. */
const coh_rows *coh_rows_of(const char *name, coh_dtype dtype);

#endif
