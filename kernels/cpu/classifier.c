/* The classifier on the host: softmax cross-entropy over x weight^T, tile by tile, so that without
 * a cache the logits of only one tile exist at a time. Next: kernels/classifier.h for the tiles,
 * isa/classes.c. */
#include "kernels/table.h"

#include <math.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/classifier.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* loss = 1/N sum_n (max_n + log sum_n - logit_n[target_n]), logits = x weight^T computed tile by
 * tile (a chunk of tokens x COH_ROW_BLOCK rows of the table) and rounded to the model's element
 * type. Backward takes each tile from the cache or computes it again. */
#define SOFTMAX_ROWS 16

/* 4 MiB of logits: table rows read for one tile serve this many tokens, and two such tiles stay in
 * the last-level cache. */
#define TILE_BYTES (4 << 20)

int64_t coh_kernel_classifier_chunk(coh_dtype dtype)
{
    return TILE_BYTES / COH_ROW_BLOCK / (int64_t)coh_dtype_bytes(dtype);
}

int64_t coh_kernel_classifier_logits(coh_dtype dtype, int64_t N, int64_t V)
{
    return smaller(N, coh_kernel_classifier_chunk(dtype)) *
           coh_logit_stride(smaller(V, COH_ROW_BLOCK));
}

int64_t coh_kernel_classifier_dx_sums(coh_dtype dtype, int64_t N, int64_t C)
{
    return dtype == COH_DTYPE_BF16 ? N * C : 0;
}

int64_t coh_kernel_classifier_dweight_sums(coh_dtype dtype, int64_t N, int64_t C, int64_t V)
{
    return dtype == COH_DTYPE_BF16 && N > coh_kernel_classifier_chunk(dtype)
               ? smaller(V, COH_ROW_BLOCK) * C
               : 0;
}

static int64_t row_pieces(const coh_logit_tile *tile)
{
    return (tile->tokens + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS;
}

/* Folds a token's logits of a tile; returns the one of `target` if it is among them. */
static float take_row(const coh_classifier *c, const void *logits, int64_t rows, int64_t n,
                      int64_t target)
{
    const coh_rows *row = coh_rows_for(c->dtype);
    float capped[COH_ROW_BLOCK], logit = 0.0f;
    if (c->cap > 0) {
        row->soft_cap(capped, logits, rows, c->cap);
        coh_rows_get()->softmax_take(capped, rows, &c->max[n], &c->sum[n]);
        return target >= 0 && target < rows ? capped[target] : 0.0f;
    }
    row->softmax_take(logits, rows, &c->max[n], &c->sum[n]);
    if (target >= 0 && target < rows)
        row->gather(&logit, coh_element_const(c->dtype, logits, target), 1);
    return logit;
}

static void take_rows(void *argument, int64_t index)
{
    const coh_logit_tile *tile = argument;
    const coh_classifier *c = tile->c;
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++) {
        const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
        const void *logits = coh_element_const(c->dtype, tile->logits, i * tile->stride);
        const float logit = take_row(c, logits, tile->rows, n, target);
        if (target >= 0 && target < tile->rows)
            c->target_logit[n] = logit;
    }
}

static void take_tile(void *queue, const coh_logit_tile *tile)
{
    coh_parallel(queue, row_pieces(tile), take_rows, (void *)tile);
}

/* Turns logits below their cap into gradients; `p` is that of the target's capped logit. */
static void capped_gradient(const coh_logit_tile *tile, void *logits, int64_t target, float p,
                            float factor, float max)
{
    const coh_classifier *c = tile->c;
    const coh_rows *row = coh_rows_for(c->dtype);
    float capped[COH_ROW_BLOCK], gradient[COH_ROW_BLOCK];
    row->soft_cap(capped, logits, tile->rows, c->cap);
    memcpy(gradient, capped, (size_t)tile->rows * sizeof(float));
    coh_rows_get()->softmax_again(gradient, tile->rows, max, factor);
    if (target >= 0 && target < tile->rows)
        gradient[target] = p;
    row->soft_cap_back(logits, gradient, capped, tile->rows, c->cap);
}

static void gradient_row(const coh_logit_tile *tile, int64_t i, float scale)
{
    const coh_classifier *c = tile->c;
    const coh_rows *row = coh_rows_for(c->dtype);
    const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
    void *logits = coh_element(c->dtype, tile->logits, i * tile->stride);
    if (c->targets[n] < 0) {
        memset(logits, 0, (size_t)tile->rows * coh_dtype_bytes(c->dtype));
        return;
    }
    const float factor = scale / c->sum[n];
    float p = c->target_logit[n]; /* so that p - 1 is rounded only once */
    coh_rows_get()->softmax_again(&p, 1, c->max[n], factor);
    p -= scale;
    if (c->cap > 0) {
        capped_gradient(tile, logits, target, p, factor, c->max[n]);
        return;
    }
    row->softmax_again(logits, tile->rows, c->max[n], factor);
    if (target >= 0 && target < tile->rows)
        row->put(coh_element(c->dtype, logits, target), &p, 1, 0);
}

static void gradient_rows(void *argument, int64_t index)
{
    const coh_logit_tile *tile = argument;
    const coh_classifier *c = tile->c;
    const float loss_factor = c->loss_factor != NULL ? *c->loss_factor : 1.0f;
    const float scale = c->loss_share * loss_factor / (float)c->N;
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++)
        gradient_row(tile, i, scale);
}

static void gradient_tile(void *queue, const coh_logit_tile *tile)
{
    coh_parallel(queue, row_pieces(tile), gradient_rows, (void *)tile);
}

static coh_classifier_device device_of(const coh_classifier *c)
{
    return (coh_classifier_device){ .rows = COH_ROW_BLOCK,
                                    .chunk = coh_kernel_classifier_chunk(c->dtype),
                                    .dweight_sum = c->dweight_sum,
                                    .take = take_tile,
                                    .gradient = gradient_tile };
}

static void finish_loss(const coh_classifier *c)
{
    double loss = 0.0;
    for (int64_t n = 0; n < c->N; n++)
        if (c->targets[n] >= 0)
            loss += (double)c->max[n] + log((double)c->sum[n]) - (double)c->target_logit[n];
    *c->loss = (float)(loss / (double)c->N);
}

void coh_cpu_classifier(void *queue, const coh_classifier *classifier)
{
    for (int64_t n = 0; n < classifier->N && classifier->row_begin == 0; n++) {
        classifier->max[n] = -INFINITY;
        classifier->sum[n] = 0.0f;
        classifier->target_logit[n] = 0.0f;
    }
    const coh_classifier_device device = device_of(classifier);
    coh_classifier_forward(queue, classifier, &device);
    if (classifier->row_end == classifier->V)
        finish_loss(classifier);
}

void coh_cpu_classifier_backward(void *queue, const coh_classifier *classifier)
{
    const coh_classifier_device device = device_of(classifier);
    coh_classifier_backward(queue, classifier, &device);
}
