#include "kernels/cpu/dispatch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Written once, by choose(), before anybody reads it. */
static struct {
    pthread_once_t once;
    const coh_rows *rows;
} chosen = { .once = PTHREAD_ONCE_INIT };

const coh_rows *coh_rows_of(const char *name)
{
    if (strcmp(name, "plain") == 0)
        return &coh_rows_plain;
#if defined(__x86_64__)
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return &coh_rows_avx2;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return &coh_rows_avx512;
#endif
    return NULL;
}

static const coh_rows *choose_rows(void)
{
    static const char *const names[] = { "avx512", "avx2", "plain" };
    const char *highest = getenv("COH_ISA");
    size_t first = 0;
    for (size_t i = 0; highest != NULL && i < 3; i++)
        if (strcmp(highest, names[i]) == 0)
            first = i;
    for (size_t i = first; i < 3; i++)
        if (coh_rows_of(names[i]) != NULL)
            return coh_rows_of(names[i]);
    return &coh_rows_plain;
}

static void choose(void)
{
    chosen.rows = choose_rows();
    coh_products_start(chosen.rows->name);
}

void coh_kernels_start(void)
{
    pthread_once(&chosen.once, choose);
}

const coh_rows *coh_rows_get(void)
{
    coh_kernels_start();
    return chosen.rows;
}

void coh_kernel_adamw(const coh_adamw *step, float *work, const float *grad, float *m, float *v,
                      int64_t count)
{
    coh_rows_get()->adamw(step, work, grad, m, v, count);
}

double coh_kernel_square_sum(const float *x, int64_t count)
{
    return coh_rows_get()->square_sum(x, count);
}

void coh_kernel_add(float *to, const float *from, int64_t count)
{
    coh_rows_get()->add(to, from, count);
}

int coh_kernel_all_finite(const float *x, int64_t count)
{
    return coh_rows_get()->all_finite(x, count);
}
