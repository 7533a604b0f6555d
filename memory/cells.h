/* cells.h - values that change from step to step, where the device that computes reads them.
 *
 * The host runs ahead, so such a value is never an argument: kernels are given the address of its
 * cell. Only lines write cells: FEED takes this step's from the host; CLIP latches what the update
 * will need, because with deferred updates it runs in the next body, after the next FEED. The count
 * of applied updates is state, kept here: a masked step must not count, and the host learns of it
 * too late to say so.
 *
 * Read by device code as well: numbers alone, the same layout in C and CUDA. */
#ifndef COH_MEMORY_CELLS_H
#define COH_MEMORY_CELLS_H

#include <stdint.h>

#include "cohobate/model.h"

typedef struct coh_cells {
    coh_random_cell random; /* FEED: seed and number of the step */
    float learning_rate;    /* FEED */
    float clip;             /* FEED; 0: off */
    int32_t pending;        /* CLIP: 1 if finite; SETTLE: 0. Predicate of every deferred UPDATE */
    int32_t finite;         /* CLIP: were loss and norm finite */
    uint64_t applied_count; /* CLIP, if finite. In checkpoints */
    /* CLIP: learning rate and clip factor of the step whose gradients wait; bias corrections
     * 1 - beta^applied_count. With updates in backward FEED sets them. */
    float update_rate, update_scale;
    float update_bias1, update_bias2;
    float loss_factor; /* FEED: of the losses and their gradients */
} coh_cells;

#endif
