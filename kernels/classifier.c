/* The classifier's walk over tiles of logits, for every device: forward and backward make a tile,
 * pass it to the device's softmax, and backward adds its part of dx and dweight. Next:
 * classifier.h; cpu/classifier.c and cuda/classifier.c have the softmax. */
#include "kernels/classifier.h"

/* In bf16, dx has as many parts as the table has blocks, and dweight as many as there are chunks.
 * If each part were rounded once, they would lose bits that a single product keeps. So they are
 * summed in f32 (dx_sum, dweight_sum) and rounded at the end. */

static void make_logits(void *queue, const coh_logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const coh_matmul product = { .layout = COH_MATMUL_NT,
                                 .dtype = c->dtype,
                                 .c_dtype = c->dtype,
                                 .rows = tile->tokens,
                                 .columns = tile->rows,
                                 .depth = c->C,
                                 .a = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                                 .b = tile->weight,
                                 .a_stride = c->C,
                                 .b_stride = c->C,
                                 .c_stride = tile->stride,
                                 .c = tile->logits };
    coh_kernel_matmul(queue, &product);
}

static void spread_to_dx(void *queue, const coh_logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const int64_t at = tile->n0 * c->C;
    const coh_matmul product = { .layout = COH_MATMUL_NN,
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
                                 .adds = tile->v0 > 0 || (c->dx_sum == NULL && c->dx_adds) };
    coh_kernel_matmul(queue, &product);
}

static void spread_to_dweight(void *queue, const coh_logit_tile *tile, float *dweight_sum)
{
    const coh_classifier *c = tile->c;
    const int has_sums = dweight_sum != NULL && !c->f32_grads;
    const coh_dtype dtype = coh_grad_dtype(c->dtype, c->f32_grads);
    void *dweight = coh_element(dtype, c->dweight, (tile->v0 - c->row_begin) * c->C);
    const coh_matmul product = { .layout = COH_MATMUL_TN,
                                 .dtype = c->dtype,
                                 .c_dtype = has_sums ? COH_DTYPE_F32 : dtype,
                                 .rows = tile->rows,
                                 .columns = c->C,
                                 .depth = tile->tokens,
                                 .a = tile->logits,
                                 .b = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                                 .a_stride = tile->stride,
                                 .b_stride = c->C,
                                 .c_stride = c->C,
                                 .c = has_sums ? dweight_sum : dweight,
                                 .adds = tile->n0 > 0 || (!has_sums && c->dweight_adds) };
    coh_kernel_matmul(queue, &product);
    if (has_sums && tile->n0 + tile->tokens == c->N)
        coh_kernel_round(queue, dtype, dweight, dweight_sum, tile->rows * c->C, c->dweight_adds);
}

static void gradient_tile(void *queue, const coh_logit_tile *tile,
                          const coh_classifier_device *device)
{
    const coh_classifier *c = tile->c;
    if (c->cache == NULL)
        make_logits(queue, tile);
    device->gradient(queue, tile);
    if (c->dx != NULL)
        spread_to_dx(queue, tile);
    if (c->dweight != NULL)
        spread_to_dweight(queue, tile, device->dweight_sum);
}

static void take_tile(void *queue, const coh_logit_tile *tile, const coh_classifier_device *device)
{
    make_logits(queue, tile);
    device->take(queue, tile);
}

static void each_tile(void *queue, const coh_classifier *c, const coh_classifier_device *device,
                      void (*use)(void *queue, const coh_logit_tile *tile,
                                  const coh_classifier_device *device))
{
    coh_logit_tile tile = { .c = c };
    for (tile.v0 = c->row_begin; tile.v0 < c->row_end; tile.v0 += device->rows) {
        const int64_t left = c->row_end - tile.v0;
        tile.rows = left < device->rows ? left : device->rows;
        tile.weight = coh_element_const(c->dtype, c->weight, (tile.v0 - c->row_begin) * c->C);
        tile.stride = coh_logit_stride(tile.rows);
        for (tile.n0 = 0; tile.n0 < c->N; tile.n0 += device->chunk) {
            tile.tokens = c->N - tile.n0 < device->chunk ? c->N - tile.n0 : device->chunk;
            tile.logits = c->logits;
            if (c->cache != NULL)
                tile.logits =
                    coh_element(c->dtype, c->cache, tile.v0 * c->N + tile.n0 * tile.stride);
            use(queue, &tile, device);
        }
    }
}

void coh_classifier_forward(void *queue, const coh_classifier *classifier,
                            const coh_classifier_device *device)
{
    each_tile(queue, classifier, device, take_tile);
}

void coh_classifier_backward(void *queue, const coh_classifier *classifier,
                             const coh_classifier_device *device)
{
    const coh_classifier *c = classifier;
    each_tile(queue, c, device, gradient_tile);
    if (c->dx != NULL && c->dx_sum != NULL && c->row_end == c->V)
        coh_kernel_round(queue, c->dtype, c->dx, c->dx_sum, c->N * c->C, c->dx_adds);
}
