/* gpu_passes.h - every kernel of CUDA that is a pass over memory, as a call over tensors of one
 * size, with the bytes that it must move: each operand once.
 *
 * A kernel that is new in kernels/cuda/kernel_list.h belongs into a pass, or among what is left out
 * with a reason: gpu_passes_check fails where it is in neither. */
#ifndef COH_BENCHMARKS_GPU_PASSES_H
#define COH_BENCHMARKS_GPU_PASSES_H

#include "benchmarks/gpu_turns.h"
#include "memory/cells.h"

/* GPU_ROWS_SQUARES: what AdamW takes as v, of no sign. */
enum { GPU_ROWS_TENSORS = 8, GPU_ROWS_SQUARES = 5, GPU_ROWS_WIDEST = 16384 };

/* More often than a warp of one kernel adds. */
enum { GPU_ROWS_COMMON = 128 };

typedef struct gpu_rows {
    gpu_turns *turns;
    coh_dtype dtype;
    int64_t N, T, C;                /* T: rows of a sequence; D is 128 */
    int64_t most;                   /* elements of a tensor: at least N C */
    char *of[GPU_ROWS_TENSORS];     /* [N, C], of f32 where they are longest */
    char *weight, *dweight, *dbias; /* [C] */
    float *mean, *rstd, *target;    /* [N] */
    float *partials, *scratch;
    int32_t *tokens, *targets, *order; /* each token once */
    int32_t *common;                   /* tokens, of which each stands here GPU_ROWS_COMMON times */
    int32_t *last;                     /* T - 1 */
    coh_cells *cells;
    double *squares;
} gpu_rows;

/* What is read and written of each element of [N, C]: of its type, floats, and in bf16 numbers of
 * 16 bits (the lower half of a master) and bytes (codes; their scales are left out of the count);
 * and of each element of [T, C]. What a pass has for each row or column is left out. Passes whose
 * of_type is 0 are of no type, and run with bf16's. */
typedef struct gpu_pass {
    const char *name;
    void (*run)(gpu_rows *rows); /* enqueues it */
    const char *kernels;         /* as in kernel_list.h, without coh_ and the type */
    int of_type, floats, halves, bytes, of_sequence;
    int columns; /* C, which decides the kernel; 0: any */
} gpu_pass;

extern const gpu_pass gpu_passes[];
extern const int gpu_pass_count;

/* Fails: COH_ERR_INTERNAL naming a kernel that is in no pass and not left out, or one that there is
 * not. */
coh_status gpu_passes_check(void);

#endif
