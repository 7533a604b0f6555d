/* quantise.h - f32 in fewer bits and back: building blocks of optimizer states that take less
 * memory. Of the library's optimizers adamw8 and adamw8sr use the codes for moments, at the end;
 * the work of adamw8sr is rounded stochastically.
 *
 *    stochastic_round   f32 -> bf16                         2 bytes an element
 *    quantise           f32 -> signed bytes, block scales   1 byte, and 4 for each block
 *    dequantise         back
 *
 * Every element has a number: its index in its tensor, not in the piece of one call. Random bits
 * are a function of seed, step, tensor, use and that number; blocks are cut from the tensor's
 * start. So the bits are the same for any pieces and threads, and on every instruction set. These
 * functions are the host's alone, with a pool or NULL as queue: on CUDA, kernels that need this
 * have it in them (wire.cu, adamw8.cu), with the same bits. */
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

/* The uses of tensor 0 in a step's updates, whose elements are numbered through all parameters. */
enum { COH_ROUNDING_OF_MOMENTS, COH_ROUNDING_OF_WORK };

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
void coh_cpu_stochastic_round(void *queue, const coh_stochastic_round *round);

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
void coh_cpu_quantise(void *queue, const coh_quantise *quantise);

/* y [count] = code / 127 * scale. Its error is at most scale / 254 after rounding to nearest, scale
 * / 127 after stochastic rounding, plus two float roundings. A block that was not finite gives NaN.
 * Quantising the result again to nearest gives the same codes and scale. */
typedef struct coh_dequantise {
    int64_t count; /* starts at the start of a block */
    const int8_t *codes;
    const float *scales;
    float *y;
} coh_dequantise;
void coh_cpu_dequantise(void *queue, const coh_dequantise *dequantise);

/* ---- moments in one byte: the states of adamw8 ----
 *
 * The codes of COH_QUANTISE_BLOCK moments share a scale, which is a power of two:
 *
 *     v    4 bits E of exponent, 4 bits M of mantissa
 *          (1 + M / 16) 2^(E - 15) scale if E > 0,  M / 16 2^-14 scale if E = 0
 *     m    sign and level, -127 to 127
 *          level / 64 scale unit,  unit = 2^k with 4^k <= v < 4^(k + 1)  (2^-64 if v = 0)
 *
 * where m's unit is that of the v which is stored: its root, to within a factor of 2. Each scale is
 * the least power of two, from 2^-87 on, for which all moments of the block have a code.
 *
 * Storing m and v as m' and v' changes every element by at most
 *
 *     |v' - v| <= max(v / 16, 2^-18 scale);  v' > 0 if v > 0
 *     |m' - m| <= sqrt(v') max(Q / 31, 2^-93), where Q is the block's largest |m| / sqrt(v')
 *
 * which is the distance of two codes: 2^-4 of a binade for v; scale unit / 64 for m, where scale <
 * 128 / 127 of the largest |m| / unit, and unit <= sqrt(v') < 2 unit. adamw divides m by the root
 * of v, so the error that counts is that of m / sqrt(v): m's does not depend on how much v differs
 * from element to element, and a v above 0 never has code 0, so that the quotient cannot explode.
 * With evenly spaced codes for both (as above), a small v would be lost next to a large one, and m
 * would be rounded to steps of many times sqrt(v). Dettmers et al. 2022 give v a code with an
 * exponent for the same reason, but one that has 0 and rounds to nearest. An element whose sqrt(v)
 * is below 2^-9 of its block's largest moves less than with adamw. A step computes with the moments
 * that the last one stored: of its work the rounding is adamw's, and of adamw8sr's work less than a
 * unit in the last place of bf16, 2^-7 of it, in addition. tests/kernels/test_stress.c checks these
 * bounds.
 *
 * Rounding is stochastic: it adds a random part to the bits that are dropped. The mean of a stored
 * moment is the moment, so moving averages have no bias even where a step changes them by less than
 * a code, as v with beta2 = 0.999 (to nearest, v could not follow). v is stored and not its root,
 * because the mean that must be kept is that of v. Both moments of an element use the half of its
 * number (kernels/random.h) in the stream of tensor 0 and COH_ROUNDING_OF_MOMENTS. A v that has a
 * code keeps it.
 *
 * A block with a NaN, an infinity or a number of 2^127 has a NaN as its scale and opens as NaN. A
 * block of zeros has scale 0. */
#define COH_MOMENT_V_TOP       15u /* the largest E */
#define COH_MOMENT_V_NORMAL    16  /* the least code with E > 0 */
#define COH_MOMENT_V_DROPPED   19  /* of a float's 23 bits of mantissa */
#define COH_MOMENT_M_DROPPED   17
#define COH_MOMENT_M_LEVELS    64.0f
#define COH_MOMENT_LEAST_SCALE (40u << 23)  /* bits of 2^-87 */
#define COH_MOMENT_TOO_LARGE   (254u << 23) /* bits of 2^127, whose inverse is not a normal float */
#define COH_MOMENT_NAN         0x7fc00000u

#endif
