/* Token and position embedding on the host, and the check of indices. Backward sorts tokens by row,
 * so that each row is summed by one thread in token order. Next: kernels/kernels.h
 * (coh_embedding). */
#include "kernels/table.h"

#include <inttypes.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* Memory-bound. Forward copies rows. Backward sorts the tokens by row, so that the tokens of each
 * row are adjacent. A row is summed in f32, in the order of the tokens, and rounded once. */
#define COPY_TOKENS    64
#define STRIP_CHANNELS 256
#define ZERO_ROWS      256
#define POSITION_ROWS  16
#define DIGIT_BITS     11

coh_status coh_cpu_check_indices(void *queue, const coh_index_check *check)
{
    (void)queue;
    for (int64_t i = 0; i < check->count; i++)
        if (check->indices[i] < check->least || check->indices[i] > check->most)
            return coh_kind_fail(
                COH_ERR_CORRUPT,
                "%s %" PRId32 " at place %" PRId64 " is outside %" PRId64 "..%" PRId64 ": %s",
                check->what, check->indices[i], i, check->least, check->most, check->remedy);
    return COH_OK;
}

typedef struct embedding_job {
    const coh_embedding *e;
    void *to;
    const void *from;
} embedding_job;

static int is_ours(const coh_embedding *e, int64_t n)
{
    return e->tokens[n] >= e->row_begin && e->tokens[n] < e->row_end;
}

static void copy_rows(void *argument, int64_t index)
{
    const embedding_job *job = argument;
    const coh_embedding *e = job->e;
    const int64_t end = smaller((index + 1) * COPY_TOKENS, e->N);
    for (int64_t n = index * COPY_TOKENS; n < end; n++)
        if (is_ours(e, n))
            memcpy(coh_element(e->dtype, job->to, n * e->C),
                   coh_element_const(e->dtype, job->from, (e->tokens[n] - e->row_begin) * e->C),
                   (size_t)e->C * coh_dtype_bytes(e->dtype));
}

void coh_cpu_embedding(void *queue, const coh_embedding *embedding, void *y, const void *weight)
{
    embedding_job job = { embedding, y, weight };
    coh_parallel(queue, (embedding->N + COPY_TOKENS - 1) / COPY_TOKENS, copy_rows, &job);
}

static void zero_rows(void *argument, int64_t index)
{
    const embedding_job *job = argument;
    const coh_embedding *e = job->e;
    const int64_t begin = index * ZERO_ROWS;
    const int64_t rows = smaller(ZERO_ROWS, e->row_end - e->row_begin - begin);
    const coh_dtype dtype = coh_grad_dtype(e->dtype, e->f32_grads);
    memset(coh_element(dtype, job->to, begin * e->C), 0,
           (size_t)(rows * e->C) * coh_dtype_bytes(dtype));
}

int64_t coh_kernel_embedding_order(int64_t N)
{
    return 2 * N;
}

static int64_t row_of(const coh_embedding *e, int32_t n)
{
    return e->tokens[n] - e->row_begin;
}

/* Sorts stably by one digit of the row: places of equal digits keep their order. */
static void sort_by_digit(const coh_embedding *e, const int32_t *from, int32_t *to, int64_t count,
                          int shift)
{
    int32_t places[1 << DIGIT_BITS] = { 0 };
    const int64_t mask = (1 << DIGIT_BITS) - 1;
    for (int64_t i = 0; i < count; i++)
        places[row_of(e, from[i]) >> shift & mask]++;
    int32_t sum = 0;
    for (int64_t digit = 0; digit <= mask; digit++) {
        const int32_t here = places[digit];
        places[digit] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < count; i++)
        to[places[row_of(e, from[i]) >> shift & mask]++] = from[i];
}

/* Sorts the tokens of the call's rows, without padding, by row and then by place. Returns the
 * sorted places and their number. */
static const int32_t *sort_tokens(const coh_embedding *e, int64_t *out_count)
{
    int32_t *order = e->order, *spare = e->order + e->N;
    int64_t count = 0;
    for (int64_t n = 0; n < e->N; n++)
        if (is_ours(e, n) && !(e->has_padding && e->tokens[n] == e->padding))
            order[count++] = (int32_t)n;
    for (int shift = 0; (e->row_end - e->row_begin - 1) >> shift != 0; shift += DIGIT_BITS) {
        sort_by_digit(e, order, spare, count, shift);
        int32_t *sorted = spare;
        spare = order;
        order = sorted;
    }
    *out_count = count;
    return order;
}

typedef struct spread_job {
    const coh_embedding *e;
    const int32_t *order;
    int64_t count, strips;
    void *dweight;
    const void *dy;
    int adds;
} spread_job;

/* Sums channels [c, c + width) of the row whose tokens begin at place `at`; returns the place after
 * them. */
static int64_t sum_row(const spread_job *job, int64_t at, int64_t c, int64_t width)
{
    const coh_embedding *e = job->e;
    const coh_rows *rows = coh_rows_for(e->dtype);
    const int64_t row = row_of(e, job->order[at]);
    float total[STRIP_CHANNELS] = { 0 };
    for (; at < job->count && row_of(e, job->order[at]) == row; at++)
        rows->gather(total, coh_element_const(e->dtype, job->dy, job->order[at] * e->C + c), width);
    const coh_dtype dtype = coh_grad_dtype(e->dtype, e->f32_grads);
    coh_rows_for(dtype)->put(coh_element(dtype, job->dweight, row * e->C + c), total, width,
                             job->adds);
    return at;
}

/* Sums one strip of the rows whose tokens begin among COPY_TOKENS places. */
static void sum_rows(void *argument, int64_t index)
{
    const spread_job *job = argument;
    const coh_embedding *e = job->e;
    const int64_t c = index % job->strips * STRIP_CHANNELS,
                  width = smaller(STRIP_CHANNELS, e->C - c);
    int64_t at = index / job->strips * COPY_TOKENS;
    const int64_t end = smaller(at + COPY_TOKENS, job->count);
    if (at > 0) /* another piece sums a row that began before */
        while (at < end && row_of(e, job->order[at]) == row_of(e, job->order[at - 1]))
            at++;
    while (at < end)
        at = sum_row(job, at, c, width);
}

void coh_cpu_embedding_backward(void *queue, const coh_embedding *embedding, void *dweight,
                                const void *dy, int adds)
{
    embedding_job zero = { embedding, dweight, NULL };
    const int64_t row_count = embedding->row_end - embedding->row_begin;
    if (!adds)
        coh_parallel(queue, (row_count + ZERO_ROWS - 1) / ZERO_ROWS, zero_rows, &zero);
    spread_job job = { .e = embedding, .dweight = dweight, .dy = dy, .adds = adds };
    job.order = sort_tokens(embedding, &job.count);
    job.strips = (embedding->C + STRIP_CHANNELS - 1) / STRIP_CHANNELS;
    coh_parallel(queue, (job.count + COPY_TOKENS - 1) / COPY_TOKENS * job.strips, sum_rows, &job);
}

/* ---- position ---- */

static void position_rows(void *argument, int64_t index)
{
    const coh_position *p = argument;
    const coh_rows *row = coh_rows_for(p->dtype);
    const int64_t begin = p->position != NULL ? *p->position : 0;
    const int64_t end = smaller((index + 1) * POSITION_ROWS, p->B * p->T);
    for (int64_t n = index * POSITION_ROWS; n < end; n++) {
        const int64_t from = begin + n % p->T;
        void *y = coh_element(p->dtype, p->y, n * p->C);
        const void *x = coh_element_const(p->dtype, p->x, n * p->C);
        if (from < p->rows)
            row->sum(y, x, coh_element_const(p->dtype, p->weight, from * p->C), p->C);
        else
            memmove(y, x, (size_t)p->C * coh_dtype_bytes(p->dtype));
    }
}

void coh_cpu_position(void *queue, const coh_position *position)
{
    coh_parallel(queue, (position->B * position->T + POSITION_ROWS - 1) / POSITION_ROWS,
                 position_rows, (void *)position);
}

/* Sums channels [c, c + width) of a row over the sequences, in f32, rounded once. A row before or
 * after the sequence gets nothing. */
static void position_strip(const coh_position_gradient *g, int64_t index, int64_t c, int64_t width)
{
    const coh_rows *row = coh_rows_for(g->dtype);
    const int64_t t = index - g->offset;
    float total[STRIP_CHANNELS] = { 0 };
    for (int64_t b = 0; b < g->B && t >= 0 && t < g->T; b++)
        row->gather(total, coh_element_const(g->dtype, g->dy, (b * g->T + t) * g->C + c), width);
    const coh_dtype dtype = coh_grad_dtype(g->dtype, g->f32_grads);
    coh_rows_for(dtype)->put(coh_element(dtype, g->dweight, index * g->C + c), total, width,
                             g->adds);
}

static void position_gradient(void *argument, int64_t index)
{
    const coh_position_gradient *g = argument;
    const int64_t end = smaller((index + 1) * POSITION_ROWS, g->rows);
    for (int64_t row = index * POSITION_ROWS; row < end; row++)
        for (int64_t c = 0; c < g->C; c += STRIP_CHANNELS)
            position_strip(g, row, c, smaller(STRIP_CHANNELS, g->C - c));
}

void coh_cpu_position_backward(void *queue, const coh_position_gradient *gradient)
{
    coh_parallel(queue, (gradient->rows + POSITION_ROWS - 1) / POSITION_ROWS, position_gradient,
                 (void *)gradient);
}
