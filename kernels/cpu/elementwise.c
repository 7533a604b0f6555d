#include "kernels/kernels.h"

#include <string.h>

#include "base/bytes.h"
#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* One piece is one grain: 64 KiB of each operand, a few microseconds of work. */

typedef struct pass {
    coh_dtype dtype;
    void *to;
    const void *from, *x;
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
    void *to = coh_element(job->dtype, job->to, begin);
    const void *from = coh_element_const(job->dtype, job->from, begin);
    if (job->adds)
        coh_rows_for(job->dtype)->add(to, from, count);
    else
        memcpy(to, from, (size_t)count * coh_dtype_bytes(job->dtype));
}

void coh_kernel_pass(void *queue, coh_dtype dtype, void *to, const void *from, int64_t count,
                     int adds)
{
    if (to == from)
        return;
    pass job = { .dtype = dtype, .to = to, .from = from, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), pass_grain, &job);
}

static void gelu_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    coh_rows_for(job->dtype)
        ->gelu(coh_element(job->dtype, job->to, begin),
               coh_element_const(job->dtype, job->x, begin), grain_elements(job->count, index));
}

void coh_kernel_gelu(void *queue, coh_dtype dtype, void *y, const void *x, int64_t count)
{
    pass job = { .dtype = dtype, .to = y, .x = x, .count = count };
    coh_parallel(queue, grain_count(count), gelu_grain, &job);
}

static void gelu_backward_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    coh_rows_for(job->dtype)
        ->gelu_backward(coh_element(job->dtype, job->to, begin),
                        coh_element_const(job->dtype, job->from, begin),
                        coh_element_const(job->dtype, job->x, begin),
                        grain_elements(job->count, index), job->adds);
}

void coh_kernel_gelu_backward(void *queue, coh_dtype dtype, void *dx, const void *dy, const void *x,
                              int64_t count, int adds)
{
    pass job = { .dtype = dtype, .to = dx, .from = dy, .x = x, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), gelu_backward_grain, &job);
}
