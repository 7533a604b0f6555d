/* The classifier on CUDA: cuts logits into tiles and launches products and softmax kernels for
 * each. Next: classifier.cu, scratch.h; kernels/cpu/classifier.c has the drawing. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"

/* Tiles are cut as in kernels/cpu/classifier.c, but with more tokens. The additions of a tile and
 * their order follow from N, C and V alone, whatever the ranges of rows in the calls. In bf16, dx
 * is summed in f32 over all tiles, and dweight over the chunks of tokens. */

#define WARP 32

_Static_assert(COH_CUDA_LOGIT_ROWS == COH_ROW_BLOCK, "a warp holds a row of a tile");

/* Tokens [n0, n0 + tokens) against table rows [v0, v0 + rows). */
typedef struct logit_tile {
    const coh_classifier *c;
    const void *weight; /* row v0 */
    void *logits;
    float *dweight_sum; /* NULL: one chunk, or f32 */
    int64_t n0, tokens, v0, rows, stride;
} logit_tile;

static const void *element_const(coh_dtype dtype, const void *tensor, int64_t index)
{
    return (const char *)tensor + (size_t)index * coh_dtype_bytes(dtype);
}

static void *element(coh_dtype dtype, void *tensor, int64_t index)
{
    return (char *)tensor + (size_t)index * coh_dtype_bytes(dtype);
}

static void make_logits(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const coh_matmul product = { .layout = COH_MATMUL_NT,
                                 .dtype = c->dtype,
                                 .c_dtype = c->dtype,
                                 .rows = tile->tokens,
                                 .columns = tile->rows,
                                 .depth = c->C,
                                 .a = element_const(c->dtype, c->x, tile->n0 * c->C),
                                 .b = tile->weight,
                                 .a_stride = c->C,
                                 .b_stride = c->C,
                                 .c_stride = tile->stride,
                                 .c = tile->logits };
    coh_kernel_matmul(queue, &product);
}

/* Launches one warp per token. */
static void launch_rows(void *queue, coh_cuda_kernel f32, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const coh_cuda_logits_arguments arguments = {
        .tokens = tile->tokens,
        .rows = tile->rows,
        .stride = tile->stride,
        .v0 = tile->v0,
        .logits = tile->logits,
        .targets = c->targets + tile->n0,
        .max = c->max + tile->n0,
        .sum = c->sum + tile->n0,
        .target_logit = c->target_logit + tile->n0,
        .loss_factor = c->loss_factor,
        .share = c->loss_share,
        .N = c->N,
        .packed = COH_CUDA_PACKED(tile->logits) && tile->stride % coh_cuda_pack(c->dtype) == 0,
    };
    const coh_cuda_grid grid = coh_cuda_flat(queue, tile->tokens * WARP);
    coh_cuda_launch(queue, coh_cuda_of(f32, c->dtype), &grid, &arguments);
}

static void spread_to_dx(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const int64_t at = tile->n0 * c->C;
    const coh_matmul product = {
        .layout = COH_MATMUL_NN,
        .dtype = c->dtype,
        .c_dtype = COH_DTYPE_F32,
        .rows = tile->tokens,
        .columns = c->C,
        .depth = tile->rows,
        .a = tile->logits,
        .b = tile->weight,
        .a_stride = tile->stride,
        .b_stride = c->C,
        .c_stride = c->C,
        .c = c->dx_sum != NULL ? c->dx_sum + at : (float *)c->dx + at,
        .adds = tile->v0 > 0 || (c->dx_sum == NULL && c->dx_adds),
    };
    coh_kernel_matmul(queue, &product);
}

static void spread_to_dweight(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const int sums = tile->dweight_sum != NULL && !c->f32_grads;
    const coh_dtype dtype = coh_grad_dtype(c->dtype, c->f32_grads);
    void *dweight = element(dtype, c->dweight, (tile->v0 - c->row_begin) * c->C);
    const coh_matmul product = {
        .layout = COH_MATMUL_TN,
        .dtype = c->dtype,
        .c_dtype = sums ? COH_DTYPE_F32 : dtype,
        .rows = tile->rows,
        .columns = c->C,
        .depth = tile->tokens,
        .a = tile->logits,
        .b = element_const(c->dtype, c->x, tile->n0 * c->C),
        .a_stride = tile->stride,
        .b_stride = c->C,
        .c_stride = c->C,
        .c = sums ? tile->dweight_sum : dweight,
        .adds = tile->n0 > 0 || (!sums && c->dweight_adds),
    };
    coh_kernel_matmul(queue, &product);
    if (sums && tile->n0 + tile->tokens == c->N)
        coh_cuda_round(queue, c->dtype, dweight, tile->dweight_sum, tile->rows * c->C,
                       c->dweight_adds);
}

static void take_tile(void *queue, const logit_tile *tile)
{
    make_logits(queue, tile);
    launch_rows(queue, COH_CUDA_CLASSIFIER_TAKE_F32, tile);
}

static void gradient_tile(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    if (c->cache == NULL)
        make_logits(queue, tile);
    launch_rows(queue, COH_CUDA_CLASSIFIER_GRADIENT_F32, tile);
    if (c->dx != NULL)
        spread_to_dx(queue, tile);
    if (c->dweight != NULL)
        spread_to_dweight(queue, tile);
}

static void each_tile(void *queue, const coh_classifier *c,
                      void (*use)(void *queue, const logit_tile *tile))
{
    const int64_t chunk = coh_cuda_classifier_chunk(c->dtype);
    logit_tile tile = { .c = c };
    if (coh_cuda_classifier_sum_bytes(c->dtype, c->N, c->C, c->V) > 0)
        tile.dweight_sum = (float *)(void *)((char *)c->logits +
                                             coh_cuda_classifier_logit_bytes(c->dtype, c->N, c->V));
    for (tile.v0 = c->row_begin; tile.v0 < c->row_end; tile.v0 += COH_ROW_BLOCK) {
        const int64_t left = c->row_end - tile.v0;
        tile.rows = left < COH_ROW_BLOCK ? left : COH_ROW_BLOCK;
        tile.weight = element_const(c->dtype, c->weight, (tile.v0 - c->row_begin) * c->C);
        tile.stride = c->cache != NULL ? tile.rows : coh_cuda_classifier_stride(tile.rows);
        for (tile.n0 = 0; tile.n0 < c->N; tile.n0 += chunk) {
            tile.tokens = c->N - tile.n0 < chunk ? c->N - tile.n0 : chunk;
            tile.logits = c->logits;
            if (c->cache != NULL)
                tile.logits = element(c->dtype, c->cache, tile.v0 * c->N + tile.n0 * tile.rows);
            use(queue, &tile);
        }
    }
}

void coh_cuda_classifier(void *queue, const coh_classifier *classifier)
{
    const coh_cuda_loss_arguments loss = { .N = classifier->N,
                                           .targets = classifier->targets,
                                           .max = classifier->max,
                                           .sum = classifier->sum,
                                           .target_logit = classifier->target_logit,
                                           .loss = classifier->loss };
    const coh_cuda_grid one = { .x = 1, .y = 1, .z = 1, .threads = COH_CUDA_LOSS_THREADS };
    each_tile(queue, classifier, take_tile);
    if (classifier->row_end == classifier->V)
        coh_cuda_launch(queue, COH_CUDA_CLASSIFIER_LOSS, &one, &loss);
}

void coh_cuda_classifier_backward(void *queue, const coh_classifier *classifier)
{
    each_tile(queue, classifier, gradient_tile);
    if (classifier->dx != NULL && classifier->dx_sum != NULL &&
        classifier->row_end == classifier->V)
        coh_cuda_round(queue, classifier->dtype, classifier->dx, classifier->dx_sum,
                       classifier->N * classifier->C, classifier->dx_adds);
}
