/* scratch.h - sizes of the kernels' scratch on CUDA where they differ from the host's. They are
 * functions of shapes alone and compile with or without CUDA, because a plan for a GPU may be made
 * on a machine without one. kind_workspaces.c makes the workspaces of operator kinds of them. */
#ifndef COH_KERNELS_CUDA_SCRATCH_H
#define COH_KERNELS_CUDA_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* ---- norms ---- */

/* Rows of a block in backward: at least 8, and enough to have at most `most` blocks. Of 132
 * multiprocessors (H100, H200) each has two, or one of more than 512 threads. */
#define COH_CUDA_NORM_BLOCKS 264
#define COH_CUDA_NORM_ROWS   8
static inline int64_t coh_cuda_norm_block_rows(int64_t N, int64_t most)
{
    const int64_t rows = (N + most - 1) / most;
    return rows < COH_CUDA_NORM_ROWS ? COH_CUDA_NORM_ROWS : rows;
}

/* Floats of coh_norm's partials: for as many blocks as N rows may have. Monotonic: more rows never
 * need less. */
static inline int64_t coh_cuda_norm_partials(int64_t N, int64_t C)
{
    const int64_t blocks = (N + COH_CUDA_NORM_ROWS - 1) / COH_CUDA_NORM_ROWS;
    return (blocks < COH_CUDA_NORM_BLOCKS ? blocks : COH_CUDA_NORM_BLOCKS) * 2 * C;
}

/* ---- embedding ---- */

/* Elements of coh_embedding's `order`: two lists of keys of eight bytes, in elements of four. It
 * must be 8-byte aligned. */
static inline int64_t coh_cuda_embedding_order(int64_t N)
{
    return 4 * N;
}

/* ---- cross-entropy ---- */

/* Floats of coh_cross_entropy's `partial`: the target's logit of each row. */
static inline int64_t coh_cuda_cross_entropy_partials(int64_t rows)
{
    return rows;
}

/* ---- classifier ---- */

/* A tile of logits: rows of the table, and tokens to make 128 MiB of it without a cache. Each tile
 * adds its part to the sums of dx and dweight in memory, so larger tiles move fewer bytes, and
 * products of this size fill a GPU evenly. */
#define COH_CUDA_CLASSIFIER_ROWS ((int64_t)COH_GPU_TABLE_BLOCKS * COH_ROW_BLOCK)
static inline int64_t coh_cuda_classifier_chunk(coh_dtype dtype)
{
    return (128 << 20) / COH_CUDA_CLASSIFIER_ROWS / (dtype == COH_DTYPE_BF16 ? 2 : 4);
}

static inline int64_t coh_cuda_classifier_rows(int64_t V)
{
    return V < COH_CUDA_CLASSIFIER_ROWS ? V : COH_CUDA_CLASSIFIER_ROWS;
}

/* Bytes of logits, followed by dweight's sums. coh_classifier's `logits` points to both; its
 * dweight_sum is ignored. */
static inline size_t coh_cuda_classifier_logit_bytes(coh_dtype dtype, int64_t N, int64_t V)
{
    const int64_t chunk = coh_cuda_classifier_chunk(dtype);
    const int64_t stride = coh_logit_stride(coh_cuda_classifier_rows(V));
    return (size_t)((N < chunk ? N : chunk) * stride) * coh_dtype_bytes(dtype);
}

static inline size_t coh_cuda_classifier_sum_bytes(coh_dtype dtype, int64_t N, int64_t C, int64_t V)
{
    if (dtype != COH_DTYPE_BF16 || N <= coh_cuda_classifier_chunk(dtype))
        return 0;
    return (size_t)(coh_cuda_classifier_rows(V) * C) * sizeof(float);
}

#endif
