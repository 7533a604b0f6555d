/* quantise.h - f32 in fewer bits and back: building blocks of optimizer states that take less
 * memory. No format of states uses them yet: today a state is f32, and a bf16 parameter's master is
 * split in two (kernels.h).
 *
 *    stochastic_round   f32 -> bf16                         2 bytes an element
 *    quantise           f32 -> signed bytes, block scales   1 byte, and 4 for each block
 *    dequantise         back
 *
 * Every element has a number: its index in its tensor, not in the piece of one call. Random bits
 * are a function of seed, step, tensor, use and that number; blocks are cut from the tensor's
 * start. So the bits are the same for any pieces, threads and grids, on every instruction set, and
 * on the host and CUDA alike. Queues: kernels/table.h. */
#ifndef COH_KERNELS_QUANTISE_H
#define COH_KERNELS_QUANTISE_H

#include <stdint.h>

#include "kernels/random.h"

/* The source of a rounding's random bits. An element takes 16 of them: the half of its number
 * (kernels/random.h) in the stream of `tensor` and `use`. Two independent roundings of a step must
 * differ in one of the two. */
typedef struct coh_rounding {
    /* In the memory of the computing device, read only there. Its step is the one that counts: for
     * a deferred update, the step that was latched for it (memory/cells.h). NULL: to nearest, ties
     * to even. */
    const coh_random_cell *cell;
    int32_t tensor;
    int32_t use; /* >= 0 */
} coh_rounding;

/* Returns the rounding's micro-batch in its stream. It is negative, so no kind's call uses the same
 * stream. */
static inline int32_t coh_rounding_microbatch(const coh_rounding *rounding)
{
    return -1 - rounding->use;
}

/* y [count] = x as bf16, rounded to one of its two neighbours: away from zero with a probability
 * equal to the fraction of the gap below x, so that the mean is x (Croci, Fasi, Higham, Mary and
 * Mikaitis 2022). In bits: the half is added to the lower 16 of the float, which are then
 * discarded. Representable values are unchanged, infinity and -0 too; subnormals are rounded like
 * others. Values beyond the largest bf16 become the largest, because a mean that includes infinity
 * is infinite. A NaN becomes quiet and keeps its sign and upper payload. rounding.cell must not be
 * NULL: coh_kernel_round rounds to nearest. */
typedef struct coh_stochastic_round {
    int64_t count;
    uint64_t first; /* number of x[0] */
    coh_rounding rounding;
    const float *x;
    uint16_t *y;
} coh_stochastic_round;
void coh_kernel_stochastic_round(void *queue, const coh_stochastic_round *round);

/* Elements of a block. Dettmers, Lewis, Shleifer and Zettlemoyer 2022 ("8-bit optimizers via
 * block-wise quantization"): with a scale per block, an outlier costs bits only in its block, and
 * the largest element of a block has no error. They use 2048 elements and codes that are finer near
 * zero; evenly spaced codes, which need no table, need shorter blocks. A block is 128 here: 512
 * bytes, a warp's one load, 8.25 bits an element, 128 blocks a grain. */
#define COH_QUANTISE_BLOCK 128

/* For each block of x [count]: scale = the largest |x|, code = 127 x / scale, rounded to an
 * integer: to nearest, ties to even, or stochastically, up with a probability equal to the fraction
 * (to 2^-17). Codes are -127..127; the largest element is exact. A block of zeros has scale 0; one
 * with a NaN or an infinity has scale NaN; codes of either are 0. */
typedef struct coh_quantise {
    int64_t count;
    uint64_t first; /* number of x[0]: a multiple of COH_QUANTISE_BLOCK */
    coh_rounding rounding;
    const float *x;
    int8_t *codes; /* [count] */
    float *scales; /* [count / COH_QUANTISE_BLOCK, rounded up] */
} coh_quantise;
void coh_kernel_quantise(void *queue, const coh_quantise *quantise);

/* y [count] = code / 127 * scale. Its error is at most scale / 254 after rounding to nearest, scale
 * / 127 after stochastic rounding, plus two float roundings. A block that was not finite gives NaN.
 * Quantising the result again to nearest gives the same codes and scale. */
typedef struct coh_dequantise {
    int64_t count; /* starts at the start of a block */
    const int8_t *codes;
    const float *scales;
    float *y;
} coh_dequantise;
void coh_kernel_dequantise(void *queue, const coh_dequantise *dequantise);

#endif
