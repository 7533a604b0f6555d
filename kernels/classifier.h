/* classifier.h - the classifier's walk over tiles of logits, which is the same on every device:
 * products, their order, and the sums that are rounded once. A device adds the softmax of a tile.
 *
 *           v0      v0+rows
 *     n0  +-------+-------+--          cache: a block's tiles follow one another, tile (v0, n0) at
 *         | tile 0| tile 2|            element v0 N + n0 stride(v0): forward writes them in
 *   n0+.. +-------+-------+--          sequence, backward reads them in sequence
 *         | tile 1| tile 3|
 *
 * Blocks of rows are in rising order, chunks of tokens rise within a block, whatever the ranges of
 * the calls: the additions of a tile and their order follow from N, C and V alone. */
#ifndef COH_KERNELS_CLASSIFIER_H
#define COH_KERNELS_CLASSIFIER_H

#include "kernels/kernels.h"

/* Logits of tokens [n0, n0 + tokens) against table rows [v0, v0 + rows), `stride` elements from one
 * token to the next. */
typedef struct coh_logit_tile {
    const coh_classifier *c;
    const void *weight; /* row v0 */
    void *logits;
    int64_t n0, tokens, v0, rows, stride;
} coh_logit_tile;

typedef struct coh_classifier_device {
    int64_t rows;       /* most table rows of a tile: a whole number of COH_ROW_BLOCKs */
    int64_t chunk;      /* most tokens of a tile */
    float *dweight_sum; /* scratch for a block's dweight; NULL: one chunk, or f32 */
    /* Folds a tile into max, sum and target_logit of its tokens. */
    void (*take)(void *queue, const coh_logit_tile *tile);
    /* Turns a tile into dlogits = (softmax - onehot) loss_share loss_factor / N, in place. */
    void (*gradient)(void *queue, const coh_logit_tile *tile);
} coh_classifier_device;

/* coh_kernel_classifier, except for the start of max and sum, and the loss. */
void coh_classifier_forward(void *queue, const coh_classifier *classifier,
                            const coh_classifier_device *device);
/* coh_kernel_classifier_backward. */
void coh_classifier_backward(void *queue, const coh_classifier *classifier,
                             const coh_classifier_device *device);

#endif
