#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tile.h"

/* OpenBLAS maps a packing buffer for each call under way, when a call first finds none free, and
 * keeps it. Its own functions for that are exported; where they are not, the buffers come with the
 * first steps instead. */
extern void *blas_memory_alloc(int position) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

#define BUFFERS_MOST 64

/* Our pool calls it from as many threads at a time as there are cores. */
static void start(void)
{
    openblas_set_num_threads(1);
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

void coh_openblas_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* The configuration text is "OpenBLAS 0.3.21 NO_LAPACKE ...". */
void coh_openblas_name(char *out_name, size_t bytes)
{
    const char *config = openblas_get_config();
    const char *begin = strchr(config, ' ');
    size_t count = begin == NULL ? 0 : strcspn(begin + 1, " ");
    snprintf(out_name, bytes, "openblas-%.*s-%s", (int)count, begin == NULL ? "" : begin + 1,
             openblas_get_corename());
}

/* OpenBLAS 0.3.21 takes a kernel of its own for products of up to 10^6 multiplications on AVX-512,
 * and the one for two untransposed operands calls malloc. There the plain panels stand in: the same
 * bits under every COH_ISA. */
#define SMALL_PRODUCT 1000000

static int may_allocate(const coh_tile *tile)
{
    return !tile->a_transposed && !tile->b_transposed &&
           tile->rows * tile->columns * tile->depth <= SMALL_PRODUCT;
}

/* c = what the product is added to. */
static void begin_sum(const coh_tile *t)
{
    const coh_rows *row = coh_rows_get();
    const float *bias = t->bias;
    for (int64_t i = 0; i < t->rows; i++) {
        float *c = (float *)t->c + i * t->c_stride;
        const float *residual = t->residual;
        if (residual != NULL)
            residual += i * t->c_stride;
        if (residual != NULL && bias != NULL)
            row->sum(c, residual, bias, t->columns);
        else if (residual != c)
            memcpy(c, residual != NULL ? residual : bias, (size_t)t->columns * sizeof(float));
    }
}

static void multiply(const coh_tile *tile, int adds)
{
    if (may_allocate(tile)) {
        coh_tile plain = *tile;
        plain.adds = adds;
        plain.bias = plain.residual = plain.activated = NULL;
        coh_panel_run_plain(&plain);
        return;
    }
    cblas_sgemm(CblasRowMajor, tile->a_transposed ? CblasTrans : CblasNoTrans,
                tile->b_transposed ? CblasTrans : CblasNoTrans, (blasint)tile->rows,
                (blasint)tile->columns, (blasint)tile->depth, 1.0f, tile->a,
                (blasint)tile->a_stride, tile->b, (blasint)tile->b_stride, adds ? 1.0f : 0.0f,
                tile->c, (blasint)tile->c_stride);
}

void coh_openblas_run(const coh_tile *tile)
{
    const int begins = tile->bias != NULL || tile->residual != NULL;
    if (begins)
        begin_sum(tile);
    multiply(tile, begins || tile->adds);
    coh_tile_activate(tile);
}
