/* panel.h - our own matrix product, one tile at a time (Goto and van de Geijn 2008).
 *
 *           b: one panel, packed, [words][columns of a panel]; in the second-level cache
 *           +--+
 *           |  |     a sum of a few rows and one panel's columns lives in registers while
 *           |  |     a's words, broadcast one by one, meet the rows of the panel
 *    a      |  |
 *  +------+ +--+     a word is 32 bits: one float, or two neighbours in depth if the processor
 *  |------| |##|     multiplies pairs of bf16 (AVX512_BF16). Otherwise bf16 is widened when
 *  +------+ +--+     it is packed, and the sums are those of floats.
 *
 * An element of c is one chain of sums: it begins with bias, residual or c and adds its products in
 * order of depth. So its bits depend only on the depth, not on blocks or tiles. The exception is up
 * to four rows of x weight^T: nothing is packed for them, and they are summed in sixteen lanes.
 * avx2 and avx512 fuse multiplication and addition and agree; plain rounds twice. bf16 agrees on
 * all three, because the product of two bf16 is exact in f32. Pairs give different bits: vdpbf16ps
 * adds one product of a pair after the other, with a rounding each, and treats subnormals as zero.
 * So do the tiles of AMX: tdpbf16ps sums sixteen pairs, first and second elements separately, and
 * adds both sums to the chain.
 *
 * The depth is cut into equal blocks of at most COH_PANEL_WORDS words. Between two of them the sums
 * are stored in c, or in a separate buffer if c is bf16.
 *
 * Scratch is on the stack: 2 MiB at most (base/thread.h). */
#ifndef COH_KERNELS_CPU_PANEL_H
#define COH_KERNELS_CPU_PANEL_H

#include "kernels/cpu/tile.h"

/* A panel this deep takes 192 KiB with AVX-512; two or four of them stay in the second-level cache
 * while rows of a pass through. Tests derive from it the depths at which a second block begins. */
#define COH_PANEL_WORDS 1536

/* x weight^T of up to this many rows of x is summed in lanes. */
#define COH_THIN_ROWS 4

typedef void coh_panel_run(const coh_tile *tile);

/* Run a tile: of f32 and bf16; _avx512bf16 and _avx512amx: only of bf16. */
coh_panel_run coh_panel_run_plain;
#if defined(__x86_64__)
coh_panel_run coh_panel_run_avx2, coh_panel_run_avx512, coh_panel_run_avx512bf16;
coh_panel_run coh_panel_run_avx512amx;
#endif

/* Returns the product of an instruction set by name ("plain", "avx2", "avx512", "avx512bf16",
 * "avx512amx"); NULL if it is unknown, this CPU or its system lacks it, or it does not support this
 * element type. */
coh_panel_run *coh_panel_run_of(const char *isa, coh_dtype dtype);

#endif
