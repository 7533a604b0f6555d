#include "kernels/kernels.h"

#include <string.h>

#include "base/bytes.h"
#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* One piece is one grain: 64 KiB of each operand, a few microseconds of work. */

typedef struct pass {
    float *to;
    const float *from, *x;
    int64_t count;
    int adds;
} pass;

static int64_t grain_count(int64_t count)
{
    return (count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

static int64_t grain_elements(int64_t count, int64_t index)
{
    const int64_t rest = count - index * COH_GRAIN_ELEMENTS;
    return rest < COH_GRAIN_ELEMENTS ? rest : COH_GRAIN_ELEMENTS;
}

static void pass_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS, count = grain_elements(job->count, index);
    if (job->adds)
        coh_rows_get()->add(job->to + begin, job->from + begin, count);
    else
        memcpy(job->to + begin, job->from + begin, (size_t)count * sizeof(float));
}

void coh_kernel_pass(void *queue, float *to, const float *from, int64_t count, int adds)
{
    if (to == from)
        return;
    pass job = { .to = to, .from = from, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), pass_grain, &job);
}

static void gelu_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    coh_rows_get()->gelu(job->to + begin, job->x + begin, grain_elements(job->count, index));
}

void coh_kernel_gelu(void *queue, float *y, const float *x, int64_t count)
{
    pass job = { .to = y, .x = x, .count = count };
    coh_parallel(queue, grain_count(count), gelu_grain, &job);
}

static void gelu_backward_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    coh_rows_get()->gelu_backward(job->to + begin, job->from + begin, job->x + begin,
                                  grain_elements(job->count, index), job->adds);
}

void coh_kernel_gelu_backward(void *queue, float *dx, const float *dy, const float *x,
                              int64_t count, int adds)
{
    pass job = { .to = dx, .from = dy, .x = x, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), gelu_backward_grain, &job);
}
