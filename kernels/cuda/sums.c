/* Launches column sums, folds of partial sums, means, and the gradient before an activation on
 * CUDA. Next: table.h, sums.cu for the order of additions. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

#define WARP        32
#define BLOCKS_MOST 65535 /* blocks along y */

_Static_assert(COH_CUDA_PIECE_ROWS == COH_COLUMN_SUM_PIECE, "pieces of column sums");

/* One block sums a strip of 32 bytes of the rows. `count`: 2 for two sums at once. */
static void launch_sum(void *queue, coh_cuda_kernel kernel, coh_dtype from,
                       const coh_cuda_column_sum_arguments *sum, uint32_t count)
{
    if (sum->columns <= 0)
        return;
    coh_cuda_grid grid = coh_cuda_blocks(coh_cuda_parts(sum->columns, 2 * coh_cuda_pack(from)),
                                         COH_CUDA_SUM_THREADS);
    grid.y = count;
    coh_cuda_launch(queue, kernel, &grid, sum);
}

static int32_t rows_packed(const void *x, int64_t columns, int64_t stride, coh_dtype dtype)
{
    const int64_t pack = coh_cuda_pack(dtype);
    return COH_CUDA_PACKED(x) && columns % pack == 0 && stride % pack == 0;
}

/* Sums each piece of the rows, then the pieces' sums. */
static void sum_pieces(void *queue, const coh_column_sum *sum, int32_t packed)
{
    const int64_t strip = (int64_t)WARP * coh_cuda_pack(sum->dtype);
    const coh_cuda_column_sum_arguments pieces = {
        .rows = sum->rows,
        .columns = sum->columns,
        .stride = sum->columns,
        .x = sum->x,
        .sums = sum->partials,
        .packed = packed,
    };
    const coh_cuda_partials fold = {
        .partials = sum->partials,
        .rows = coh_cuda_parts(sum->rows, COH_CUDA_PIECE_ROWS),
        .columns = sum->columns,
        .stride = sum->columns,
        .first = sum->sums,
        .first_adds = sum->adds,
    };
    coh_cuda_grid grid = coh_cuda_blocks(fold.rows, COH_CUDA_PIECE_THREADS);
    grid.y = (uint32_t)coh_cuda_parts(sum->columns, strip);
    if (sum->columns > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_COLUMN_PIECES_F32, sum->dtype), &grid, &pieces);
    coh_cuda_fold_rows(queue, sum->sums_dtype, &fold);
}

void coh_cuda_column_sum(void *queue, const coh_column_sum *sum)
{
    const coh_cuda_column_sum_arguments whole = {
        .rows = sum->rows,
        .columns = sum->columns,
        .stride = sum->columns,
        .x = sum->x,
        .sums = sum->sums,
        .adds = sum->adds,
        .f32_sums = sum->sums_dtype == COH_DTYPE_F32,
        .packed = rows_packed(sum->x, sum->columns, sum->columns, sum->dtype),
    };
    const int64_t strips = coh_cuda_parts(sum->columns, WARP * coh_cuda_pack(sum->dtype));
    if (sum->partials != NULL && strips <= BLOCKS_MOST &&
        coh_kernel_column_sum_partials(sum->rows, sum->columns) > 0)
        sum_pieces(queue, sum, whole.packed);
    else
        launch_sum(queue, coh_cuda_of(COH_CUDA_COLUMN_SUM_F32, sum->dtype), sum->dtype, &whole, 1);
}

void coh_cuda_fold_rows(void *queue, coh_dtype dtype, const coh_cuda_partials *of)
{
    const int has_first = of->first != NULL;
    const float *partials = of->partials + (has_first ? 0 : of->columns);
    const coh_cuda_column_sum_arguments sum = {
        .rows = of->rows,
        .columns = of->columns,
        .stride = of->stride,
        .x = partials,
        .sums = has_first ? of->first : of->second,
        .second = of->second,
        .adds = has_first ? of->first_adds : of->second_adds,
        .second_adds = of->second_adds,
        .packed = rows_packed(partials, of->columns, of->stride, COH_DTYPE_F32),
    };
    if (sum.sums != NULL)
        launch_sum(queue, coh_cuda_of(COH_CUDA_PARTIAL_SUM_F32, dtype), COH_DTYPE_F32, &sum,
                   has_first && of->second != NULL ? 2 : 1);
}

void coh_cuda_mean(void *queue, const coh_mean *m)
{
    const int64_t length = m->inner > 1 ? m->inner : m->count; /* of contiguous elements */
    coh_cuda_mean_arguments arguments = { .outer = m->outer,
                                          .count = m->count,
                                          .inner = m->inner,
                                          .x = m->from,
                                          .y = m->to,
                                          .packed =
                                              rows_packed(m->from, length, length, m->dtype) };
    coh_cuda_grid grid = coh_cuda_rows(m->outer, m->count, m->dtype, &arguments.width);
    if (m->outer <= 0 || m->count <= 0 || m->inner <= 0)
        return;
    if (m->inner > 1) {
        grid = coh_cuda_blocks(coh_cuda_parts(m->inner, 2 * coh_cuda_pack(m->dtype)),
                               COH_CUDA_SUM_THREADS);
        grid.y = (uint32_t)(m->outer < BLOCKS_MOST ? m->outer : BLOCKS_MOST);
    }
    coh_cuda_launch(
        queue,
        coh_cuda_of(m->inner > 1 ? COH_CUDA_COLUMN_MEAN_F32 : COH_CUDA_ROW_MEAN_F32, m->dtype),
        &grid, &arguments);
}

void coh_cuda_activation_gradient(void *queue, const coh_activation_gradient *gradient)
{
    const int64_t pack = coh_cuda_pack(gradient->dtype);
    const int64_t blocks = coh_cuda_parts(gradient->N, COH_CUDA_GRADIENT_ROWS);
    const coh_cuda_activation_gradient_arguments arguments = {
        .N = gradient->N,
        .O = gradient->O,
        .dy = gradient->dy,
        .of = gradient->of,
        .dh = gradient->dh,
        .partials = gradient->sums != NULL ? gradient->partials : NULL,
        .packed = COH_CUDA_PACKED(gradient->dy, gradient->of, gradient->dh, gradient->partials) &&
                  gradient->O % pack == 0,
    };
    const int64_t part = COH_CUDA_GRADIENT_THREADS * (arguments.packed ? pack : 1);
    coh_cuda_grid grid = coh_cuda_blocks(blocks, COH_CUDA_GRADIENT_THREADS);
    grid.y = (uint32_t)coh_cuda_parts(gradient->O, part);
    if (blocks == 0 || gradient->O == 0)
        return;
    coh_cuda_launch(queue,
                    coh_cuda_of(gradient->activation == COH_ACTIVATION_RELU
                                    ? COH_CUDA_RELU_GRADIENT_F32
                                    : COH_CUDA_GELU_GRADIENT_F32,
                                gradient->dtype),
                    &grid, &arguments);
    if (gradient->sums != NULL)
        coh_cuda_fold_rows(queue, coh_grad_dtype(gradient->dtype, gradient->f32_grads),
                           &(coh_cuda_partials){ .partials = gradient->partials,
                                                 .rows = blocks,
                                                 .columns = gradient->O,
                                                 .stride = gradient->O,
                                                 .first = gradient->sums,
                                                 .first_adds = gradient->sums_adds });
}
