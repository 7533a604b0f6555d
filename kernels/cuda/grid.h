/* grid.h - shared by the launches of this folder: grids, alignment, a kernel's element type. */
#ifndef COH_KERNELS_CUDA_GRID_H
#define COH_KERNELS_CUDA_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/model.h"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/launch.h"

/* Returns the kernel for an element type, from the pair that begins with `f32`. */
static inline coh_cuda_kernel coh_cuda_of(coh_cuda_kernel f32, coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? (coh_cuda_kernel)(f32 + 1) : f32;
}

/* Returns the number of elements in 16 bytes. */
static inline int64_t coh_cuda_pack(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? 8 : 4;
}

static inline int64_t coh_cuda_parts(int64_t length, int64_t part)
{
    return (length + part - 1) / part;
}

/* Returns a grid of this many blocks along x. */
static inline coh_cuda_grid coh_cuda_blocks(int64_t blocks, int64_t threads)
{
    return (coh_cuda_grid){ .x = (uint32_t)blocks, .y = 1, .z = 1, .threads = (uint32_t)threads };
}

/* Returns 1 if each of `count` pointers is NULL or 16-byte aligned. */
static inline int32_t coh_cuda_packed(const void *const *pointers, size_t count)
{
    uintptr_t all = 0;
    for (size_t i = 0; i < count; i++)
        all |= (uintptr_t)pointers[i];
    return all % 16 == 0;
}
#define COH_CUDA_PACKED(...)                                                                       \
    coh_cuda_packed((const void *const[]){ __VA_ARGS__ },                                          \
                    sizeof((const void *const[]){ __VA_ARGS__ }) / sizeof(const void *))

/* Returns a grid of blocks of 256 threads for the work of `units` threads: at most as many as four
 * rounds of the GPU hold; its threads then loop over the rest. Only for kernels whose results do
 * not depend on the grid. */
#define COH_CUDA_FLAT_THREADS 256
static inline coh_cuda_grid coh_cuda_flat(void *queue, int64_t units)
{
    const int64_t most = 32 * (int64_t)coh_cuda_multiprocessors(queue);
    const int64_t blocks = coh_cuda_parts(units, COH_CUDA_FLAT_THREADS);
    return coh_cuda_blocks(blocks < most ? blocks : most, COH_CUDA_FLAT_THREADS);
}

/* Returns the threads of a row of which each takes `each` columns: whole warps. */
static inline int64_t coh_cuda_row_threads(int64_t columns, int64_t each)
{
    return coh_cuda_parts(coh_cuda_parts(columns, each), 32) * 32;
}

/* Returns a grid for rows whose threads hold them in registers (row.cuh), or read them again if
 * they are longer than a block holds. A block has several short rows. *out_width: threads of a
 * row. */
#define COH_CUDA_ROW_THREADS 1024 /* most of a row */
#define COH_CUDA_ROW_BLOCK   256  /* threads of a block of short rows */
static inline coh_cuda_grid coh_cuda_rows(int64_t rows, int64_t columns, coh_dtype dtype,
                                          int32_t *out_width)
{
    const int64_t wanted = coh_cuda_row_threads(columns, COH_CUDA_ROW_HELD * coh_cuda_pack(dtype));
    const int64_t width = wanted < COH_CUDA_ROW_THREADS ? wanted : COH_CUDA_ROW_THREADS;
    const int64_t each = width < COH_CUDA_ROW_BLOCK ? COH_CUDA_ROW_BLOCK / width : 1;
    *out_width = (int32_t)width;
    return coh_cuda_blocks(coh_cuda_parts(rows, each), width * each);
}

#endif
