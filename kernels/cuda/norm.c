/* Launches layer norm and RMS norm on CUDA: selects threads per row and blocks by the row's length.
 * Next: norm.cu for the kernels, scratch.h for the partial sums. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"

#define THREADS_MOST 1024

static coh_cuda_norm_arguments arguments_of(const coh_norm *norm)
{
    return (coh_cuda_norm_arguments){
        .N = norm->N,
        .C = norm->C,
        .x = norm->x,
        .weight = norm->weight,
        .bias = norm->mean != NULL ? norm->bias : NULL,
        .dy = norm->dy,
        .y = norm->y,
        .dx = norm->dx,
        .mean = norm->mean,
        .rstd = norm->rstd,
        .epsilon = norm->epsilon,
        .share = 1.0f / (float)norm->C,
        .offset = norm->mean == NULL ? norm->offset : -0.0f,
        .dx_adds = norm->dx_adds,
        .packed = COH_CUDA_PACKED(norm->x, norm->weight, norm->bias, norm->dy, norm->y, norm->dx) &&
                  norm->C % coh_cuda_pack(norm->dtype) == 0,
    };
}

void coh_cuda_norm(void *queue, const coh_norm *norm)
{
    coh_cuda_norm_arguments arguments = arguments_of(norm);
    const coh_cuda_grid grid = coh_cuda_rows(norm->N, norm->C, norm->dtype, &arguments.width);
    if (norm->N > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_NORM_F32, norm->dtype), &grid, &arguments);
}

/* The partition of rows of C columns in backward. */
typedef struct backward_cut {
    coh_cuda_kernel f32;
    int64_t width, rows, stages, shared_bytes; /* threads per row, rows side by side in a block */
} backward_cut;

/* Rows are copied ahead in as many stages as shared memory holds. */
static backward_cut cut_of_rows(int64_t width, size_t element_bytes, int adds)
{
    const int64_t rows = width < COH_CUDA_NORM_BLOCK ? COH_CUDA_NORM_BLOCK / width : 1;
    const int64_t stage_bytes =
        rows * width * COH_CUDA_NORM_COLUMNS * (int64_t)element_bytes * (adds ? 3 : 2);
    const int64_t fit = COH_CUDA_NORM_SHARED / stage_bytes;
    const int64_t stages = fit < COH_CUDA_NORM_STAGES ? fit : COH_CUDA_NORM_STAGES;
    return (backward_cut){ .f32 = COH_CUDA_NORM_BACKWARD_F32,
                           .width = width,
                           .rows = rows,
                           .stages = stages,
                           .shared_bytes = stages * stage_bytes };
}

static backward_cut cut_of(int64_t C, coh_dtype dtype, int adds)
{
    const int64_t pack = coh_cuda_pack(dtype);
    const int64_t wanted = coh_cuda_row_threads(C, COH_CUDA_NORM_COLUMNS);
    if (wanted <= THREADS_MOST)
        return cut_of_rows(wanted, coh_dtype_bytes(dtype), adds);
    if (C > COH_CUDA_NORM_WIDE)
        return (backward_cut){ .f32 = COH_CUDA_NORM_BACKWARD_WIDEST_F32,
                               .width = THREADS_MOST,
                               .rows = 1 };
    const int64_t parts = coh_cuda_parts(C, THREADS_MOST * pack);
    const int64_t width = coh_cuda_row_threads(C, parts * pack);
    return (backward_cut){ .f32 = COH_CUDA_NORM_BACKWARD_WIDE_F32,
                           .width = width,
                           .rows = 1,
                           .shared_bytes = 2 * width * parts * pack * (int64_t)sizeof(float) };
}

void coh_cuda_norm_backward(void *queue, const coh_norm *norm)
{
    coh_cuda_norm_arguments arguments = arguments_of(norm);
    const int64_t C = norm->C;
    const int adds = norm->dx != NULL && norm->dx_adds;
    const backward_cut cut = cut_of(C, norm->dtype, adds);
    const coh_dtype sums = coh_grad_dtype(norm->dtype, norm->f32_grads);
    const int has_sums = norm->dweight != NULL || norm->dbias != NULL;
    const int64_t threads = cut.width * cut.rows;
    const int64_t block_rows = coh_cuda_norm_block_rows(
        norm->N, threads > COH_CUDA_NORM_BLOCK ? COH_CUDA_NORM_BLOCKS / 2 : COH_CUDA_NORM_BLOCKS);
    const int64_t blocks = coh_cuda_parts(norm->N, block_rows);
    arguments.block_rows = block_rows;
    arguments.width = (int32_t)cut.width;
    arguments.stages = (int32_t)cut.stages;
    arguments.dx_adds = adds;
    arguments.partials = has_sums ? norm->partials : NULL;
    arguments.packed &= COH_CUDA_PACKED(arguments.partials);
    coh_cuda_grid grid = coh_cuda_blocks(blocks, threads);
    grid.shared_bytes = (uint32_t)cut.shared_bytes;
    if (norm->N == 0)
        return;
    coh_cuda_launch(queue, coh_cuda_of(cut.f32, norm->dtype), &grid, &arguments);
    if (has_sums)
        coh_cuda_fold_rows(queue, sums,
                           &(coh_cuda_partials){ .partials = norm->partials,
                                                 .rows = blocks,
                                                 .columns = C,
                                                 .stride = 2 * C,
                                                 .first = norm->dweight,
                                                 .second = norm->dbias,
                                                 .first_adds = norm->dweight_adds,
                                                 .second_adds = norm->dbias_adds });
}
