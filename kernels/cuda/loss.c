/* Launches softmax, cross-entropy of given logits and mean squared error on CUDA. Next: loss.cu for
 * the kernels, scratch.h for their scratch. */
#include "base/bytes.h"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

#define WARP 32

_Static_assert(COH_CUDA_SQUARES_GRAIN == COH_GRAIN_ELEMENTS, "a block sums one grain");

static int32_t rows_packed(coh_dtype dtype, int64_t columns, int32_t is_aligned)
{
    return is_aligned && columns % coh_cuda_pack(dtype) == 0;
}

/* ---- softmax ---- */

static void launch_softmax(void *queue, coh_cuda_kernel f32, const coh_softmax *s)
{
    coh_cuda_softmax_arguments arguments = {
        .rows = s->rows,
        .columns = s->columns,
        .x = s->from,
        .p = s->y,
        .y = s->to,
        .adds = s->adds,
        .packed = rows_packed(s->dtype, s->columns, COH_CUDA_PACKED(s->from, s->y, s->to)),
    };
    const coh_cuda_grid grid = coh_cuda_rows(s->rows, s->columns, s->dtype, &arguments.width);
    if (s->rows > 0 && s->columns > 0)
        coh_cuda_launch(queue, coh_cuda_of(f32, s->dtype), &grid, &arguments);
}

void coh_cuda_softmax(void *queue, const coh_softmax *softmax)
{
    coh_softmax forward = *softmax;
    forward.y = NULL;
    launch_softmax(queue, COH_CUDA_SOFTMAX_F32, &forward);
}

void coh_cuda_softmax_backward(void *queue, const coh_softmax *softmax)
{
    launch_softmax(queue, COH_CUDA_SOFTMAX_BACKWARD_F32, softmax);
}

/* ---- cross-entropy ---- */

void coh_cuda_cross_entropy(void *queue, const coh_cross_entropy *e)
{
    float *target_logit = e->loss != NULL ? (float *)(void *)e->partial : NULL;
    coh_cuda_entropy_arguments arguments = {
        .rows = e->rows,
        .columns = e->columns,
        .x = e->logits,
        .targets = e->targets,
        .max = e->max,
        .sum = e->sum,
        .target_logit = target_logit,
        .each = e->each,
        .packed = rows_packed(e->dtype, e->columns, COH_CUDA_PACKED(e->logits)),
    };
    const coh_cuda_grid grid = coh_cuda_rows(e->rows, e->columns, e->dtype, &arguments.width);
    const coh_cuda_grid one = coh_cuda_blocks(1, COH_CUDA_LOSS_THREADS);
    const coh_cuda_loss_arguments loss = { .N = e->rows,
                                           .targets = e->targets,
                                           .max = e->max,
                                           .sum = e->sum,
                                           .target_logit = target_logit,
                                           .loss = e->loss };
    if (e->rows <= 0 || e->columns <= 0)
        return;
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ENTROPY_F32, e->dtype), &grid, &arguments);
    if (e->loss != NULL)
        coh_cuda_launch(queue, COH_CUDA_CLASSIFIER_LOSS, &one, &loss);
}

/* The classifier's gradient of one tile that has all of each row. */
void coh_cuda_cross_entropy_backward(void *queue, const coh_cross_entropy *e)
{
    const coh_cuda_logits_arguments arguments = {
        .tokens = e->rows,
        .rows = e->columns,
        .stride = e->columns,
        .logits = (void *)(uintptr_t)e->logits,
        .targets = e->targets,
        .max = e->max,
        .sum = e->sum,
        .gradient = e->to,
        .loss_factor = e->loss_factor,
        .share = e->loss_share,
        .N = e->rows,
        .adds = e->adds,
        .packed = rows_packed(e->dtype, e->columns, COH_CUDA_PACKED(e->logits, e->to)),
    };
    const coh_cuda_grid grid = coh_cuda_flat(queue, e->rows * WARP);
    if (e->rows > 0 && e->columns > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_CLASSIFIER_GRADIENT_F32, e->dtype), &grid,
                        &arguments);
}

/* ---- mean squared error ---- */

static coh_cuda_squares_arguments squares_of(const coh_squares *s)
{
    return (coh_cuda_squares_arguments){
        .count = s->count,
        .x = s->x,
        .target = s->target,
        .partials = s->partial,
        .dx = s->to,
        .dtarget = s->to_target,
        .loss_factor = s->loss_factor,
        .share = s->loss_share,
        .dx_adds = s->adds,
        .dtarget_adds = s->target_adds,
        .packed = COH_CUDA_PACKED(s->x, s->target, s->to, s->to_target),
        .f32_target = s->target_dtype == COH_DTYPE_F32,
    };
}

void coh_cuda_squares(void *queue, const coh_squares *squares)
{
    const coh_cuda_squares_arguments arguments = squares_of(squares);
    const int64_t grains = coh_kernel_grain_partials(squares->count);
    const coh_cuda_squares_loss_arguments loss = { .partial_count = grains,
                                                   .items = squares->count,
                                                   .partials = squares->partial,
                                                   .loss = squares->loss };
    const coh_cuda_grid grid = coh_cuda_blocks(grains, COH_CUDA_SQUARES_THREADS);
    const coh_cuda_grid one = coh_cuda_blocks(1, COH_CUDA_LOSS_THREADS);
    if (squares->count <= 0)
        return;
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_SQUARES_F32, squares->dtype), &grid, &arguments);
    coh_cuda_launch(queue, COH_CUDA_SQUARES_LOSS, &one, &loss);
}

void coh_cuda_squares_backward(void *queue, const coh_squares *squares)
{
    const coh_cuda_squares_arguments arguments = squares_of(squares);
    const int64_t part =
        arguments.f32_target ? coh_cuda_pack(COH_DTYPE_F32) : coh_cuda_pack(squares->dtype);
    const coh_cuda_grid grid = coh_cuda_flat(
        queue, arguments.packed ? coh_cuda_parts(squares->count, part) : squares->count);
    if (squares->count > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_SQUARES_BACKWARD_F32, squares->dtype), &grid,
                        &arguments);
}
