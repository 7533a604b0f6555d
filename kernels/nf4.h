/* nf4.h - weights in 4 bits: the 4-bit NormalFloat of Dettmers, Pagnoni, Holtzman and Zettlemoyer
 * 2023 ("QLoRA: Efficient Finetuning of Quantized LLMs"), in blocks of COH_NF4_BLOCK elements.
 *
 *     a block of 34 bytes    scale, bf16 | codes 0, 1 | codes 2, 3 | ... | codes 62, 63
 *                                        (in a byte the first code is the lower one)
 *
 *     scale    the largest |x| of the block, rounded to bf16
 *     code     the value of COH_NF4_VALUES that is nearest to x / scale
 *     number   value times scale, rounded to bf16
 *
 * The values are quantiles of the normal distribution, since weights are about normal; one is 0.
 * The paper's scales are f32 and quantised themselves, 4.13 bits an element. Ours are bf16, 4.25
 * bits: the numbers are exact in bf16, and quantising them again gives the same bytes, so that a
 * checkpoint in bf16 loses nothing.
 *
 * |number - x| <= 0.152 scale + a rounding to bf16; half of the widest gap, from -1 to -0.696. */
#ifndef COH_KERNELS_NF4_H
#define COH_KERNELS_NF4_H

#include <stdint.h>

#include "cohobate/model.h"

enum { COH_NF4_CODES = 16 };

/* Appendix E of the paper. */
#define COH_NF4_VALUES                                                                             \
    {                                                                                              \
        -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,                  \
            -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,             \
            0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,                      \
            0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f,  \
            1.0f                                                                                   \
    }

/* Blocks of smaller numbers become zeros: as subnormals they would not keep their codes. */
#define COH_NF4_LEAST_SCALE 0x1p-110f

/* packed = x [count], on the calling thread; count is a multiple of COH_NF4_BLOCK. A block with an
 * infinity has the largest bf16 as its scale; a NaN becomes any number. */
void coh_nf4_quantise(void *packed, const float *x, int64_t count);

/* y [count] = the numbers of packed, likewise. */
void coh_nf4_dequantise(float *y, const void *packed, int64_t count);

/* Returns 1 if quantising x would change no number of it. */
int coh_nf4_holds(const float *x, int64_t count);

/* y [count] = the numbers of packed, in f32 or bf16, on the queue (kernels/table.h). Equal bits on
 * every device. */
typedef struct coh_nf4_weight {
    coh_dtype dtype; /* of y */
    int64_t count;
    const void *packed;
    void *y;
} coh_nf4_weight;
void coh_kernel_nf4(void *queue, const coh_nf4_weight *weight);

#endif
