#include "kernels/cpu/dispatch.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/engine.h"

/* OpenBLAS maps a packing buffer for each call under way, when a call first finds none free, and
 * keeps it. Its own functions for that are exported; where they are not, the buffers come with the
 * first steps instead. */
extern void *blas_memory_alloc(int position) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

#define BUFFERS_MOST 64

/* Written once, by choose(), before anybody reads it. */
static struct {
    pthread_once_t once;
    const coh_rows *rows;
    int plain_matmul;
    char path[128];
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

/* Our pool calls it from as many threads at a time as there are cores. */
static void take_blas_buffers(void)
{
    if (blas_memory_alloc == NULL || blas_memory_free == NULL)
        return;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = cores < 1 ? 1 : cores > BUFFERS_MOST - 2 ? BUFFERS_MOST : (int)cores + 2;
    void *buffers[BUFFERS_MOST];
    for (int i = 0; i < wanted; i++)
        buffers[i] = blas_memory_alloc(0);
    for (int i = 0; i < wanted; i++)
        if (buffers[i] != NULL)
            blas_memory_free(buffers[i]);
}

/* "OpenBLAS 0.3.21 NO_LAPACKE ..." -> "0.3.21" */
static void blas_version(char *out_version, size_t bytes)
{
    const char *config = openblas_get_config();
    const char *begin = strchr(config, ' ');
    size_t count = begin == NULL ? 0 : strcspn(begin + 1, " ");
    snprintf(out_version, bytes, "%.*s", (int)count, begin == NULL ? "" : begin + 1);
}

static void choose(void)
{
    const char *plain = getenv("COH_PLAIN_MATMUL");
    chosen.rows = choose_rows();
    chosen.plain_matmul = plain != NULL && strcmp(plain, "1") == 0;
    if (chosen.plain_matmul) {
        snprintf(chosen.path, sizeof(chosen.path), "%s+plain", chosen.rows->name);
        return;
    }
    char version[32];
    blas_version(version, sizeof(version));
    openblas_set_num_threads(1);
    take_blas_buffers();
    snprintf(chosen.path, sizeof(chosen.path), "%s+openblas-%s-%s", chosen.rows->name, version,
             openblas_get_corename());
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

const char *coh_kernel_path(void)
{
    coh_kernels_start();
    return chosen.path;
}

/* OpenBLAS 0.3.21 takes a kernel of its own for products of up to 10^6 multiplications on AVX-512,
 * and the one for two untransposed operands calls malloc. Such tiles are too
 * small to lose by it. */
#define SMALL_PRODUCT 1000000

static int blas_may_allocate(const coh_tile *tile)
{
    return !tile->a_transposed && !tile->b_transposed &&
           tile->rows * tile->columns * tile->depth <= SMALL_PRODUCT;
}

void coh_tile_run(const coh_tile *tile)
{
    coh_kernels_start();
    if (chosen.plain_matmul || blas_may_allocate(tile)) {
        chosen.rows->matmul(tile);
        return;
    }
    cblas_sgemm(CblasRowMajor, tile->a_transposed ? CblasTrans : CblasNoTrans,
                tile->b_transposed ? CblasTrans : CblasNoTrans, (blasint)tile->rows,
                (blasint)tile->columns, (blasint)tile->depth, tile->alpha, tile->a,
                (blasint)tile->a_stride, tile->b, (blasint)tile->b_stride, tile->beta, tile->c,
                (blasint)tile->c_stride);
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
