/* The fixed probe of the measuring rules, as a worker: the present rates at which this machine
 * multiplies, copies and reads on all threads at once. If the probes before and after a
 * configuration differ by more than 5 %, the machine's speed has changed, and the configuration is
 * measured again. The probe uses none of the library's kernels, so changes of these do not affect
 * it.
 *
 *     probe 2            two threads; then "run 1" on standard input prints the three rates */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "benchmarks/measure.h"

enum { SIDE = 768, BYTES = 48 << 20, THREADS_MOST = 64, BEST_OF = 5 };

typedef struct probe {
    coh_pool *pool;
    int thread_count;
    float *matrices[THREADS_MOST]; /* three of SIDE x SIDE, in sequence */
    char *from[THREADS_MOST], *to[THREADS_MOST];
    uint64_t sums[THREADS_MOST];
} probe;

static void multiply_piece(void *argument, int64_t index)
{
    const probe *p = argument;
    float *a = p->matrices[index], *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1.0f, a, SIDE, b, SIDE,
                0.0f, c, SIDE);
}

static void copy_piece(void *argument, int64_t index)
{
    const probe *p = argument;
    measure_copy_past_caches(p->to[index], p->from[index], BYTES);
}

static void read_piece(void *argument, int64_t index)
{
    probe *p = argument;
    p->sums[index] += measure_read(p->from[index], BYTES);
}

static void multiply(void *argument)
{
    probe *p = argument;
    coh_pool_run(p->pool, p->thread_count, multiply_piece, p);
}

static void copy(void *argument)
{
    probe *p = argument;
    coh_pool_run(p->pool, p->thread_count, copy_piece, p);
}

static void read_all(void *argument)
{
    probe *p = argument;
    coh_pool_run(p->pool, p->thread_count, read_piece, p);
}

static int run(void *argument, int count)
{
    probe *p = argument;
    double threads = p->thread_count;
    for (int i = 0; i < count; i++) {
        double multiply_s = measure_best(BEST_OF, multiply, p);
        double copy_s = measure_best(BEST_OF, copy, p);
        double read_s = measure_best(BEST_OF, read_all, p);
        printf("{\"matmul\": %.4g, \"copy\": %.4g, \"read\": %.4g}\n",
               2e-9 * SIDE * SIDE * SIDE * threads / multiply_s, 2e-9 * BYTES * threads / copy_s,
               1e-9 * BYTES * threads / read_s);
    }
    return 0;
}

static int make(probe *p, int thread_count)
{
    p->thread_count = thread_count;
    if (thread_count < 1 || thread_count > THREADS_MOST ||
        coh_pool_create(thread_count, &p->pool) != COH_OK)
        return 1;
    openblas_set_num_threads(1);
    for (int i = 0; i < thread_count; i++) {
        p->matrices[i] = aligned_alloc(64, sizeof(float) * SIDE * SIDE * 3);
        p->from[i] = aligned_alloc(64, BYTES);
        p->to[i] = aligned_alloc(64, BYTES);
        if (p->matrices[i] == NULL || p->from[i] == NULL || p->to[i] == NULL)
            return 1;
        for (int j = 0; j < SIDE * SIDE * 3; j++)
            p->matrices[i][j] = (float)(j % 17) - 8;
        memset(p->from[i], 1, BYTES);
        memset(p->to[i], 1, BYTES);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static probe p;
    int status = make(&p, argc > 1 ? atoi(argv[1]) : 2);
    if (status == 0) {
        printf("{\"unit\": \"GFLOP/s, GB/s, GB/s\", \"threads\": %d}\n", p.thread_count);
        fflush(stdout);
        status = measure_serve(run, &p);
    }
    for (int i = 0; i < p.thread_count && i < THREADS_MOST; i++) {
        free(p.matrices[i]);
        free(p.from[i]);
        free(p.to[i]);
    }
    coh_pool_destroy(p.pool);
    return status;
}
