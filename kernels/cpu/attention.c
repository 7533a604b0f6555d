#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* y_i = sum_j p_ij v_j, p_ij = exp(s_ij - lse_i), s_ij = q_i . k_j / sqrt(D), j <= i.
 *
 *            keys 0      256     512
 *   queries 0 |\
 *          64 |##\                 one piece of forward: QUERY_ROWS queries of one head, passing
 *         128 |####\               over tiles of KEY_ROWS keys up to the diagonal, with a running
 *         192 |######\             maximum and sum per query (Dao et al. 2022, alg. 1)
 *         256 |#######|\
 *
 * Backward with D_i = dy_i . y_i (Dao et al. 2022, section B.4):
 *   ds_ij = p_ij (dy_i . v_j - D_i) / sqrt(D);  dq_i = sum_j ds_ij k_j;  dk_j = sum_i ds_ij q_i;
 *   dv_j = sum_i p_ij dy_i.  One piece is one head of one sequence, so each sum has one order.
 *
 * 64 queries waste at most 32 scores a row beyond the diagonal; 256 keys make tiles long enough for
 * the matrix product. 64 divides 256, so every tile of a row has at least one key that counts. */
#define QUERY_ROWS 64
#define KEY_ROWS   256

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One head of one sequence. */
typedef struct head {
    const float *q, *k, *v; /* rows of stride 3C */
    float *y, *lse;         /* y: rows of stride C */
    const float *dy;
    float *dq, *dk, *dv;
    int64_t T, D, C;
    float scale;
    int adds;
} head;

static head head_at(const coh_attention *a, int64_t index)
{
    const int64_t b = index / a->H, h = index % a->H, C = a->H * a->D;
    const int64_t wide = b * a->T * 3 * C + h * a->D, narrow = b * a->T * C + h * a->D;
    head one = {
        .q = a->qkv + wide,
        .k = a->qkv + wide + C,
        .v = a->qkv + wide + 2 * C,
        .y = a->y + narrow,
        .lse = a->lse + index * a->T,
        .T = a->T,
        .D = a->D,
        .C = C,
        .scale = 1.0f / sqrtf((float)a->D),
        .adds = a->adds,
    };
    if (a->dqkv != NULL) {
        one.dy = a->dy + narrow;
        one.dq = a->dqkv + wide;
        one.dk = a->dqkv + wide + C;
        one.dv = a->dqkv + wide + 2 * C;
    }
    return one;
}

/* to [rows, columns] = scale * a b^T, a and b being rows of heads. */
static void score(float *to, const float *a, int64_t a_stride, int64_t rows, const float *b,
                  int64_t b_stride, int64_t columns, int64_t D, float scale)
{
    coh_tile tile = { .rows = rows,
                      .columns = columns,
                      .depth = D,
                      .a = a,
                      .a_stride = a_stride,
                      .b = b,
                      .b_stride = b_stride,
                      .b_transposed = 1,
                      .alpha = scale,
                      .c = to,
                      .c_stride = KEY_ROWS };
    coh_tile_run(&tile);
}

/* to [rows, D] (= or +=) weights b, weights [rows, depth] or, transposed, [depth, rows]. */
static void gather(float *to, int64_t to_stride, int64_t rows, const float *weights, int transposed,
                   const float *b, int64_t b_stride, int64_t depth, int64_t D, int adds)
{
    coh_tile tile = { .rows = rows,
                      .columns = D,
                      .depth = depth,
                      .a = weights,
                      .a_stride = KEY_ROWS,
                      .a_transposed = transposed,
                      .b = b,
                      .b_stride = b_stride,
                      .alpha = 1.0f,
                      .beta = adds ? 1.0f : 0.0f,
                      .c = to,
                      .c_stride = to_stride };
    coh_tile_run(&tile);
}

/* Keys of the tile at k0 that query i may see. */
static int64_t seen_keys(int64_t i, int64_t k0, int64_t keys)
{
    return smaller(i + 1 - k0, keys);
}

static void forward_tile(const head *one, int64_t q0, int64_t rows, int64_t k0, int64_t keys,
                         float *max, float *sum)
{
    const coh_rows *row = coh_rows_get();
    const int64_t wide = 3 * one->C;
    float scores[QUERY_ROWS * KEY_ROWS];
    score(scores, one->q + q0 * wide, wide, rows, one->k + k0 * wide, wide, keys, one->D,
          one->scale);
    for (int64_t r = 0; r < rows; r++) {
        float *s = scores + r * KEY_ROWS;
        const int64_t seen = seen_keys(q0 + r, k0, keys);
        const float factor = row->softmax_exp(s, seen, &max[r], &sum[r]);
        memset(s + seen, 0, (size_t)(keys - seen) * sizeof(float));
        if (k0 > 0)
            row->scale(one->y + (q0 + r) * one->C, factor, one->D);
    }
    gather(one->y + q0 * one->C, one->C, rows, scores, 0, one->v + k0 * wide, wide, keys, one->D,
           k0 > 0);
}

static void forward_piece(void *argument, int64_t index)
{
    const coh_attention *a = argument;
    const int64_t blocks = (a->T + QUERY_ROWS - 1) / QUERY_ROWS;
    const head one = head_at(a, index / blocks);
    const int64_t q0 = index % blocks * QUERY_ROWS, rows = smaller(QUERY_ROWS, one.T - q0);
    float max[QUERY_ROWS], sum[QUERY_ROWS];
    for (int64_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0.0f;
    }
    for (int64_t k0 = 0; k0 < q0 + rows; k0 += KEY_ROWS)
        forward_tile(&one, q0, rows, k0, smaller(KEY_ROWS, q0 + rows - k0), max, sum);
    for (int64_t r = 0; r < rows; r++) {
        coh_rows_get()->scale(one.y + (q0 + r) * one.C, 1.0f / sum[r], one.D);
        one.lse[q0 + r] = max[r] + logf(sum[r]);
    }
}

void coh_kernel_attention(void *queue, const coh_attention *attention)
{
    const int64_t blocks = (attention->T + QUERY_ROWS - 1) / QUERY_ROWS;
    coh_parallel(queue, attention->B * attention->H * blocks, forward_piece, (void *)attention);
}

static void backward_tile(const head *one, int64_t q0, int64_t rows, int64_t k0, int64_t keys,
                          const float *mean_gradient)
{
    const coh_rows *row = coh_rows_get();
    const int64_t wide = 3 * one->C;
    const float *dy = one->dy + q0 * one->C, *q = one->q + q0 * wide;
    float p[QUERY_ROWS * KEY_ROWS], ds[QUERY_ROWS * KEY_ROWS];
    score(p, q, wide, rows, one->k + k0 * wide, wide, keys, one->D, one->scale);
    score(ds, dy, one->C, rows, one->v + k0 * wide, wide, keys, one->D, 1.0f);
    for (int64_t r = 0; r < rows; r++) {
        float *s = p + r * KEY_ROWS, *g = ds + r * KEY_ROWS;
        const int64_t seen = seen_keys(q0 + r, k0, keys);
        const size_t hidden_bytes = (size_t)(keys - seen) * sizeof(float);
        row->softmax_backward(s, g, seen, one->lse[q0 + r], mean_gradient[r], one->scale);
        memset(s + seen, 0, hidden_bytes);
        memset(g + seen, 0, hidden_bytes);
    }
    gather(one->dv + k0 * wide, wide, keys, p, 1, dy, one->C, rows, one->D, 1);
    gather(one->dk + k0 * wide, wide, keys, ds, 1, q, wide, rows, one->D, 1);
    gather(one->dq + q0 * wide, wide, rows, ds, 0, one->k + k0 * wide, wide, keys, one->D,
           one->adds || k0 > 0);
}

static void backward_piece(void *argument, int64_t index)
{
    const head one = head_at(argument, index);
    const int64_t wide = 3 * one.C;
    const size_t row_bytes = (size_t)one.D * sizeof(float);
    if (one.dk == NULL) /* nobody wants the gradient */
        return;
    for (int64_t t = 0; t < one.T && !one.adds; t++) {
        memset(one.dk + t * wide, 0, row_bytes);
        memset(one.dv + t * wide, 0, row_bytes);
    }
    for (int64_t q0 = 0; q0 < one.T; q0 += QUERY_ROWS) {
        const int64_t rows = smaller(QUERY_ROWS, one.T - q0);
        float mean_gradient[QUERY_ROWS];
        for (int64_t r = 0; r < rows; r++)
            mean_gradient[r] =
                coh_rows_get()->dot(one.dy + (q0 + r) * one.C, one.y + (q0 + r) * one.C, one.D);
        for (int64_t k0 = 0; k0 < q0 + rows; k0 += KEY_ROWS)
            backward_tile(&one, q0, rows, k0, smaller(KEY_ROWS, q0 + rows - k0), mean_gradient);
    }
}

void coh_kernel_attention_backward(void *queue, const coh_attention *attention)
{
    coh_parallel(queue, attention->B * attention->H, backward_piece, (void *)attention);
}
