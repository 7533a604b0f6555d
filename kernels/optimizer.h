/* optimizer.h - the steps from gradients to new parameters, as jobs of a device.
 *
 *    FEED     this step's values and inputs, from the host  ->  cells, inputs
 *    NORM     a chunk of gradient                           ->  one partial per grain
 *    CLIP     partials, losses, cells                       ->  cells; a record for the host
 *    UPDATE   a chunk of work, gradient and states          ->  their next version
 *    SETTLE                                                 ->  `pending` of the cells is 0
 *
 * A job reads values that change from step to step from the cells when it executes; values that are
 * the same in all steps of a run are in its struct. A struct and the runs of grains it points to
 * are read before a call returns. All other pointers are to device memory, unless their comment
 * says host. Partials are one per grain and folded in one order on every device, so neither chunks
 * nor threads can change the norm. The queue determines the device: kernels/table.h. */
#ifndef COH_KERNELS_OPTIMIZER_H
#define COH_KERNELS_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/fold_shape.h"
#include "cohobate/model.h"
#include "cohobate/optimizer.h"
#include "memory/cells.h"

/* ---- grains of a chunk ---- */

/* The part of one trained tensor in a chunk: whole grains, except for the tensor's last.
 *
 *  chunk   | tensor 3: grain 7, 8 (short) | tensor 4: grain 0, 1, 2 |
 *  pieces        0      1                        2      3   4           numbered through all
 * runs */
typedef struct coh_grain_run {
    int64_t first;         /* its first piece */
    int64_t element;       /* its first element in the chunk */
    int64_t count;         /* elements, >= 1 */
    int64_t partial_begin; /* partial of its first grain */
    float rate_factor;     /* factor of the cells' update_rate, from the tensor's group */
    float decay;           /* weight decay of the tensor's group; 0: none */
} coh_grain_run;

#define COH_GRAIN_RUNS_MOST COH_PORT_MAX /* a chunk holds parameters of one operator */

/* The runs are in host memory, made once when programs are bound. */
typedef struct coh_chunk_grains {
    const coh_grain_run *runs;
    int32_t run_count; /* 0: no tensor in the chunk is trained */
} coh_chunk_grains;

/* ---- FEED ---- */

/* The hyperparameters h whose 1 - h^t the cells hold, t being the number of applied updates. */
typedef struct coh_update_scalars {
    int32_t count;
    float base[COH_CELL_SCALARS];
} coh_update_scalars;

typedef struct coh_feed_values {
    coh_random_cell random;
    float learning_rate, clip, loss_factor;
    int32_t norm_is_known; /* 1: updates before CLIP are clipped by `norm`, else by the last one */
    double norm;
} coh_feed_values;

typedef struct coh_feed_input {
    void *to;
    const void *from; /* in host memory */
    size_t bytes;
} coh_feed_input;

/* `values` and the sources in `inputs` are in host memory that the device can address; they must
 * not change until the job is done. `inputs` itself is read at once. */
typedef struct coh_feed {
    coh_cells *cells;
    const coh_feed_values *values;
    const coh_feed_input *inputs;
    int32_t input_count;
    /* 1: updates of this step run before its CLIP: latch for them. Their clip factor is that of
     * values->norm, or of the previous step's norm. */
    int32_t latches;
    coh_update_scalars scalars;
} coh_feed;
void coh_kernel_feed(void *queue, const coh_feed *feed);

/* ---- NORM ---- */

/* partials[..] = sum of squares of each grain, in double. */
typedef struct coh_square_sums {
    coh_dtype dtype; /* of grad */
    coh_chunk_grains grains;
    const void *grad; /* of the chunk */
    double *partials; /* of all parameters */
} coh_square_sums;
void coh_kernel_square_sums(void *queue, const coh_square_sums *sums);

/* ---- CLIP ---- */

/* The results of a step for the host. */
typedef struct coh_clip_record {
    uint64_t step, applied_count;
    double loss, grad_norm;
    int32_t finite;
} coh_clip_record;

/* Number of sums into which the partials are folded: partial i is added to sum i % COH_CLIP_SUMS,
 * in rising order, then the upper half of the sums to the lower half until one is left. A model of
 * 7e9 parameters has 427,000 partials, which a single thread of a GPU would need milliseconds to
 * add. */
#define COH_CLIP_SUMS 1024

/* loss = mean of the losses * loss_factor: the losses of each replica are added in their order, and
 * these sums in the order of the fold shape, as gradients are. norm = sqrt(sum of all partials),
 * where the partials of frozen parameters are 0. The gradient's scale is clip / norm if clip is
 * above 0 and norm above clip, else 1. If loss and norm are finite, the step counts; with `defers`
 * its updates are then pending. */
typedef struct coh_clip {
    coh_cells *cells;
    const double *partials; /* NULL: the norm is 0 */
    int64_t partial_count;
    const float *losses; /* one per micro-batch, loss_stride elements apart; NULL: they are 0 */
    int64_t loss_stride, microbatch_count;
    coh_fold_shape fold;     /* of the replicas, to which equal runs of micro-batches belong */
    int32_t defers;          /* 1: updates run after the next FEED: latch for them */
    coh_clip_record *record; /* in host memory that the device can address */
    coh_update_scalars scalars;
} coh_clip;
void coh_kernel_clip(void *queue, const coh_clip *clip);

/* ---- UPDATE, SETTLE ---- */

/* The update of `optimizer` for each element of the chunk's grains, with update_rate, update_scale
 * and scalars of the cells, and rate factor and decay of the grain's run. f32: `work` is the master
 * and low NULL; bf16: `work` is its upper half. */
typedef struct coh_update {
    const coh_optimizer *optimizer;
    coh_dtype dtype; /* of work and, without f32_grads, grad */
    int32_t f32_grads;
    coh_chunk_grains grains;
    void *work;
    const void *grad;
    uint16_t *low;
    void *states[COH_OPTIMIZER_STREAMS]; /* of the chunk, in the optimizer's order */
    double *partials;                    /* also computes square_sums' partials; NULL: not wanted */
    const coh_cells *cells;
    const float *hyperparameters; /* host memory, in the optimizer's order */
    int32_t scalar_begin;         /* its first one in the cells' update_scalars */
    /* Runs the optimizer's update of a range, in a test mode on the host; NULL: the job does. */
    void (*run)(void *context, const coh_optimizer *optimizer, const coh_update_call *call);
    void *run_context;
} coh_update;
void coh_kernel_update(void *queue, const coh_update *update);

void coh_kernel_settle(void *queue, coh_cells *cells);

#endif
