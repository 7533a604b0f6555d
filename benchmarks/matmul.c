/* Our tiles on our pool against OpenBLAS's own threads on the whole product: the matmuls of GPT-2's
 * layers. The ceiling is not reachable in general: ours fixes its tiles by shape, so that bits do
 * not depend on threads. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/rng.h"
#include "benchmarks/measure.h"
#include "cohobate/engine.h"
#include "kernels/kernels.h"

typedef struct product {
    coh_pool *pool;
    int thread_count;
    coh_matmul m;
} product;

static void ours(void *argument)
{
    const product *p = argument;
    coh_kernel_matmul(p->pool, &p->m);
}

static void bare(void *argument)
{
    const product *p = argument;
    const coh_matmul *m = &p->m;
    openblas_set_num_threads(p->thread_count);
    cblas_sgemm(CblasRowMajor, m->layout == COH_MATMUL_TN ? CblasTrans : CblasNoTrans,
                m->layout == COH_MATMUL_NT ? CblasTrans : CblasNoTrans, (int)m->rows,
                (int)m->columns, (int)m->depth, 1.0f, m->a, (int)m->a_stride, m->b,
                (int)m->b_stride, 0.0f, m->c, (int)m->c_stride);
    openblas_set_num_threads(1);
}

static float *random_matrix(int64_t elements, uint64_t seed)
{
    float *x = malloc((size_t)elements * sizeof(float));
    for (int64_t i = 0; x != NULL && i < elements; i++)
        x[i] = (float)(coh_rng_uniform(seed, 0, (uint64_t)i) - 0.5);
    return x;
}

static int run(product *p, coh_matmul_layout layout, int64_t rows, int64_t columns, int64_t depth)
{
    static const char *const names[] = { "NT", "NN", "TN" };
    char shape[64];
    measure_result result;
    float *a = random_matrix(rows * depth, 1), *b = random_matrix(columns * depth, 2);
    float *c = random_matrix(rows * columns, 3);
    if (a == NULL || b == NULL || c == NULL)
        return 1;
    p->m = (coh_matmul){ .layout = layout,
                         .rows = rows,
                         .columns = columns,
                         .depth = depth,
                         .a = a,
                         .b = b,
                         .c = c,
                         .a_stride = layout == COH_MATMUL_TN ? rows : depth,
                         .b_stride = layout == COH_MATMUL_NT ? depth : columns,
                         .c_stride = columns };
    measure_pairs(ours, bare, p, &result);
    snprintf(shape, sizeof(shape), "%s %dx%dx%d", names[layout], (int)rows, (int)columns,
             (int)depth);
    measure_print("matmul", shape, 2e-9 * (double)(rows * columns * depth), "GFLOP", &result);
    free(a);
    free(b);
    free(c);
    return 0;
}

int main(int argc, char **argv)
{
    product p = { .thread_count = argc > 1 ? atoi(argv[1]) : 2 };
    static const int64_t widths[] = { 384, 768 };
    coh_kernels_start();
    if (coh_pool_create(p.thread_count, &p.pool) != COH_OK)
        return 1;
    fprintf(stderr, "%d threads, %s\n", p.thread_count, coh_kernel_path());
    for (int i = 0; i < 2; i++) {
        int64_t n = 1024, c = widths[i];
        if (run(&p, COH_MATMUL_NT, n, 4 * c, c) || run(&p, COH_MATMUL_NN, n, c, 4 * c) ||
            run(&p, COH_MATMUL_TN, 4 * c, c, n) || run(&p, COH_MATMUL_NT, n, c, c))
            return 1;
    }
    coh_pool_destroy(p.pool);
    return 0;
}
