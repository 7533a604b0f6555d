/* The classifier on the host: softmax cross-entropy over x weight^T, tile by tile, so that without
 * a cache the logits of only one tile exist at a time. Next: kernels/kernels.h (coh_classifier),
 * isa/classes.c. */
#include "kernels/table.h"

#include <math.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* loss = 1/N sum_n (max_n + log sum_n - logit_n[target_n]), logits = x weight^T computed tile by
 * tile (a chunk of tokens x COH_ROW_BLOCK rows of the table) and rounded to the model's element
 * type. Backward takes each tile from the cache or computes it again, turns it into dlogits =
 * (softmax - onehot) loss_share loss_factor / N in place, and adds its part of dx and dweight.
 * Blocks of rows are in rising order, chunks of tokens rise within a block, whatever the ranges of
 * the calls.
 *
 *           v0      v0+1024
 *     n0  +-------+-------+--          cache: a block's tiles follow one another, tile (v0, n0) at
 *         | tile 0| tile 2|            element v0 N + n0 rows(v0): forward writes them in sequence,
 *   n0+.. +-------+-------+--          backward reads them in sequence
 *         | tile 1| tile 3|
 *
 * In bf16, dx has as many parts as the table has blocks, and dweight as many as there are chunks.
 * If each part were rounded once, they would lose bits that a single product keeps. So they are
 * summed in f32 (dx_sum, dweight_sum) and rounded at the end. */
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
    return smaller(N, coh_kernel_classifier_chunk(dtype)) * smaller(V, COH_ROW_BLOCK);
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

/* Tokens [n0, n0 + tokens) against table rows [v0, v0 + rows). */
typedef struct logit_tile {
    const coh_classifier *c;
    const void *weight; /* row v0 */
    void *logits;
    int64_t n0, tokens, v0, rows;
    float gradient_scale;
} logit_tile;

static void make_logits(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    coh_matmul product = { .layout = COH_MATMUL_NT,
                           .dtype = c->dtype,
                           .c_dtype = c->dtype,
                           .rows = tile->tokens,
                           .columns = tile->rows,
                           .depth = c->C,
                           .a = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                           .b = tile->weight,
                           .a_stride = c->C,
                           .b_stride = c->C,
                           .c_stride = tile->rows,
                           .c = tile->logits };
    coh_cpu_matmul(queue, &product);
}

static void take_rows(void *argument, int64_t index)
{
    const logit_tile *tile = argument;
    const coh_classifier *c = tile->c;
    const coh_rows *row = coh_rows_for(c->dtype);
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++) {
        const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
        const void *logits = coh_element_const(c->dtype, tile->logits, i * tile->rows);
        row->softmax_take(logits, tile->rows, &c->max[n], &c->sum[n]);
        if (target >= 0 && target < tile->rows) {
            c->target_logit[n] = 0.0f;
            row->gather(&c->target_logit[n], coh_element_const(c->dtype, logits, target), 1);
        }
    }
}

static void gradient_row(const logit_tile *tile, int64_t i)
{
    const coh_classifier *c = tile->c;
    const coh_rows *row = coh_rows_for(c->dtype);
    const int64_t n = tile->n0 + i, target = c->targets[n] - tile->v0;
    void *logits = coh_element(c->dtype, tile->logits, i * tile->rows);
    if (c->targets[n] < 0) {
        memset(logits, 0, (size_t)tile->rows * coh_dtype_bytes(c->dtype));
        return;
    }
    const float factor = tile->gradient_scale / c->sum[n];
    row->softmax_again(logits, tile->rows, c->max[n], factor);
    if (target >= 0 && target < tile->rows) {
        float p = c->target_logit[n]; /* so that p - 1 is rounded only once */
        coh_rows_get()->softmax_again(&p, 1, c->max[n], factor);
        p -= tile->gradient_scale;
        row->put(coh_element(c->dtype, logits, target), &p, 1, 0);
    }
}

static void gradient_rows(void *argument, int64_t index)
{
    const logit_tile *tile = argument;
    const int64_t end = smaller((index + 1) * SOFTMAX_ROWS, tile->tokens);
    for (int64_t i = index * SOFTMAX_ROWS; i < end; i++)
        gradient_row(tile, i);
}

static int64_t row_pieces(const logit_tile *tile)
{
    return (tile->tokens + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS;
}

static void spread_to_dx(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const int64_t at = tile->n0 * c->C;
    coh_matmul product = { .layout = COH_MATMUL_NN,
                           .dtype = c->dtype,
                           .c_dtype = COH_DTYPE_F32,
                           .rows = tile->tokens,
                           .columns = c->C,
                           .depth = tile->rows,
                           .a = tile->logits,
                           .b = tile->weight,
                           .a_stride = tile->rows,
                           .b_stride = c->C,
                           .c_stride = c->C,
                           .c = c->dx_sum != NULL ? c->dx_sum + at : (float *)c->dx + at,
                           .adds = tile->v0 > 0 || (c->dx_sum == NULL && c->dx_adds) };
    coh_cpu_matmul(queue, &product);
}

/* Is dweight summed over the chunks of tokens in a separate buffer, to be rounded once? */
static int has_dweight_sums(const coh_classifier *c)
{
    return c->dweight_sum != NULL && !c->f32_grads;
}

static void spread_to_dweight(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    const int sums = has_dweight_sums(c);
    const coh_dtype dtype = coh_grad_dtype(c->dtype, sums || c->f32_grads);
    coh_matmul product = { .layout = COH_MATMUL_TN,
                           .dtype = c->dtype,
                           .c_dtype = dtype,
                           .rows = tile->rows,
                           .columns = c->C,
                           .depth = tile->tokens,
                           .a = tile->logits,
                           .b = coh_element_const(c->dtype, c->x, tile->n0 * c->C),
                           .a_stride = tile->rows,
                           .b_stride = c->C,
                           .c_stride = c->C,
                           .c = coh_element(dtype, c->dweight, (tile->v0 - c->row_begin) * c->C),
                           .adds = tile->n0 > 0 || (!sums && c->dweight_adds) };
    if (sums)
        product.c = c->dweight_sum;
    coh_cpu_matmul(queue, &product);
}

/* Rows of f32 sums, rounded to their destination. */
typedef struct rounding {
    const coh_classifier *c;
    void *to;
    const float *from;
    int64_t rows;
    int adds;
} rounding;

static void round_rows(void *argument, int64_t index)
{
    const rounding *job = argument;
    const coh_classifier *c = job->c;
    const int64_t begin = index * SOFTMAX_ROWS, rows = smaller(SOFTMAX_ROWS, job->rows - begin);
    coh_rows_for(c->dtype)->put(coh_element(c->dtype, job->to, begin * c->C),
                                job->from + begin * c->C, rows * c->C, job->adds);
}

static void round_sums(void *queue, rounding job)
{
    coh_parallel(queue, (job.rows + SOFTMAX_ROWS - 1) / SOFTMAX_ROWS, round_rows, &job);
}

static void take_tile(void *queue, const logit_tile *tile)
{
    make_logits(queue, tile);
    coh_parallel(queue, row_pieces(tile), take_rows, (void *)tile);
}

static void gradient_tile(void *queue, const logit_tile *tile)
{
    const coh_classifier *c = tile->c;
    if (c->cache == NULL)
        make_logits(queue, tile);
    coh_parallel(queue, row_pieces(tile), gradient_rows, (void *)tile);
    if (c->dx != NULL)
        spread_to_dx(queue, tile);
    if (c->dweight != NULL)
        spread_to_dweight(queue, tile);
    if (c->dweight != NULL && has_dweight_sums(c) && tile->n0 + tile->tokens == c->N)
        round_sums(queue, (rounding){ .c = c,
                                      .to = coh_element(c->dtype, c->dweight,
                                                        (tile->v0 - c->row_begin) * c->C),
                                      .from = c->dweight_sum,
                                      .rows = tile->rows,
                                      .adds = c->dweight_adds });
}

static void each_tile(void *queue, const coh_classifier *c,
                      void (*use)(void *queue, const logit_tile *tile))
{
    const int64_t chunk = coh_kernel_classifier_chunk(c->dtype);
    const float loss_factor = c->loss_factor != NULL ? *c->loss_factor : 1.0f;
    logit_tile tile = { .c = c, .gradient_scale = c->loss_share * loss_factor / (float)c->N };
    for (tile.v0 = c->row_begin; tile.v0 < c->row_end; tile.v0 += COH_ROW_BLOCK) {
        tile.rows = smaller(COH_ROW_BLOCK, c->row_end - tile.v0);
        tile.weight = coh_element_const(c->dtype, c->weight, (tile.v0 - c->row_begin) * c->C);
        for (tile.n0 = 0; tile.n0 < c->N; tile.n0 += chunk) {
            tile.tokens = smaller(chunk, c->N - tile.n0);
            tile.logits = c->logits;
            if (c->cache != NULL)
                tile.logits = coh_element(c->dtype, c->cache, tile.v0 * c->N + tile.n0 * tile.rows);
            use(queue, &tile);
        }
    }
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
    each_tile(queue, classifier, take_tile);
    if (classifier->row_end == classifier->V)
        finish_loss(classifier);
}

void coh_cpu_classifier_backward(void *queue, const coh_classifier *classifier)
{
    each_tile(queue, classifier, gradient_tile);
    if (classifier->dx != NULL && classifier->dx_sum != NULL &&
        classifier->row_end == classifier->V)
        round_sums(queue, (rounding){ .c = classifier,
                                      .to = classifier->dx,
                                      .from = classifier->dx_sum,
                                      .rows = classifier->N,
                                      .adds = classifier->dx_adds });
}
