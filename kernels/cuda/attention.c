/* Launches attention's kernels on CUDA: forward, backward and a step of a decoder. Next:
 * attention_arguments.h; attention_forward.cu, attention_backward.cu and attention_general.cu have
 * the kernels. */
#include <math.h>
#include <string.h>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

/* The shape alone selects the kernels: cuDNN if it is installed and takes the shape
 * (attention_cudnn.h), else tiles of bf16, else the general kernels. */

/* The first of a pair of tile kernels; the second one has dropout. If `values` is not `keys`, dk
 * and dv have separate kernels. */
typedef struct tile_kernels {
    int64_t width;
    coh_cuda_kernel forward, dq, keys, values;
} tile_kernels;

#define TILES(W)                                                                                   \
    {                                                                                              \
        W, COH_CUDA_ATTENTION_FORWARD_##W, COH_CUDA_ATTENTION_DQ_##W, COH_CUDA_ATTENTION_DKDV_##W, \
            COH_CUDA_ATTENTION_DKDV_##W                                                            \
    }
static const tile_kernels tiles[] = {
    TILES(32),
    TILES(64),
    TILES(80),
    TILES(96),
    TILES(128),
    { 256, COH_CUDA_ATTENTION_FORWARD_256, COH_CUDA_ATTENTION_DQ_256, COH_CUDA_ATTENTION_DK_256,
      COH_CUDA_ATTENTION_DV_256 },
};

/* Returns NULL for heads that the tile kernels do not take; they move 16 bytes at a time. Those
 * with dropout neither cap scores nor take documents: their registers would spill. */
static const tile_kernels *tiles_of(const coh_attention *a)
{
    if (a->dtype != COH_DTYPE_BF16 || a->D % 8 != 0 || a->q_stride % 8 != 0 ||
        a->kv_stride % 8 != 0 || ((a->cap > 0 || a->positions != NULL) && a->drop.threshold > 0) ||
        !COH_CUDA_PACKED(a->q, a->k, a->v, a->y, a->dy, a->dq, a->dk, a->dv))
        return NULL;
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++)
        if (a->D <= tiles[i].width)
            return &tiles[i];
    return NULL;
}

static float scale_of(float scale, int64_t D)
{
    return scale > 0 ? scale : (float)(1.0 / sqrt((double)D));
}

static coh_attention_arguments arguments_of(const coh_attention *a)
{
    return (coh_attention_arguments){
        .q_stride = a->q_stride,
        .kv_stride = a->kv_stride,
        .first_head = a->first_head,
        .rows = a->B * a->T * a->H,
        .T = (int32_t)a->T,
        .H = (int32_t)a->H,
        .G = (int32_t)a->G,
        .D = (int32_t)a->D,
        .window = (int32_t)(a->window > 0 ? a->window : a->T),
        .positions = a->positions,
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .y = a->y,
        .lse = a->lse,
        .dy = a->dy,
        .delta = a->scratch,
        .dq = a->dq,
        .dk = a->dk,
        .dv = a->dv,
        .dq_adds = a->dq_adds,
        .dk_adds = a->dk_adds,
        .dv_adds = a->dv_adds,
        .scale = scale_of(a->scale, a->D),
        .cap = a->cap,
        .to_cap = a->cap > 0 ? scale_of(a->scale, a->D) / a->cap : 0.0f,
        .from_cap = a->cap > 0 ? 1.0f / a->cap : 0.0f,
        .product_cap = a->cap / scale_of(a->scale, a->D),
        .random_cell = a->drop.cell,
        .operator_index = (uint32_t)a->drop.operator_index,
        .microbatch = (uint32_t)a->drop.microbatch,
        .drop_threshold = a->drop.threshold,
        .drop_scale = a->drop.scale,
    };
}

/* Returns a grid with one block for each of `heads` and each `rows` rows of a sequence. */
static coh_cuda_grid blocks_of(int64_t heads, int64_t T, int64_t rows, uint32_t threads,
                               int64_t shared_bytes)
{
    coh_cuda_grid grid = coh_cuda_blocks(heads, threads);
    grid.y = (uint32_t)coh_cuda_parts(T, rows);
    grid.shared_bytes = (uint32_t)shared_bytes;
    return grid;
}

static coh_cuda_grid tile_blocks(int64_t heads, int64_t T, int64_t width, int64_t rows,
                                 int64_t statistics)
{
    return blocks_of(heads, T, COH_ATTENTION_ROWS, COH_ATTENTION_THREADS,
                     rows * (width + COH_ATTENTION_PAD) * 2 + statistics * 4);
}

static coh_cuda_grid general_blocks(int64_t heads, int64_t T, int64_t columns, int64_t sums)
{
    return blocks_of(heads, T, COH_ATTENTION_GENERAL_ROWS, COH_ATTENTION_GENERAL_THREADS,
                     sums * coh_cuda_parts(columns, 32) * 32 * COH_ATTENTION_GENERAL_ROWS * 4);
}

void coh_cuda_attention(void *queue, const coh_attention *a)
{
    if (a->B * a->T == 0 || coh_cudnn_attention(queue, a))
        return;
    const coh_attention_arguments arguments = arguments_of(a);
    const tile_kernels *tile = tiles_of(a);
    if (tile == NULL) {
        const coh_cuda_grid grid = general_blocks(a->B * a->H, a->T, a->D, 1);
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_FORWARD_F32, a->dtype), &grid,
                        &arguments);
        return;
    }
    const int64_t W = tile->width, keys = 4 * COH_ATTENTION_FORWARD_KEYS(W);
    const coh_cuda_grid grid = tile_blocks(
        a->B * a->H, a->T, W, keys + (COH_ATTENTION_HOLDS(W) ? 0 : COH_ATTENTION_ROWS), 0);
    coh_cuda_launch(queue, tile->forward + (a->drop.threshold > 0), &grid, &arguments);
}

static void tile_backward(void *queue, const coh_attention *a, const tile_kernels *tile,
                          const coh_attention_arguments *arguments)
{
    const int64_t W = tile->width, drops = a->drop.threshold > 0;
    const int64_t passed = COH_ATTENTION_BACKWARD_SIDES(W) * COH_ATTENTION_BACKWARD_ROWS(W);
    const coh_cuda_grid keys =
        tile_blocks(a->B * a->G, a->T, W, 2 * COH_ATTENTION_ROWS + 2 * passed, 3 * passed);
    const coh_cuda_grid queries =
        tile_blocks(a->B * a->H, a->T, W, 2 * COH_ATTENTION_ROWS + 2 * passed, 0);
    if (a->dk != NULL || (a->dv != NULL && tile->values == tile->keys))
        coh_cuda_launch(queue, tile->keys + drops, &keys, arguments);
    if (a->dv != NULL && tile->values != tile->keys)
        coh_cuda_launch(queue, tile->values + drops, &keys, arguments);
    if (a->dq != NULL)
        coh_cuda_launch(queue, tile->dq + drops, &queries, arguments);
}

/* dq comes last, because it may share memory with dy. */
void coh_cuda_attention_backward(void *queue, const coh_attention *a)
{
    if (a->B * a->T == 0 || coh_cudnn_attention_backward(queue, a))
        return;
    const coh_attention_arguments arguments = arguments_of(a);
    const tile_kernels *tile = tiles_of(a);
    const coh_cuda_grid delta = coh_cuda_blocks(
        coh_cuda_parts(arguments.rows, COH_ATTENTION_DELTA_ROWS), 32 * COH_ATTENTION_DELTA_ROWS);
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_DELTA_F32, a->dtype), &delta, &arguments);
    if (tile != NULL) {
        tile_backward(queue, a, tile, &arguments);
        return;
    }
    const int64_t columns =
        a->D < COH_ATTENTION_GENERAL_COLUMNS ? a->D : COH_ATTENTION_GENERAL_COLUMNS;
    coh_cuda_grid keys = general_blocks(a->B * a->G, a->T, columns, 2);
    keys.z = (uint32_t)coh_cuda_parts(a->D, COH_ATTENTION_GENERAL_COLUMNS);
    const coh_cuda_grid queries = general_blocks(a->B * a->H, a->T, a->D, 1);
    if (a->dk != NULL || a->dv != NULL)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_DKDV_F32, a->dtype), &keys,
                        &arguments);
    if (a->dq != NULL)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_DQ_F32, a->dtype), &queries,
                        &arguments);
}

void coh_cuda_attention_decode(void *queue, const coh_attention_decode *d)
{
    const int64_t heads = d->B * d->T * d->H, parts = coh_cuda_decode_parts(d->positions, d->T);
    const coh_attention_decode_arguments arguments = {
        .q_stride = d->q_stride,
        .kv_stride = d->kv_stride,
        .positions = d->positions,
        .T = d->T,
        .window = d->window > 0 ? d->window : d->positions,
        .position = d->position,
        .H = (int32_t)d->H,
        .G = (int32_t)d->G,
        .D = (int32_t)d->D,
        .scale = scale_of(d->scale, d->D),
        .cap = d->cap,
        .q = d->q,
        .k = d->k,
        .v = d->v,
        .keys = d->keys,
        .values = d->values,
        .y = d->y,
        .part_keys = coh_cuda_decode_part_keys(d->T),
        .parts = parts,
        .sums = d->scratch,
        .facts = parts > 1 ? d->scratch + heads * parts * d->D : NULL,
    };
    coh_cuda_grid grid = coh_cuda_blocks(heads, COH_ATTENTION_DECODE_THREADS);
    grid.y = (uint32_t)parts;
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_DECODE_F32, d->dtype), &grid, &arguments);
    grid.y = 1;
    if (parts > 1)
        coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ATTENTION_DECODE_JOIN_F32, d->dtype), &grid,
                        &arguments);
}
