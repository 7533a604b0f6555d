/* optimizer_arguments.h - the arguments of the kernels of optimizer.cu (kernels/optimizer.h).
 * Grains are passed by value, values of a step by the address of their cells. */
#ifndef COH_KERNELS_CUDA_OPTIMIZER_ARGUMENTS_H
#define COH_KERNELS_CUDA_OPTIMIZER_ARGUMENTS_H

#include <stdint.h>

#include "kernels/optimizer.h"

#define COH_CUDA_GRAIN 16384 /* COH_GRAIN_ELEMENTS */
/* Blocks that share the update of a grain. */
#define COH_CUDA_UPDATE_PARTS 4
/* Sums of squares: a block sums a grain, 16 threads each piece of COH_SQUARE_PIECE elements. */
#define COH_CUDA_SQUARE_LANES   16
#define COH_CUDA_SQUARE_PIECE   1024
#define COH_CUDA_SQUARE_PIECES  (COH_CUDA_GRAIN / COH_CUDA_SQUARE_PIECE)
#define COH_CUDA_SQUARE_THREADS (COH_CUDA_SQUARE_PIECES * COH_CUDA_SQUARE_LANES)

typedef struct coh_cuda_grains {
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
    int32_t run_count;
} coh_cuda_grains;

typedef struct coh_cuda_square_sums_arguments {
    coh_cuda_grains grains;
    int64_t grain_count;
    const void *grad;
    double *partials;
} coh_cuda_square_sums_arguments;

typedef struct coh_cuda_update_arguments {
    coh_cuda_grains grains;
    void *work;
    const void *grad;
    uint16_t *low;
    void *states[COH_OPTIMIZER_STREAMS];
    const coh_cells *cells;
    const int32_t *predicate; /* if not NULL and 0 there, the kernel does nothing */
    float hyperparameters[COH_OPTIMIZER_NUMBERS];
    int32_t scalar_begin;
    int32_t packed, f32_grads;
} coh_cuda_update_arguments;

typedef struct coh_cuda_feed_arguments {
    coh_cells *cells;
    const coh_feed_values *values;
    int32_t latches;
    coh_update_scalars scalars;
} coh_cuda_feed_arguments;

typedef struct coh_cuda_settle_arguments {
    coh_cells *cells;
} coh_cuda_settle_arguments;

#endif
