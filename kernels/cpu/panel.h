/* panel.h - our own matrix product, one tile at a time (Goto and van de Geijn 2008).
 *
 *            b: one panel, packed, [words][columns of a panel]; in the second-level cache
 *            +--+
 *            |  |     a sum of a few rows and one panel's columns lives in registers while
 *            |  |     a's words, broadcast one by one, meet the rows of the panel
 *     a      |  |
 *   +------+ +--+     a word is 32 bits: one float, or two neighbours in depth where the processor
 *   |------| |##|     multiplies pairs of bf16 (AVX512_BF16). Without that, bf16 is widened when
 *   +------+ +--+     it is packed, and sums are those of floats.
 *
 * An element of c is one chain of sums: it begins with bias, residual or c and takes its products
 * in rising depth. So its bits depend on the depth alone, not on blocks or tiles (up to four rows
 * of x weight^T excepted: nothing is packed for them, and they are summed in sixteen lanes). avx2
 * and avx512 fuse multiplication and addition and agree; plain rounds twice. bf16 agrees on all
 * three, as the product of two bf16 is exact in f32. Pairs have bits of their own: vdpbf16ps adds
 * one product of a pair after the other, with a rounding each, and takes subnormals for zero. So
 * have the tiles of AMX: tdpbf16ps sums sixteen pairs, first and second elements apart, and adds
 * both sums to the chain.
 *
 * The depth is cut in equal blocks of at most COH_PANEL_WORDS words; between two of them the sums
 * stand in c, or beside it where c is bf16.
 *
 * Scratch is on the stack: 2 MiB at most (base/thread.h). */
#ifndef COH_KERNELS_CPU_PANEL_H
#define COH_KERNELS_CPU_PANEL_H

#include "kernels/cpu/tile.h"

/* A panel this deep takes 192 KiB with AVX-512; two or four of them stand in the second-level cache
 * while rows of a pass by. Tests derive from it the depths where a second block begins. */
#define COH_PANEL_WORDS 1536

/* x weight^T of up to so many rows of x is summed in lanes. */
#define COH_THIN_ROWS 4

typedef void coh_panel_run(const coh_tile *tile);

/* Tiles of f32 and bf16; _avx512bf16 and _avx512amx: of bf16. */
coh_panel_run coh_panel_run_plain;
#if defined(__x86_64__)
coh_panel_run coh_panel_run_avx2, coh_panel_run_avx512, coh_panel_run_avx512bf16;
coh_panel_run coh_panel_run_avx512amx;
#endif

/* The product of an instruction set by name ("plain", "avx2", "avx512", "avx512bf16", "avx512amx");
 * NULL if it is unknown, this CPU or its system lacks it, or it does not take this element type. */
coh_panel_run *coh_panel_run_of(const char *isa, coh_dtype dtype);

#endif
