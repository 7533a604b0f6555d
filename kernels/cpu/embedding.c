#include "kernels/kernels.h"

#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* Bound by bytes. Forward copies rows; backward gives each piece a strip of channels and walks the
 * tokens in order, so that no two pieces write one element and a row's sum has one order. */
#define COPY_TOKENS    64
#define STRIP_CHANNELS 64
#define ZERO_ROWS      256
#define POSITION_ROWS  16
#define POSITION_STRIP 256

typedef struct embedding_job {
    const coh_embedding *e;
    void *to;
    const void *from;
} embedding_job;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

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

void coh_kernel_embedding(void *queue, const coh_embedding *embedding, void *y, const void *weight)
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
    memset(coh_element(e->dtype, job->to, begin * e->C), 0,
           (size_t)(rows * e->C) * coh_dtype_bytes(e->dtype));
}

static void add_strip(void *argument, int64_t index)
{
    const embedding_job *job = argument;
    const coh_embedding *e = job->e;
    const coh_rows *row = coh_rows_for(e->dtype);
    const int64_t begin = index * STRIP_CHANNELS, width = smaller(STRIP_CHANNELS, e->C - begin);
    for (int64_t n = 0; n < e->N; n++) {
        const int64_t at = (e->tokens[n] - e->row_begin) * e->C + begin;
        if (is_ours(e, n))
            row->add(coh_element(e->dtype, job->to, at),
                     coh_element_const(e->dtype, job->from, n * e->C + begin), width);
    }
}

void coh_kernel_embedding_backward(void *queue, const coh_embedding *embedding, void *dweight,
                                   const void *dy, int adds)
{
    embedding_job job = { embedding, dweight, dy };
    const int64_t row_count = embedding->row_end - embedding->row_begin;
    if (!adds)
        coh_parallel(queue, (row_count + ZERO_ROWS - 1) / ZERO_ROWS, zero_rows, &job);
    coh_parallel(queue, (embedding->C + STRIP_CHANNELS - 1) / STRIP_CHANNELS, add_strip, &job);
}

/* ---- position ---- */

typedef struct position_job {
    coh_dtype dtype;
    void *to;
    const void *x, *weight;
    int64_t B, T, C, positions;
    int adds;
} position_job;

static void position_rows(void *argument, int64_t index)
{
    const position_job *job = argument;
    const coh_rows *row = coh_rows_for(job->dtype);
    const int64_t end = smaller((index + 1) * POSITION_ROWS, job->B * job->T);
    for (int64_t n = index * POSITION_ROWS; n < end; n++)
        row->sum(coh_element(job->dtype, job->to, n * job->C),
                 coh_element_const(job->dtype, job->x, n * job->C),
                 coh_element_const(job->dtype, job->weight, n % job->T * job->C), job->C);
}

void coh_kernel_position(void *queue, coh_dtype dtype, void *y, const void *x, const void *weight,
                         int64_t B, int64_t T, int64_t C)
{
    position_job job = {
        .dtype = dtype, .to = y, .x = x, .weight = weight, .B = B, .T = T, .C = C
    };
    coh_parallel(queue, (B * T + POSITION_ROWS - 1) / POSITION_ROWS, position_rows, &job);
}

/* Channels [c, c + width) of row t, summed over the sequences in f32 and rounded once. */
static void position_strip(const position_job *job, int64_t t, int64_t c, int64_t width)
{
    const coh_rows *row = coh_rows_for(job->dtype);
    float total[POSITION_STRIP] = { 0 };
    for (int64_t b = 0; b < job->B && t < job->T; b++)
        row->gather(total, coh_element_const(job->dtype, job->x, (b * job->T + t) * job->C + c),
                    width);
    row->put(coh_element(job->dtype, job->to, t * job->C + c), total, width, job->adds);
}

static void position_gradient(void *argument, int64_t index)
{
    const position_job *job = argument;
    const int64_t C = job->C, end = smaller((index + 1) * POSITION_ROWS, job->positions);
    for (int64_t t = index * POSITION_ROWS; t < end; t++)
        for (int64_t c = 0; c < C; c += POSITION_STRIP)
            position_strip(job, t, c, smaller(POSITION_STRIP, C - c));
}

void coh_kernel_position_backward(void *queue, coh_dtype dtype, void *dweight, const void *dy,
                                  int64_t B, int64_t T, int64_t C, int64_t positions, int adds)
{
    position_job job = { .dtype = dtype,
                         .to = dweight,
                         .x = dy,
                         .B = B,
                         .T = T,
                         .C = C,
                         .positions = positions,
                         .adds = adds };
    coh_parallel(queue, (positions + POSITION_ROWS - 1) / POSITION_ROWS, position_gradient, &job);
}
