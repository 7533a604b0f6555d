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

/* Tokens of a chunk: 32 MiB of logits with COH_ROW_BLOCK rows of the table. A product of this many
 * tokens fills a GPU evenly, and the tile stays in an H100's second-level cache while it is
 * used. */
static inline int64_t coh_cuda_classifier_chunk(coh_dtype dtype)
{
    return (32 << 20) / COH_ROW_BLOCK / (dtype == COH_DTYPE_BF16 ? 2 : 4);
}

/* Bytes of logits, followed by dweight's sums. coh_classifier's `logits` points to both; its
 * dweight_sum is ignored. */
static inline size_t coh_cuda_classifier_logit_bytes(coh_dtype dtype, int64_t N, int64_t V)
{
    const int64_t chunk = coh_cuda_classifier_chunk(dtype);
    const int64_t stride = coh_logit_stride(V < COH_ROW_BLOCK ? V : COH_ROW_BLOCK);
    return (size_t)((N < chunk ? N : chunk) * stride) * coh_dtype_bytes(dtype);
}

static inline size_t coh_cuda_classifier_sum_bytes(coh_dtype dtype, int64_t N, int64_t C, int64_t V)
{
    if (dtype != COH_DTYPE_BF16 || N <= coh_cuda_classifier_chunk(dtype))
        return 0;
    return (size_t)((V < COH_ROW_BLOCK ? V : COH_ROW_BLOCK) * C) * sizeof(float);
}

#endif
