/* quantise.h - f32 in fewer bits and back: what states of an optimizer that take less memory are
 * made of. No format of states uses them yet: today a state is f32, and a bf16 parameter's master
 * is split in two (kernels.h).
 *
 *     stochastic_round   f32 -> bf16                         2 bytes an element
 *     quantise           f32 -> signed bytes, block scales   1 byte, and 4 for each block
 *     dequantise         back
 *
 * Every element has a number: its place in its tensor, not in the piece a call is given. Random
 * bits are a function of seed, step, tensor, use and that number; blocks are cut from the tensor's
 * start. So the bits are the same for any pieces, threads and grids, on every instruction set, and
 * on the host and CUDA alike. Queues: kernels/table.h. */
#ifndef COH_KERNELS_QUANTISE_H
#define COH_KERNELS_QUANTISE_H

#include <stdint.h>

#include "kernels/random.h"

/* Whose random bits a rounding takes. An element takes 16 of them: the half of its number
 * (kernels/random.h) in the stream of `tensor` and `use`. Two roundings of a step that are not to
 * go the same way differ in one of the two. */
typedef struct coh_rounding {
    /* Of the device that computes, read only there: whose step counts, so of an update that is put
     * off what was latched for it (memory/cells.h). NULL: to nearest, ties to even. */
    const coh_random_cell *cell;
    int32_t tensor;
    int32_t use; /* >= 0 */
} coh_rounding;

/* Its stream: no micro-batch has a number below 0, so no kind's call draws of it. */
static inline int32_t coh_rounding_microbatch(const coh_rounding *rounding)
{
    return -1 - rounding->use;
}

/* y [count] = x as bf16, rounded to one of the two that x stands between: away from zero with the
 * share of the gap that lies below x, so that the mean is x (Croci, Fasi, Higham, Mary and Mikaitis
 * 2022). In bits: the half is added to the lower 16 of the float, which are then cut off. What is
 * representable stays as it is, infinity and -0 too; subnormals are rounded like others. What is
 * beyond the largest bf16 becomes that: a mean of which infinity is part is infinite. A NaN stays
 * one, made quiet, with its sign and upper payload.
 * rounding.cell is not NULL: coh_kernel_round rounds to nearest. */
typedef struct coh_stochastic_round {
    int64_t count;
    uint64_t first; /* number of x[0] */
    coh_rounding rounding;
    const float *x;
    uint16_t *y;
} coh_stochastic_round;
void coh_kernel_stochastic_round(void *queue, const coh_stochastic_round *round);

/* Elements of a block. Dettmers, Lewis, Shleifer and Zettlemoyer 2022 ("8-bit optimizers via
 * block-wise quantization"): a scale for each block keeps an outlier from costing more than its
 * block its bits, and the largest element of a block no error at all. They take 2048 elements and
 * codes that are finer near zero; evenly spaced codes, which need no table, want shorter blocks. A
 * block is 128 here: 512 bytes, a warp's one load, 8.25 bits an element, 128 blocks a grain. */
#define COH_QUANTISE_BLOCK 128

/* For each block of x [count]: scale = the largest |x|, code = 127 x / scale, rounded to a whole
 * number: to nearest, ties to even, or stochastically, up with the share of the unit that lies
 * below (to 2^-17). Codes are -127..127; the largest element is exact. A block of zeros has scale
 * 0; one with a NaN or an infinity has scale NaN; codes of either are 0. */
typedef struct coh_quantise {
    int64_t count;
    uint64_t first; /* number of x[0]: a multiple of COH_QUANTISE_BLOCK, so each block is whole but
                     * for a tensor's last */
    coh_rounding rounding;
    const float *x;
    int8_t *codes; /* [count] */
    float *scales; /* [count / COH_QUANTISE_BLOCK, rounded up] */
} coh_quantise;
void coh_kernel_quantise(void *queue, const coh_quantise *quantise);

/* y [count] = code / 127 * scale: within scale / 254 of what was rounded to nearest, scale / 127 of
 * what was rounded stochastically, beside two roundings; of a block that was not finite NaN. What
 * is quantised again to nearest has the same codes and scale. */
typedef struct coh_dequantise {
    int64_t count; /* begins with a block */
    const int8_t *codes;
    const float *scales;
    float *y;
} coh_dequantise;
void coh_kernel_dequantise(void *queue, const coh_dequantise *dequantise);

#endif
