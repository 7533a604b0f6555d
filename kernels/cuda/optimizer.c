/* Launches FEED, NORM, CLIP, UPDATE and SETTLE on CUDA. Values of a step are passed by the address
 * of their cells, so that a recorded launch can be replayed. Next: kernels/optimizer.h,
 * optimizer.cu. */
#include <string.h>

#include "base/bytes.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/optimizer_arguments.h"
#include "kernels/cuda/table.h"
#include "kernels/kernels.h"
#include "memory/cuda_queue.h"

_Static_assert(COH_CUDA_GRAIN == COH_GRAIN_ELEMENTS, "kernels cut tensors as the engine does");

static int64_t take_grains(coh_cuda_grains *to, const coh_chunk_grains *from)
{
    if (from->run_count == 0)
        return 0;
    memcpy(to->runs, from->runs, (size_t)from->run_count * sizeof(*from->runs));
    to->run_count = from->run_count;
    const coh_grain_run *last = &from->runs[from->run_count - 1];
    return last->first + coh_cuda_parts(last->count, COH_GRAIN_ELEMENTS);
}

void coh_cuda_feed(void *queue, const coh_feed *feed)
{
    const coh_cuda_feed_arguments arguments = { .cells = feed->cells,
                                                .values = feed->values,
                                                .latches = feed->latches,
                                                .scalars = feed->scalars };
    const coh_cuda_grid warp = coh_cuda_blocks(1, 32);
    coh_cuda_launch(queue, COH_CUDA_CELLS_FEED, &warp, &arguments);
    for (int32_t i = 0; i < feed->input_count; i++)
        coh_cuda_copy(queue, feed->inputs[i].to, feed->inputs[i].from,
                      (int64_t)feed->inputs[i].bytes);
}

void coh_cuda_square_sums(void *queue, const coh_square_sums *sums)
{
    coh_cuda_square_sums_arguments arguments = { .grad = sums->grad, .partials = sums->partials };
    arguments.grain_count = take_grains(&arguments.grains, &sums->grains);
    const coh_cuda_grid grid = coh_cuda_blocks(arguments.grain_count, COH_CUDA_SQUARE_THREADS);
    if (arguments.grain_count > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_SQUARE_SUMS_F32, sums->dtype), &grid,
                        &arguments);
}

void coh_cuda_clip(void *queue, const coh_clip *clip)
{
    const coh_cuda_grid grid = coh_cuda_blocks(1, COH_CLIP_SUMS);
    coh_cuda_launch(queue, COH_CUDA_CELLS_CLIP, &grid, clip);
}

/* The kernels of the optimizers, by coh_optimizer.cuda_kernel: for f32 and, next, for bf16. */
static const struct {
    const char *name;
    coh_cuda_kernel f32;
} update_kernels[] = {
    { "adamw", COH_CUDA_ADAMW_F32 },
    { "adamw8", COH_CUDA_ADAMW8_F32 },
    { "lion", COH_CUDA_LION_F32 },
    { "sgd", COH_CUDA_SGD_F32 },
};

/* Returns the kernel of an optimizer for a dtype, or fails the queue and returns -1. */
static int find_update(void *queue, const coh_optimizer *optimizer, coh_dtype dtype)
{
    for (size_t i = 0; i < sizeof(update_kernels) / sizeof(update_kernels[0]); i++)
        if (optimizer->cuda_kernel != NULL &&
            strcmp(optimizer->cuda_kernel, update_kernels[i].name) == 0)
            return (int)coh_cuda_of(update_kernels[i].f32, dtype);
    coh_cuda_queue_fail(
        queue, coh_fail(COH_ERR_INTERNAL, "optimizer %s has no kernel for a GPU", optimizer->name));
    return -1;
}

/* Returns 1 if the states lie at multiples of 16 bytes. */
static int states_are_packed(const coh_update *update)
{
    int packed = 1;
    for (int32_t i = 0; i < update->optimizer->stream_count; i++)
        packed &= COH_CUDA_PACKED(update->states[i]);
    return packed;
}

/* Sums of squares have a separate launch: the gradient is only 2 of a parameter's 26 bytes. */
void coh_cuda_update(void *queue, const coh_update *update)
{
    const coh_optimizer *optimizer = update->optimizer;
    coh_cuda_update_arguments arguments = {
        .work = update->work,
        .grad = update->grad,
        .low = update->low,
        .cells = update->cells,
        .predicate = coh_cuda_take_predicate(queue),
        .scalar_begin = update->scalar_begin,
        .f32_grads = update->f32_grads,
        .packed =
            COH_CUDA_PACKED(update->work, update->grad, update->low) && states_are_packed(update),
    };
    memcpy(arguments.states, update->states, sizeof(arguments.states));
    for (int32_t i = 0; i < optimizer->hyperparameter_count; i++)
        arguments.hyperparameters[i] = update->hyperparameters[i];
    const int64_t grains = take_grains(&arguments.grains, &update->grains);
    const coh_cuda_grid grid = coh_cuda_blocks(grains * COH_CUDA_UPDATE_PARTS, 256);
    if (grains == 0)
        return;
    const int kernel = find_update(queue, optimizer, update->dtype);
    if (kernel < 0)
        return;
    if (update->partials != NULL && arguments.predicate != NULL)
        coh_cuda_queue_fail(
            queue, coh_fail(COH_ERR_INTERNAL, "an update with a predicate makes no partials"));
    if (update->partials != NULL)
        coh_cuda_square_sums(
            queue, &(coh_square_sums){ .dtype = coh_grad_dtype(update->dtype, update->f32_grads),
                                       .grains = update->grains,
                                       .grad = update->grad,
                                       .partials = update->partials });
    coh_cuda_launch(queue, (coh_cuda_kernel)kernel, &grid, &arguments);
}

void coh_cuda_settle(void *queue, coh_cells *cells)
{
    const coh_cuda_settle_arguments arguments = { cells };
    const coh_cuda_grid warp = coh_cuda_blocks(1, 32);
    coh_cuda_launch(queue, COH_CUDA_CELLS_SETTLE, &warp, &arguments);
}
