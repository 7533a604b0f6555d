/* cells.h - values that change from step to step, stored where the computing device reads them.
 *
 * The host runs ahead of the device, so such a value is never a kernel argument: kernels get the
 * address of its cell. Only instructions write cells. FEED copies this step's values from the host.
 * CLIP stores what the update will need, because a deferred update runs in the next body, after the
 * next FEED. The count of applied updates is stored here as well: a step with a non-finite loss
 * must not count, and the host learns of it too late to pass the count.
 *
 * Device code reads this struct, too: only numbers, with the same layout in C and CUDA. */
#ifndef COH_MEMORY_CELLS_H
#define COH_MEMORY_CELLS_H

#include <stdint.h>

#include "cohobate/model.h"

/* Scalars of all optimizers of one plan. */
#define COH_CELL_SCALARS 32

typedef struct coh_cells {
    coh_random_cell random; /* FEED: seed and number of the step */
    float learning_rate;    /* FEED */
    float clip;             /* FEED; 0: off */
    int32_t pending;        /* CLIP: 1 if finite; SETTLE: 0. Predicate of every deferred UPDATE */
    int32_t finite;         /* CLIP: 1 if loss and norm are finite */
    uint64_t applied_count; /* CLIP increments it if finite. Part of checkpoints */
    /* CLIP: learning rate, clip factor, seed and number of the step whose gradients are pending;
     * the scalars of all optimizers of the plan, one optimizer after the other: 1 - h^applied_count
     * (cohobate/optimizer.h). With updates in backward, FEED sets them. */
    float update_rate, update_scale;
    coh_random_cell update_random;
    float update_scalars[COH_CELL_SCALARS];
    float loss_factor; /* FEED: factor of the losses and their gradients */
    /* CLIP: the norm of the last step whose norm was finite; 0: none yet. With updates in backward,
     * FEED computes the clip factor of its step from it. Part of checkpoints */
    double previous_norm;
} coh_cells;

#endif
