/* plain.h - the loops of the kinds that any model needs (kind_layout.c, kind_loss.c): copies of
 * blocks, mean, softmax and losses. They are rows of the kernel table (table.h).
 *
 * All cut their tensors by shape alone and add partial sums in a fixed order, so that neither
 * threads nor a GPU's schedule change a bit. A loss's gradient is scaled by loss_share times
 * *loss_factor, as the classifier's (kernels.h). */
#ifndef COH_KERNELS_PLAIN_H
#define COH_KERNELS_PLAIN_H

#include "cohobate/model.h"

/* ---- copies of blocks: cpu/blocks.c ----
 *
 *     whole  |.....part0.....|.....part1.....|    outer blocks of `wide` elements
 *            begin^   ^begin + count */
typedef struct coh_blocks {
    coh_dtype dtype;
    int64_t outer, count, wide, begin;
    const void *whole_in, *part_in;
    void *whole_out, *part_out;
    int32_t adds;   /* add to the elements written */
    int32_t clears; /* set the rest of whole_out to zero */
} coh_blocks;
/* part_out = the parts of whole_in */
void coh_kernel_take_blocks(void *queue, const coh_blocks *blocks);
/* the parts of whole_out = part_in */
void coh_kernel_put_blocks(void *queue, const coh_blocks *blocks);

/* ---- reductions: cpu/reduce.c ---- */

/* Mean over `count` of outer x count x inner elements. Backward: from dy to dx. */
typedef struct coh_mean {
    coh_dtype dtype;
    int64_t outer, count, inner;
    const void *from;
    void *to;
    int32_t adds;
} coh_mean;
void coh_kernel_mean(void *queue, const coh_mean *mean);
void coh_kernel_mean_backward(void *queue, const coh_mean *mean);

/* Softmax of rows. Forward: from x to `to`, which may be x. Backward: `to` (= or +=) y * (from -
 * sum(y * from)), `from` is dy and may be `to` unless it adds. */
typedef struct coh_softmax {
    coh_dtype dtype;
    int64_t rows, columns;
    const void *from, *y;
    void *to;
    int32_t adds;
} coh_softmax;
void coh_kernel_softmax(void *queue, const coh_softmax *softmax);
void coh_kernel_softmax_backward(void *queue, const coh_softmax *softmax);

/* Cross-entropy of rows of logits. Targets are -1 (none) to columns - 1. */
typedef struct coh_cross_entropy {
    coh_dtype dtype;
    int64_t rows, columns;
    const void *logits;
    const int32_t *targets;
    float *max, *sum; /* by row; forward writes, backward reads them */
    /* forward, with `loss`: coh_kernel_row_partials(rows) sums. On CUDA a float for each row
     * (kernels/cuda/scratch.h). */
    double *partial;
    float *loss; /* forward: mean of the rows; NULL: none */
    float *each; /* forward: loss of each row, 0 without a target; NULL: none */
    void *to;    /* gradient of the logits */
    float loss_share;
    const float *loss_factor; /* in device memory; NULL: 1 */
    int32_t adds;
} coh_cross_entropy;
int64_t coh_kernel_row_partials(int64_t rows);
void coh_kernel_cross_entropy(void *queue, const coh_cross_entropy *entropy);
void coh_kernel_cross_entropy_backward(void *queue, const coh_cross_entropy *entropy);

/* Mean squared error of `count` elements. The target's dtype is x's or f32. */
typedef struct coh_squares {
    coh_dtype dtype, target_dtype;
    int64_t count;
    const void *x, *target;
    double *partial; /* forward: coh_kernel_grain_partials(count) sums */
    float *loss;
    void *to, *to_target; /* gradients; NULL: not wanted */
    float loss_share;
    const float *loss_factor; /* in device memory; NULL: 1 */
    int32_t adds, target_adds;
} coh_squares;
int64_t coh_kernel_grain_partials(int64_t count);
void coh_kernel_squares(void *queue, const coh_squares *squares);
void coh_kernel_squares_backward(void *queue, const coh_squares *squares);

#endif
