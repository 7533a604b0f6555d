/* gpu_passes.h - every CUDA kernel that is a pass over memory, as a call over tensors of one size,
 * with the bytes that it must move: each operand once.
 *
 * A new kernel in kernels/cuda/kernel_list.h must be added to a pass, or to the list of excluded
 * ones with a reason: otherwise gpu_passes_check fails. */
#ifndef COH_BENCHMARKS_GPU_PASSES_H
#define COH_BENCHMARKS_GPU_PASSES_H

#include "benchmarks/gpu_turns.h"
#include "memory/cells.h"

/* GPU_ROWS_SQUARES: the tensor that AdamW uses as v, without negative numbers. */
enum { GPU_ROWS_TENSORS = 8, GPU_ROWS_SQUARES = 5, GPU_ROWS_WIDEST = 16384 };

/* Larger than the number of tokens that a warp of one kernel adds. */
enum { GPU_ROWS_COMMON = 128 };

typedef struct gpu_rows {
    gpu_turns *turns;
    coh_dtype dtype;
    int64_t N, T, C;                /* T: rows of a sequence; D is 128 */
    int64_t most;                   /* elements of a tensor: at least N C */
    char *of[GPU_ROWS_TENSORS];     /* [N, C], in f32 when largest */
    char *weight, *dweight, *dbias; /* [C] */
    float *mean, *rstd, *target;    /* [N] */
    float *partials, *scratch;
    int32_t *tokens, *targets, *order; /* each token once */
    int32_t *common;                   /* tokens, each of which occurs GPU_ROWS_COMMON times */
    int32_t *last;                     /* T - 1 */
    coh_cells *cells;
    double *squares;
} gpu_rows;

/* The data read and written per element of [N, C]: in its type, floats, bytes (codes; their scales
 * are not counted), in bf16 numbers of 16 bits (the lower half of a master), and in NF4; and per
 * element of [T, C]. Data per row or column are not counted. Passes whose of_type is 0 have no
 * element type, and run with bf16's. */
typedef struct gpu_pass {
    const char *name;
    void (*run)(gpu_rows *rows); /* enqueues the pass */
    const char *kernels;         /* as in kernel_list.h, without coh_ and the type */
    int of_type, floats, halves, bytes, nf4, of_sequence;
    int columns; /* C that selects the kernel; 0: any */
} gpu_pass;

extern const gpu_pass gpu_passes[];
extern const int gpu_pass_count;

/* Errors: COH_ERR_INTERNAL, naming a kernel that is in no pass and not excluded, or one that does
 * not exist. */
coh_status gpu_passes_check(void);

#endif
