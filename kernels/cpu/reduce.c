/* Mean, softmax, cross-entropy and mean squared error on the host: each piece is some rows or one
 * grain, computed through the row loops and a small buffer of floats. Sums of a loss are doubles,
 * one per piece, added in order. Next: plain.h; kernels/kind_loss.c calls this. */
#include "kernels/plain.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

enum { PART = 512, ROWS = 64 };

/* Reads elements as floats. */
static void get(coh_dtype dtype, float *values, const void *tensor, int64_t at, int64_t count)
{
    memset(values, 0, (size_t)count * sizeof(float));
    coh_rows_for(dtype)->gather(values, coh_element_const(dtype, tensor, at), count);
}

static void put(coh_dtype dtype, void *tensor, int64_t at, const float *values, int64_t count,
                int adds)
{
    coh_rows_for(dtype)->put(coh_element(dtype, tensor, at), values, count, adds);
}

static int64_t pieces_of(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

/* The factor of a loss's gradient. */
static float factor_of(float loss_share, const float *loss_factor)
{
    return loss_factor != NULL ? loss_share * *loss_factor : loss_share;
}

/* ---- mean ---- */

/* A piece: up to PART columns of one block; of a block with one column, the sum of a row. */
static void mean_piece(void *argument, int64_t index)
{
    const coh_mean *m = argument;
    const int64_t parts = pieces_of(m->inner, PART);
    const int64_t block = index / parts, begin = index % parts * PART;
    const int64_t width = smaller(PART, m->inner - begin);
    double sums[PART] = { 0 };
    float values[PART];
    for (int64_t i = 0; i < m->count && m->inner > 1; i++) {
        get(m->dtype, values, m->from, (block * m->count + i) * m->inner + begin, width);
        for (int64_t c = 0; c < width; c++)
            sums[c] += (double)values[c];
    }
    for (int64_t i = 0; i < m->count && m->inner == 1; i += PART) {
        const int64_t count = smaller(PART, m->count - i);
        get(m->dtype, values, m->from, block * m->count + i, count);
        for (int64_t c = 0; c < count; c++)
            sums[0] += (double)values[c];
    }
    for (int64_t c = 0; c < width; c++)
        values[c] = (float)(sums[c] / (double)m->count);
    put(m->dtype, m->to, block * m->inner + begin, values, width, 0);
}

void coh_cpu_mean(void *queue, const coh_mean *mean)
{
    coh_parallel(queue, mean->outer * pieces_of(mean->inner, PART), mean_piece, (void *)mean);
}

static void mean_backward_piece(void *argument, int64_t index)
{
    const coh_mean *m = argument;
    const int64_t parts = pieces_of(m->inner, PART);
    const int64_t block = index / parts, begin = index % parts * PART;
    const int64_t width = smaller(PART, m->inner - begin);
    const float factor = 1.0f / (float)m->count;
    float values[PART];
    get(m->dtype, values, m->from, block * m->inner + begin, width);
    for (int64_t c = 0; c < width; c++)
        values[c] *= factor;
    for (int64_t i = 0; i < m->count && m->inner > 1; i++)
        put(m->dtype, m->to, (block * m->count + i) * m->inner + begin, values, width, m->adds);
    for (int64_t c = 1; c < PART && m->inner == 1; c++)
        values[c] = values[0];
    for (int64_t i = 0; i < m->count && m->inner == 1; i += PART)
        put(m->dtype, m->to, block * m->count + i, values, smaller(PART, m->count - i), m->adds);
}

void coh_cpu_mean_backward(void *queue, const coh_mean *mean)
{
    coh_parallel(queue, mean->outer * pieces_of(mean->inner, PART), mean_backward_piece,
                 (void *)mean);
}

/* ---- softmax ---- */

static void softmax_rows(void *argument, int64_t index)
{
    const coh_softmax *s = argument;
    const coh_rows *row = coh_rows_for(s->dtype);
    const int64_t end = smaller((index + 1) * ROWS, s->rows);
    for (int64_t n = index * ROWS; n < end; n++) {
        const void *from = coh_element_const(s->dtype, s->from, n * s->columns);
        void *to = coh_element(s->dtype, s->to, n * s->columns);
        float max = -INFINITY, sum = 0;
        row->softmax_take(from, s->columns, &max, &sum);
        if (to != from)
            memcpy(to, from, (size_t)s->columns * coh_dtype_bytes(s->dtype));
        row->softmax_again(to, s->columns, max, 1.0f / sum);
    }
}

void coh_cpu_softmax(void *queue, const coh_softmax *softmax)
{
    coh_parallel(queue, pieces_of(softmax->rows, ROWS), softmax_rows, (void *)softmax);
}

static void softmax_backward_rows(void *argument, int64_t index)
{
    const coh_softmax *s = argument;
    const int64_t end = smaller((index + 1) * ROWS, s->rows);
    float dy[PART], y[PART];
    for (int64_t n = index * ROWS; n < end; n++) {
        double dot = 0;
        for (int64_t at = n * s->columns; at < (n + 1) * s->columns; at += PART) {
            const int64_t count = smaller(PART, (n + 1) * s->columns - at);
            get(s->dtype, dy, s->from, at, count);
            get(s->dtype, y, s->y, at, count);
            for (int64_t c = 0; c < count; c++)
                dot += (double)dy[c] * (double)y[c];
        }
        for (int64_t at = n * s->columns; at < (n + 1) * s->columns; at += PART) {
            const int64_t count = smaller(PART, (n + 1) * s->columns - at);
            get(s->dtype, dy, s->from, at, count);
            get(s->dtype, y, s->y, at, count);
            for (int64_t c = 0; c < count; c++)
                y[c] *= dy[c] - (float)dot;
            put(s->dtype, s->to, at, y, count, s->adds);
        }
    }
}

void coh_cpu_softmax_backward(void *queue, const coh_softmax *softmax)
{
    coh_parallel(queue, pieces_of(softmax->rows, ROWS), softmax_backward_rows, (void *)softmax);
}

/* ---- cross-entropy ---- */

int64_t coh_kernel_row_partials(int64_t rows)
{
    return pieces_of(rows, ROWS);
}

static void entropy_rows(void *argument, int64_t index)
{
    const coh_cross_entropy *e = argument;
    const int64_t end = smaller((index + 1) * ROWS, e->rows);
    double total = 0;
    for (int64_t n = index * ROWS; n < end; n++) {
        float target;
        double loss = 0;
        e->max[n] = -INFINITY;
        e->sum[n] = 0;
        coh_rows_for(e->dtype)->softmax_take(coh_element_const(e->dtype, e->logits, n * e->columns),
                                             e->columns, &e->max[n], &e->sum[n]);
        if (e->targets[n] >= 0) {
            get(e->dtype, &target, e->logits, n * e->columns + e->targets[n], 1);
            loss = (double)e->max[n] - (double)target + log((double)e->sum[n]);
        }
        if (e->each != NULL)
            e->each[n] = (float)loss;
        total += loss;
    }
    if (e->loss != NULL)
        e->partial[index] = total;
}

static float folded(const double *partial, int64_t pieces, int64_t items)
{
    double total = 0;
    for (int64_t i = 0; i < pieces; i++)
        total += partial[i];
    return (float)(total / (double)items);
}

void coh_cpu_cross_entropy(void *queue, const coh_cross_entropy *entropy)
{
    const int64_t pieces = coh_kernel_row_partials(entropy->rows);
    coh_parallel(queue, pieces, entropy_rows, (void *)entropy);
    if (entropy->loss != NULL)
        *entropy->loss = folded(entropy->partial, pieces, entropy->rows);
}

static void entropy_backward_rows(void *argument, int64_t index)
{
    const coh_cross_entropy *e = argument;
    const int64_t end = smaller((index + 1) * ROWS, e->rows);
    const float share = factor_of(e->loss_share, e->loss_factor) / (float)e->rows;
    float p[PART];
    for (int64_t n = index * ROWS; n < end; n++)
        for (int64_t begin = 0; begin < e->columns; begin += PART) {
            const int64_t count = smaller(PART, e->columns - begin), target = e->targets[n] - begin;
            memset(p, 0, sizeof(p));
            if (e->targets[n] >= 0) {
                get(e->dtype, p, e->logits, n * e->columns + begin, count);
                coh_rows_get()->softmax_again(p, count, e->max[n], share / e->sum[n]);
            }
            if (e->targets[n] >= 0 && target >= 0 && target < count)
                p[target] -= share;
            put(e->dtype, e->to, n * e->columns + begin, p, count, e->adds);
        }
}

void coh_cpu_cross_entropy_backward(void *queue, const coh_cross_entropy *entropy)
{
    coh_parallel(queue, coh_kernel_row_partials(entropy->rows), entropy_backward_rows,
                 (void *)entropy);
}

/* ---- mean squared error ---- */

int64_t coh_kernel_grain_partials(int64_t count)
{
    return pieces_of(count, COH_GRAIN_ELEMENTS);
}

/* differences[i] = x - target, of `count` elements from `at` on. */
static void subtract(const coh_squares *s, float *differences, int64_t at, int64_t count)
{
    float target[PART];
    get(s->dtype, differences, s->x, at, count);
    get(s->target_dtype, target, s->target, at, count);
    for (int64_t i = 0; i < count; i++)
        differences[i] -= target[i];
}

static void squares_grain(void *argument, int64_t index)
{
    const coh_squares *s = argument;
    const int64_t end = smaller((index + 1) * COH_GRAIN_ELEMENTS, s->count);
    float differences[PART];
    double total = 0;
    for (int64_t at = index * COH_GRAIN_ELEMENTS; at < end; at += PART) {
        const int64_t count = smaller(PART, end - at);
        subtract(s, differences, at, count);
        total += coh_rows_get()->square_sum(differences, count);
    }
    s->partial[index] = total;
}

void coh_cpu_squares(void *queue, const coh_squares *squares)
{
    const int64_t pieces = coh_kernel_grain_partials(squares->count);
    coh_parallel(queue, pieces, squares_grain, (void *)squares);
    *squares->loss = folded(squares->partial, pieces, squares->count);
}

static void squares_backward_grain(void *argument, int64_t index)
{
    const coh_squares *s = argument;
    const int64_t end = smaller((index + 1) * COH_GRAIN_ELEMENTS, s->count);
    const float scale = factor_of(s->loss_share, s->loss_factor);
    const float factor = (float)(2.0 * (double)scale / (double)s->count);
    float values[PART];
    for (int64_t at = index * COH_GRAIN_ELEMENTS; at < end; at += PART) {
        const int64_t count = smaller(PART, end - at);
        subtract(s, values, at, count);
        for (int64_t i = 0; i < count; i++)
            values[i] *= factor;
        if (s->to != NULL)
            put(s->dtype, s->to, at, values, count, s->adds);
        for (int64_t i = 0; i < count; i++)
            values[i] = -values[i];
        if (s->to_target != NULL)
            put(s->target_dtype, s->to_target, at, values, count, s->target_adds);
    }
}

void coh_cpu_squares_backward(void *queue, const coh_squares *squares)
{
    coh_parallel(queue, coh_kernel_grain_partials(squares->count), squares_backward_grain,
                 (void *)squares);
}
