/* Attention for one step of a decoder on the host: stores the new keys and values, then each
 * head of each query attends to the rows up to its own, or to the last of them. A query's bits do
 * not depend on the other queries. Next: kernels/kernels.h (coh_attention_decode). */
#include "kernels/table.h"

#include <math.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* One query of one head: scores of KEY_ROWS keys at a time with a running maximum and sum, as
 * attention does for whole sequences. y is summed in f32, a strip of the head's width at a time.
 * For a head wider than a strip, each strip computes its scores again. */
#define KEY_ROWS   256
#define HEAD_STRIP 128

/* One head of one sequence: rows of that stride in keys and values. */
typedef struct decode_head {
    coh_dtype dtype;
    int64_t stride, D, first, last; /* attends over rows first..last */
    float scale, cap;
    const void *q, *keys, *values;
    void *y;
} decode_head;

static void attend_strip(const decode_head *one, int64_t d, int64_t width)
{
    const coh_rows *row = coh_rows_for(one->dtype);
    float max = -INFINITY, sum = 0.0f, scores[KEY_ROWS], total[HEAD_STRIP] = { 0 };
    for (int64_t k0 = one->first; k0 <= one->last; k0 += KEY_ROWS) {
        const int64_t count = smaller(KEY_ROWS, one->last + 1 - k0);
        for (int64_t k = 0; k < count; k++)
            scores[k] =
                one->scale *
                row->dot(one->q, coh_element_const(one->dtype, one->keys, (k0 + k) * one->stride),
                         one->D);
        if (one->cap > 0)
            coh_rows_get()->soft_cap(scores, scores, count, one->cap);
        row->scale(total, row->softmax_exp(scores, count, &max, &sum), width);
        for (int64_t k = 0; k < count; k++)
            row->add_scaled(total,
                            coh_element_const(one->dtype, one->values, (k0 + k) * one->stride + d),
                            scores[k], width);
    }
    row->scale(total, 1.0f / sum, width);
    row->put(coh_element(one->dtype, one->y, d), total, width, 0);
}

static void decode_piece(void *argument, int64_t index)
{
    const coh_attention_decode *a = argument;
    const coh_dtype dtype = a->dtype;
    const int64_t n = index / a->H, h = index % a->H, D = a->D, stride = a->G * D;
    const int64_t cached = n / a->T * a->positions * stride + h / (a->H / a->G) * D;
    const int64_t last = smaller(*a->position + n % a->T, a->positions - 1);
    decode_head one = { .dtype = dtype, .stride = stride, .D = D, .last = last };
    one.scale = a->scale > 0 ? a->scale : 1.0f / sqrtf((float)D);
    one.cap = a->cap;
    one.first = a->window > 0 && a->window <= one.last ? one.last + 1 - a->window : 0;
    one.q = coh_element_const(dtype, a->q, n * a->q_stride + h * D);
    one.keys = coh_element(dtype, a->keys, cached);
    one.values = coh_element(dtype, a->values, cached);
    one.y = coh_element(dtype, a->y, index * D);
    for (int64_t d = 0; d < D; d += HEAD_STRIP)
        attend_strip(&one, d, smaller(HEAD_STRIP, D - d));
}

/* Stores the new rows of sequence b before any head runs, because heads may share keys and values.
 * Padding after the last position is not stored. */
static void keep_rows(const coh_attention_decode *a, void *states, const void *from, int64_t b)
{
    const int64_t stride = a->G * a->D, count = smaller(a->T, a->positions - *a->position);
    for (int64_t t = 0; t < count; t++)
        memcpy(coh_element(a->dtype, states, (b * a->positions + *a->position + t) * stride),
               coh_element_const(a->dtype, from, (b * a->T + t) * a->kv_stride),
               (size_t)stride * coh_dtype_bytes(a->dtype));
}

void coh_cpu_attention_decode(void *queue, const coh_attention_decode *decode)
{
    for (int64_t b = 0; b < decode->B; b++) {
        keep_rows(decode, decode->keys, decode->k, b);
        keep_rows(decode, decode->values, decode->v, b);
    }
    coh_parallel(queue, decode->B * decode->T * decode->H, decode_piece, (void *)decode);
}
