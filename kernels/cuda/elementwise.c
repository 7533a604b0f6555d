/* Launches the functions of single elements on CUDA: copies, of blocks too, sums, activations,
 * scale, soft cap, swiglu and dropout. Next: elementwise.cu, dropout.cu for the kernels; grid.h. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

/* Each thread takes packs of 16 bytes, or single elements if a tensor is not aligned. */
static void launch_map(void *queue, coh_cuda_kernel f32, coh_dtype dtype,
                       coh_cuda_map_arguments map)
{
    if (map.count <= 0)
        return;
    map.packed = COH_CUDA_PACKED(map.x, map.dy, map.y);
    const coh_cuda_grid grid = coh_cuda_flat(
        queue, map.packed ? coh_cuda_parts(map.count, coh_cuda_pack(dtype)) : map.count);
    coh_cuda_launch(queue, coh_cuda_of(f32, dtype), &grid, &map);
}

void coh_cuda_copy(void *queue, void *to, const void *from, int64_t bytes)
{
    const coh_cuda_map_arguments map = {
        .count = bytes, .x = from, .y = to, .packed = COH_CUDA_PACKED(from, to)
    };
    const coh_cuda_grid grid = coh_cuda_flat(queue, map.packed ? coh_cuda_parts(bytes, 16) : bytes);
    if (bytes > 0)
        coh_cuda_launch(queue, COH_CUDA_COPY, &grid, &map);
}

void coh_cuda_pass(void *queue, coh_dtype dtype, void *to, const void *from, int64_t count,
                   int adds)
{
    if (to == from)
        return;
    if (adds)
        launch_map(queue, COH_CUDA_ADD_F32, dtype,
                   (coh_cuda_map_arguments){ .count = count, .x = from, .y = to });
    else
        coh_cuda_copy(queue, to, from, count * (int64_t)coh_dtype_bytes(dtype));
}

void coh_cuda_round(void *queue, coh_dtype dtype, void *to, const float *from, int64_t count,
                    int adds)
{
    launch_map(queue, COH_CUDA_ROUND_F32, dtype,
               (coh_cuda_map_arguments){ .count = count, .x = from, .y = to, .adds = adds });
}

void coh_cuda_activate(void *queue, coh_activation activation, coh_dtype dtype, void *y,
                       const void *x, int64_t count)
{
    launch_map(queue, activation == COH_ACTIVATION_RELU ? COH_CUDA_RELU_F32 : COH_CUDA_GELU_F32,
               dtype, (coh_cuda_map_arguments){ .count = count, .x = x, .y = y });
}

void coh_cuda_activate_backward(void *queue, coh_activation activation, coh_dtype dtype, void *dx,
                                const void *dy, const void *of, int64_t count, int adds)
{
    launch_map(
        queue,
        activation == COH_ACTIVATION_RELU ? COH_CUDA_RELU_BACKWARD_F32 : COH_CUDA_GELU_BACKWARD_F32,
        dtype,
        (coh_cuda_map_arguments){ .count = count, .x = of, .dy = dy, .y = dx, .adds = adds });
}

void coh_cuda_scale(void *queue, const coh_scale *scale)
{
    launch_map(queue, COH_CUDA_SCALE_F32, scale->dtype,
               (coh_cuda_map_arguments){ .count = scale->count,
                                         .x = scale->x,
                                         .y = scale->y,
                                         .factor = scale->factor,
                                         .adds = scale->adds });
}

void coh_cuda_soft_cap(void *queue, const coh_soft_cap *c)
{
    const int is_whole = c->columns == c->stride;
    for (int64_t row = 0; row < (is_whole ? 1 : c->rows); row++) {
        float *x = c->x + row * c->stride;
        const coh_cuda_map_arguments map = {
            .count = is_whole ? c->rows * c->columns : c->columns, .x = x, .y = x, .factor = c->cap
        };
        const coh_cuda_grid grid = coh_cuda_flat(queue, map.count);
        coh_cuda_launch(queue, COH_CUDA_SOFT_CAP, &grid, &map);
    }
}

/* ---- blocks ---- */

static void launch_blocks(void *queue, coh_dtype dtype, coh_cuda_blocks_arguments blocks)
{
    const int64_t pack = coh_cuda_pack(dtype);
    const int64_t cuts = blocks.columns | blocks.first | blocks.last | blocks.x_stride |
                         blocks.y_stride; /* pack is a power of two */
    if (blocks.count <= 0)
        return;
    blocks.packed = COH_CUDA_PACKED(blocks.x, blocks.y) && cuts % pack == 0;
    const coh_cuda_grid grid =
        coh_cuda_flat(queue, blocks.packed ? coh_cuda_parts(blocks.count, pack) : blocks.count);
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_BLOCKS_F32, dtype), &grid, &blocks);
}

void coh_cuda_take_blocks(void *queue, const coh_blocks *b)
{
    launch_blocks(queue, b->dtype,
                  (coh_cuda_blocks_arguments){
                      .count = b->outer * b->count,
                      .columns = b->count,
                      .last = b->count,
                      .x_stride = b->wide,
                      .y_stride = b->count,
                      .x = coh_element_const(b->dtype, b->whole_in, b->begin),
                      .y = b->part_out,
                      .adds = b->adds,
                  });
}

void coh_cuda_put_blocks(void *queue, const coh_blocks *b)
{
    const int64_t columns = b->clears ? b->wide : b->count, first = b->clears ? b->begin : 0;
    launch_blocks(queue, b->dtype,
                  (coh_cuda_blocks_arguments){
                      .count = b->outer * columns,
                      .columns = columns,
                      .first = first,
                      .last = first + b->count,
                      .x_stride = b->count,
                      .y_stride = b->wide,
                      .x = b->part_in,
                      .y = coh_element(b->dtype, b->whole_out, b->clears ? 0 : b->begin),
                      .adds = b->adds,
                  });
}

void coh_cuda_mean_backward(void *queue, const coh_mean *m)
{
    const int64_t pack = coh_cuda_pack(m->dtype);
    const int64_t equal = m->inner > 1 ? m->inner : m->count; /* a pack stays in one block */
    const coh_cuda_spread_arguments spread = {
        .count = m->outer * m->count * m->inner,
        .repeats = m->count,
        .inner = m->inner,
        .x = m->from,
        .y = m->to,
        .factor = 1.0f / (float)m->count,
        .adds = m->adds,
        .packed = COH_CUDA_PACKED(m->from, m->to) && equal % pack == 0,
    };
    const coh_cuda_grid grid =
        coh_cuda_flat(queue, spread.packed ? coh_cuda_parts(spread.count, pack) : spread.count);
    if (spread.count > 0)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_SPREAD_F32, m->dtype), &grid, &spread);
}

/* ---- gated activations and dropout ---- */

static void launch_swiglu(void *queue, coh_cuda_kernel f32, const coh_swiglu *swiglu)
{
    if (swiglu->count <= 0)
        return;
    const coh_cuda_swiglu_arguments arguments = {
        .count = swiglu->count,
        .columns = swiglu->columns,
        .gate = swiglu->gate,
        .up = swiglu->up,
        .dy = swiglu->dy,
        .y = swiglu->y,
        .dgate = swiglu->dgate,
        .dup = swiglu->dup,
        .dgate_adds = swiglu->dgate_adds,
        .dup_adds = swiglu->dup_adds,
        .packed = COH_CUDA_PACKED(swiglu->gate, swiglu->up, swiglu->dy, swiglu->y, swiglu->dgate,
                                  swiglu->dup) &&
                  swiglu->columns % coh_cuda_pack(swiglu->dtype) == 0,
    };
    const int64_t part = arguments.packed ? coh_cuda_pack(swiglu->dtype) : 1;
    const coh_cuda_grid grid = coh_cuda_flat(queue, coh_cuda_parts(swiglu->count, part));
    coh_cuda_launch(queue, coh_cuda_of(f32, swiglu->dtype), &grid, &arguments);
}

void coh_cuda_swiglu(void *queue, const coh_swiglu *swiglu)
{
    launch_swiglu(queue, swiglu->gelu ? COH_CUDA_GEGLU_F32 : COH_CUDA_SWIGLU_F32, swiglu);
}

void coh_cuda_swiglu_backward(void *queue, const coh_swiglu *swiglu)
{
    launch_swiglu(queue, swiglu->gelu ? COH_CUDA_GEGLU_BACKWARD_F32 : COH_CUDA_SWIGLU_BACKWARD_F32,
                  swiglu);
}

void coh_cuda_dropout(void *queue, const coh_dropout *dropout)
{
    if (dropout->count <= 0)
        return;
    const coh_drop *drop = &dropout->drop;
    const void *base = dropout->adds ? dropout->y : dropout->residual;
    const int64_t pack = coh_cuda_pack(dropout->dtype);
    const coh_cuda_dropout_arguments arguments = {
        .count = dropout->count,
        .first = dropout->first,
        .cell = drop->cell,
        .operator_index = drop->operator_index,
        .microbatch = drop->microbatch,
        .threshold = drop->threshold,
        .scale = drop->scale,
        .x = dropout->x,
        .base = base,
        .y = dropout->y,
        .packed =
            COH_CUDA_PACKED(dropout->x, base, dropout->y) && dropout->first % (uint64_t)pack == 0,
    };
    /* four parts per thread; a tensor may begin and end within a group */
    const int64_t groups = coh_cuda_parts(dropout->count, COH_RANDOM_GROUP) + 1;
    const int64_t part = arguments.packed ? pack : 1;
    const coh_cuda_grid grid = coh_cuda_flat(queue, groups * COH_RANDOM_GROUP / 4 / part);
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_DROPOUT_F32, dropout->dtype), &grid, &arguments);
}

void coh_cuda_nf4(void *queue, const coh_nf4_weight *weight)
{
    enum { CODES = 8 }; /* of a thread */
    if (weight->count <= 0)
        return;
    const coh_cuda_nf4_arguments arguments = { .count = weight->count,
                                               .packed = weight->packed,
                                               .y = weight->y };
    const coh_cuda_grid grid = coh_cuda_flat(queue, coh_cuda_parts(weight->count, CODES));
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_NF4_F32, weight->dtype), &grid, &arguments);
}
