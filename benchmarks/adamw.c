/* The optimizer's pass over parameters against the copy of as many bytes: it reads 16 bytes an
 * element (work, gradient, m, v) and writes 12; the ceiling copies 14 and 14. One thread each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/measure.h"
#include "kernels/kernels.h"

enum { ELEMENTS = 8 << 20 };

typedef struct states {
    float *work, *grad, *m, *v;
    char *from, *to;
} states;

static void ours(void *argument)
{
    const states *s = argument;
    const coh_adamw step = { .rate = 1e-4f,
                             .scale = 1,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .bias1 = 0.1f,
                             .bias2 = 0.05f,
                             .epsilon = 1e-8f,
                             .decay = 0.1f };
    coh_kernel_adamw(&step, s->work, s->grad, s->m, s->v, ELEMENTS);
}

static void copy(void *argument)
{
    const states *s = argument;
    memcpy(s->to, s->from, (size_t)ELEMENTS * 14);
}

int main(void)
{
    states s = { .work = calloc(ELEMENTS, 4),
                 .grad = malloc((size_t)ELEMENTS * 4),
                 .m = calloc(ELEMENTS, 4),
                 .v = calloc(ELEMENTS, 4),
                 .from = malloc((size_t)ELEMENTS * 14),
                 .to = malloc((size_t)ELEMENTS * 14) };
    measure_result result;
    if (!s.work || !s.grad || !s.m || !s.v || !s.from || !s.to)
        return 1;
    for (int i = 0; i < ELEMENTS; i++)
        s.grad[i] = (float)(i % 17) * 1e-3f;
    memset(s.from, 1, (size_t)ELEMENTS * 14);
    coh_kernels_start();
    measure_pairs(ours, copy, &s, &result);
    measure_print("adamw", "8 Mi elements", 28e-9 * ELEMENTS, "GB", &result);
    free(s.work);
    free(s.grad);
    free(s.m);
    free(s.v);
    free(s.from);
    free(s.to);
    return 0;
}
