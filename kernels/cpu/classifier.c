#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* loss = 1/N sum_n (max_n + log sum_n - logit_n[target_n]), logits = x weight^T taken tile by tile
 * (COH_TOKEN_CHUNK tokens x COH_ROW_BLOCK rows of the table). Backward makes each tile again, turns
 * it into dlogits = (softmax - onehot) loss_scale / N in place, and adds its part of dx and
 * dweight: blocks of rows rising, chunks of tokens rising inside, whatever
 * ranges the calls bring. */
#define SOFTMAX_ROWS 16

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t coh_kernel_classifier_logits(int64_t N, int64_t V)
{
    return smaller(N, COH_TOKEN_CHUNK) * smaller(V, COH_ROW_BLOCK);
}

/* Tokens [n0, n0 + tokens) against table rows [v0, v0 + rows). */
typedef struct logit_tile {
    const coh_classifier *c;
    const void *weight; /* row v0 */
    int64_t n0, tokens, v0, rows;
    float gradient_scale;
} logit_tile;

static void make_logits(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    coh_matmul product = { .layout = COH_MATMUL_NT,
                           .rows = tile->tokens,
                           .columns = tile->rows,
                           .depth = c->C,
                           .a = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                           .b = tile->weight,
                           .a_stride = c->C,
                           .b_stride = c->C,
                           .c_stride = tile->rows,
                           .c = c->logits };
    coh_kernel_matmul(queue, &product);
}

static void take_rows(void *argument, int64_t index)
{
    const logit_tile *tile = argument;
    const coh_classifier *c = tile->c;
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++) {
        const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
        const float *logits = (const float *)c->logits + i * tile->rows;
        coh_rows_get()->softmax_take(logits, tile->rows, &c->max[n], &c->sum[n]);
        if (target >= 0 && target < tile->rows)
            c->target_logit[n] = logits[target];
    }
}

static void gradient_rows(void *argument, int64_t index)
{
    const logit_tile *tile = argument;
    const coh_classifier *c = tile->c;
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++) {
        const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
        float *logits = (float *)c->logits + i * tile->rows;
        if (c->targets[n] < 0) {
            memset(logits, 0, (size_t)tile->rows * sizeof(float));
            continue;
        }
        coh_rows_get()->softmax_again(logits, tile->rows, c->max[n],
                                      tile->gradient_scale / c->sum[n]);
        if (target >= 0 && target < tile->rows)
            logits[target] -= tile->gradient_scale;
    }
}

static int64_t row_pieces(const logit_tile *tile)
{
    return (tile->tokens + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS;
}

static void spread_gradient(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    if (c->dx != NULL) {
        coh_matmul product = { .layout = COH_MATMUL_NN,
                               .rows = tile->tokens,
                               .columns = c->C,
                               .depth = tile->rows,
                               .a = c->logits,
                               .b = tile->weight,
                               .a_stride = tile->rows,
                               .b_stride = c->C,
                               .c_stride = c->C,
                               .c = coh_element(c->dtype, c->dx, tile->n0 * c->C),
                               .adds = c->dx_adds || tile->v0 > 0 };
        coh_kernel_matmul(queue, &product);
    }
    if (c->dweight != NULL) {
        coh_matmul product = { .layout = COH_MATMUL_TN,
                               .rows = tile->rows,
                               .columns = c->C,
                               .depth = tile->tokens,
                               .a = c->logits,
                               .b = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                               .a_stride = tile->rows,
                               .b_stride = c->C,
                               .c_stride = c->C,
                               .c = coh_element(c->dtype, c->dweight,
                                                (tile->v0 - c->row_begin) * c->C),
                               .adds = c->dweight_adds || tile->n0 > 0 };
        coh_kernel_matmul(queue, &product);
    }
}

static void each_tile(void *queue, const coh_classifier *c,
                      void (*use)(void *queue, const logit_tile *tile))
{
    logit_tile tile = { .c = c, .gradient_scale = c->loss_scale / (float)c->N };
    for (tile.v0 = c->row_begin; tile.v0 < c->row_end; tile.v0 += COH_ROW_BLOCK) {
        tile.rows = smaller(COH_ROW_BLOCK, c->row_end - tile.v0);
        tile.weight = coh_element_const(c->dtype, c->weight, (tile.v0 - c->row_begin) * c->C);
        for (tile.n0 = 0; tile.n0 < c->N; tile.n0 += COH_TOKEN_CHUNK) {
            tile.tokens = smaller(COH_TOKEN_CHUNK, c->N - tile.n0);
            make_logits(queue, &tile);
            use(queue, &tile);
        }
    }
}

static void take_tile(void *queue, const logit_tile *tile)
{
    coh_parallel(queue, row_pieces(tile), take_rows, (void *)tile);
}

static void gradient_tile(void *queue, const logit_tile *tile)
{
    coh_parallel(queue, row_pieces(tile), gradient_rows, (void *)tile);
    spread_gradient(queue, tile);
}

static void finish_loss(const coh_classifier *c)
{
    double loss = 0.0;
    for (int64_t n = 0; n < c->N; n++)
        if (c->targets[n] >= 0)
            loss += (double)c->max[n] + log((double)c->sum[n]) - (double)c->target_logit[n];
    *c->loss = (float)(loss / (double)c->N);
}

void coh_kernel_classifier(void *queue, const coh_classifier *classifier)
{
    for (int64_t n = 0; n < classifier->N && classifier->row_begin == 0; n++) {
        classifier->max[n] = -INFINITY;
        classifier->sum[n] = 0.0f;
        classifier->target_logit[n] = 0.0f;
    }
    each_tile(queue, classifier, take_tile);
    if (classifier->row_end == classifier->V)
        finish_loss(classifier);
}

void coh_kernel_classifier_backward(void *queue, const coh_classifier *classifier)
{
    each_tile(queue, classifier, gradient_tile);
}
