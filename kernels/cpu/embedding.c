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

typedef struct embedding_job {
    const coh_embedding *e;
    float *to;
    const float *from;
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
            memcpy(job->to + n * e->C, job->from + (e->tokens[n] - e->row_begin) * e->C,
                   (size_t)e->C * sizeof(float));
}

void coh_kernel_embedding(void *queue, const coh_embedding *embedding, float *y,
                          const float *weight)
{
    embedding_job job = { embedding, y, weight };
    coh_parallel(queue, (embedding->N + COPY_TOKENS - 1) / COPY_TOKENS, copy_rows, &job);
}

static void zero_rows(void *argument, int64_t index)
{
    const embedding_job *job = argument;
    const int64_t row_count = job->e->row_end - job->e->row_begin, begin = index * ZERO_ROWS;
    const int64_t rows = smaller(ZERO_ROWS, row_count - begin);
    memset(job->to + begin * job->e->C, 0, (size_t)(rows * job->e->C) * sizeof(float));
}

static void add_strip(void *argument, int64_t index)
{
    const embedding_job *job = argument;
    const coh_embedding *e = job->e;
    const coh_rows *row = coh_rows_get();
    const int64_t begin = index * STRIP_CHANNELS, width = smaller(STRIP_CHANNELS, e->C - begin);
    for (int64_t n = 0; n < e->N; n++)
        if (is_ours(e, n))
            row->add(job->to + (e->tokens[n] - e->row_begin) * e->C + begin,
                     job->from + n * e->C + begin, width);
}

void coh_kernel_embedding_backward(void *queue, const coh_embedding *embedding, float *dweight,
                                   const float *dy, int adds)
{
    embedding_job job = { embedding, dweight, dy };
    const int64_t row_count = embedding->row_end - embedding->row_begin;
    if (!adds)
        coh_parallel(queue, (row_count + ZERO_ROWS - 1) / ZERO_ROWS, zero_rows, &job);
    coh_parallel(queue, (embedding->C + STRIP_CHANNELS - 1) / STRIP_CHANNELS, add_strip, &job);
}

/* ---- position ---- */

typedef struct position_job {
    float *to;
    const float *x, *weight;
    int64_t B, T, C, positions;
    int adds;
} position_job;

static void position_rows(void *argument, int64_t index)
{
    const position_job *job = argument;
    const coh_rows *row = coh_rows_get();
    const int64_t end = smaller((index + 1) * POSITION_ROWS, job->B * job->T);
    for (int64_t n = index * POSITION_ROWS; n < end; n++)
        row->sum(job->to + n * job->C, job->x + n * job->C, job->weight + n % job->T * job->C,
                 job->C);
}

void coh_kernel_position(void *queue, float *y, const float *x, const float *weight, int64_t B,
                         int64_t T, int64_t C)
{
    position_job job = { .to = y, .x = x, .weight = weight, .B = B, .T = T, .C = C };
    coh_parallel(queue, (B * T + POSITION_ROWS - 1) / POSITION_ROWS, position_rows, &job);
}

static void position_gradient(void *argument, int64_t index)
{
    const position_job *job = argument;
    const coh_rows *row = coh_rows_get();
    const int64_t C = job->C, end = smaller((index + 1) * POSITION_ROWS, job->positions);
    for (int64_t t = index * POSITION_ROWS; t < end; t++) {
        float *to = job->to + t * C;
        if (!job->adds)
            memset(to, 0, (size_t)C * sizeof(float));
        for (int64_t b = 0; b < job->B && t < job->T; b++)
            row->add(to, job->x + (b * job->T + t) * C, C);
    }
}

void coh_kernel_position_backward(void *queue, float *dweight, const float *dy, int64_t B,
                                  int64_t T, int64_t C, int64_t positions, int adds)
{
    position_job job = {
        .to = dweight, .x = dy, .B = B, .T = T, .C = C, .positions = positions, .adds = adds
    };
    coh_parallel(queue, (positions + POSITION_ROWS - 1) / POSITION_ROWS, position_gradient, &job);
}
