/* Launches embedding and position kernels on CUDA. Backward sorts keys of tokens first, so that
 * rows are summed in token order without atomics. Next: embedding.cu, arguments.h. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

#define WARP 32

static coh_cuda_embedding_arguments arguments_of(const coh_embedding *embedding, const void *from,
                                                 void *to)
{
    return (coh_cuda_embedding_arguments){
        .N = embedding->N,
        .C = embedding->C,
        .row_begin = embedding->row_begin,
        .row_end = embedding->row_end,
        .tokens = embedding->tokens,
        .padding = -1,
        .from = from,
        .to = to,
        .packed = COH_CUDA_PACKED(from, to) && embedding->C % coh_cuda_pack(embedding->dtype) == 0,
    };
}

void coh_cuda_embedding(void *queue, const coh_embedding *embedding, void *y, const void *weight)
{
    const coh_cuda_embedding_arguments arguments = arguments_of(embedding, weight, y);
    const coh_cuda_grid grid = coh_cuda_flat(queue, embedding->N * WARP);
    if (embedding->N > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_EMBEDDING_F32, embedding->dtype), &grid,
                        &arguments);
}

/* Sorts the keys of all tokens into arguments->keys. */
static void sort_keys(void *queue, coh_cuda_embedding_arguments *arguments, uint64_t *keys)
{
    const int64_t N = arguments->N;
    const coh_cuda_grid tiles =
        coh_cuda_blocks(coh_cuda_parts(N, COH_CUDA_SORT_TILE), COH_CUDA_SORT_TILE / 2);
    const coh_cuda_grid flat = coh_cuda_flat(queue, N);
    arguments->keys = keys;
    coh_cuda_launch(queue, COH_CUDA_EMBEDDING_SORT, &tiles, arguments);
    for (int64_t run = COH_CUDA_SORT_TILE; run < N; run *= 2) {
        arguments->spare = arguments->keys;
        arguments->keys = arguments->keys == keys ? keys + N : keys;
        arguments->run = run;
        coh_cuda_launch(queue, COH_CUDA_EMBEDDING_MERGE, &flat, arguments);
    }
}

void coh_cuda_embedding_backward(void *queue, const coh_embedding *embedding, void *dweight,
                                 const void *dy, int adds)
{
    const int64_t N = embedding->N, C = embedding->C, pack = coh_cuda_pack(embedding->dtype);
    const int64_t rows = embedding->row_end - embedding->row_begin;
    coh_cuda_embedding_arguments arguments = arguments_of(embedding, dy, dweight);
    const coh_dtype dtype = coh_grad_dtype(embedding->dtype, embedding->f32_grads);
    if (embedding->has_padding)
        arguments.padding = embedding->padding;
    arguments.f32_grads = embedding->f32_grads;
    if (!adds)
        coh_cuda_copy(queue, dweight, NULL, rows * C * (int64_t)coh_dtype_bytes(dtype));
    if (N == 0)
        return;
    /* rows are zeroed or added to, and each is written once */
    arguments.adds = adds;
    sort_keys(queue, &arguments, (uint64_t *)(void *)embedding->order);
    const coh_cuda_grid places = coh_cuda_flat(queue, N * WARP);
    coh_cuda_grid heavy = coh_cuda_blocks(coh_cuda_parts(N, WARP), COH_CUDA_HEAVY_THREADS);
    heavy.y = (uint32_t)coh_cuda_parts(C, WARP * pack);
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_EMBEDDING_ROWS_F32, embedding->dtype), &places,
                    &arguments);
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_EMBEDDING_HEAVY_F32, embedding->dtype), &heavy,
                    &arguments);
}

/* ---- position ---- */

/* Parts of the range of sequences in the grid, if one sequence has too few threads. */
#define SEQUENCES_MOST 8

void coh_cuda_position(void *queue, const coh_position *position)
{
    const int64_t C = position->C, plane = position->T * C, pack = coh_cuda_pack(position->dtype);
    const coh_cuda_position_arguments arguments = {
        .B = position->B,
        .C = C,
        .plane = plane,
        .x = position->x,
        .y = position->y,
        .weight = position->weight,
        .table = position->rows * C,
        .position = position->position,
        .packed = COH_CUDA_PACKED(position->x, position->y, position->weight) && C % pack == 0,
    };
    coh_cuda_grid grid = coh_cuda_flat(queue, arguments.packed ? plane / pack : plane);
    grid.y = (uint32_t)(position->B < SEQUENCES_MOST ? position->B : SEQUENCES_MOST);
    if (position->B > 0 && plane > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_POSITION_F32, position->dtype), &grid,
                        &arguments);
}

void coh_cuda_position_backward(void *queue, const coh_position_gradient *gradient)
{
    const int64_t C = gradient->C, pack = coh_cuda_pack(gradient->dtype);
    const coh_cuda_position_arguments arguments = {
        .B = gradient->B,
        .C = C,
        .plane = gradient->T * C,
        .x = gradient->dy,
        .y = gradient->dweight,
        .begin = gradient->offset * C,
        .count = gradient->rows * C,
        .adds = gradient->adds,
        .f32_grads = gradient->f32_grads,
        .packed = COH_CUDA_PACKED(gradient->dy, gradient->dweight) && C % pack == 0,
    };
    const int64_t units = arguments.packed ? arguments.count / pack : arguments.count;
    const coh_cuda_grid grid = coh_cuda_flat(queue, units);
    if (units > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_POSITION_BACKWARD_F32, gradient->dtype), &grid,
                        &arguments);
}
