/* Compares our tiles on our pool with a library's own threads on the whole product: the matrix
 * products of GPT-2 124M's layers and of its classifier's tiles, f32 against OpenBLAS and bf16
 * against oneDNN, with operands as in the layers (nothing packed before), in huge pages as in an
 * arena.
 *
 *     matmul [threads [rows]]      2 threads; 256, 1024 and 2048 rows */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/pool.h"
#include "base/rng.h"
#include "benchmarks/measure.h"
#include "coh_config.h"
#include "cohobate/engine.h"
#include "kernels/kernels.h"

#if COH_HAVE_ONEDNN
#include <dnnl.h>
extern void omp_set_num_threads(int count);
#endif

typedef struct product {
    coh_pool *pool;
    int thread_count;
    coh_matmul m;
#if COH_HAVE_ONEDNN
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t code;
    dnnl_memory_t a, b, c;
#endif
} product;

/* A library's thread count is a setting of the process. Our tiles, if a library computes them, use
 * one thread each and set the count for OpenMP. So each side sets it again; its cost is
 * negligible. */
static void ours(void *argument)
{
    const product *p = argument;
    openblas_set_num_threads(1);
    coh_kernel_matmul(p->pool, &p->m);
}

static void openblas(void *argument)
{
    const product *p = argument;
    const coh_matmul *m = &p->m;
    openblas_set_num_threads(p->thread_count);
    cblas_sgemm(CblasRowMajor, m->layout == COH_MATMUL_TN ? CblasTrans : CblasNoTrans,
                m->layout == COH_MATMUL_NT ? CblasTrans : CblasNoTrans, (int)m->rows,
                (int)m->columns, (int)m->depth, 1.0f, m->a, (int)m->a_stride, m->b,
                (int)m->b_stride, 0.0f, m->c, (int)m->c_stride);
}

#if COH_HAVE_ONEDNN
static void onednn(void *argument)
{
    const product *p = argument;
    const dnnl_exec_arg_t arguments[] = { { DNNL_ARG_SRC, p->a },
                                          { DNNL_ARG_WEIGHTS, p->b },
                                          { DNNL_ARG_DST, p->c } };
    omp_set_num_threads(p->thread_count);
    dnnl_primitive_execute(p->code, p->stream, 3, arguments);
    dnnl_stream_wait(p->stream);
}

static void describe(dnnl_memory_desc_t *out, int64_t rows, int64_t columns, int64_t stride,
                     int transposed)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { transposed ? 1 : stride, transposed ? stride : 1 };
    dnnl_memory_desc_init_by_strides(out, 2, dims, dnnl_bf16, strides);
}

static int onednn_make(product *p)
{
    const coh_matmul *m = &p->m;
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t description;
    describe(&a, m->rows, m->depth, m->a_stride, m->layout == COH_MATMUL_TN);
    describe(&b, m->depth, m->columns, m->b_stride, m->layout == COH_MATMUL_NT);
    describe(&c, m->rows, m->columns, m->c_stride, 0);
    omp_set_num_threads(p->thread_count);
    if (dnnl_matmul_desc_init(&matmul, &a, &b, NULL, &c) != dnnl_success ||
        dnnl_primitive_desc_create(&description, &matmul, NULL, p->engine, NULL) != dnnl_success)
        return 1;
    const int failed = dnnl_primitive_create(&p->code, description) != dnnl_success ||
                       dnnl_memory_create(&p->a, &a, p->engine, (void *)m->a) != dnnl_success ||
                       dnnl_memory_create(&p->b, &b, p->engine, (void *)m->b) != dnnl_success ||
                       dnnl_memory_create(&p->c, &c, p->engine, m->c) != dnnl_success;
    dnnl_primitive_desc_destroy(description);
    return failed;
}

static void onednn_drop(product *p)
{
    dnnl_memory_destroy(p->a);
    dnnl_memory_destroy(p->b);
    dnnl_memory_destroy(p->c);
    dnnl_primitive_destroy(p->code);
}
#endif

static void *random_matrix(int64_t elements, coh_dtype dtype, uint64_t seed)
{
    const size_t huge = 2u << 20;
    const size_t bytes = ((size_t)elements * sizeof(float) + huge - 1) / huge * huge;
    float *x = aligned_alloc(huge, bytes);
    if (x == NULL)
        return NULL;
    madvise(x, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < elements; i++) {
        const float value = (float)(coh_rng_uniform(seed, 0, (uint64_t)i) - 0.5);
        if (dtype == COH_DTYPE_BF16)
            coh_kernel_split((uint16_t *)x + i, NULL, &value, 1);
        else
            x[i] = value;
    }
    return x;
}

static int compare(product *p, const char *shape)
{
    const double work = 2e-9 * (double)(p->m.rows * p->m.columns * p->m.depth);
    measure_result result;
    if (p->m.dtype == COH_DTYPE_F32) {
        measure_pairs(ours, openblas, p, &result);
        measure_print("matmul f32", shape, work, "GFLOP", &result);
        return 0;
    }
#if COH_HAVE_ONEDNN
    if (onednn_make(p) != 0)
        return 1;
    measure_pairs(ours, onednn, p, &result);
    measure_print("matmul bf16", shape, work, "GFLOP", &result);
    onednn_drop(p);
#endif
    return 0;
}

static int run(product *p, coh_dtype dtype, coh_matmul_layout layout, int64_t rows, int64_t columns,
               int64_t depth)
{
    static const char *const names[] = { "NT", "NN", "TN" };
    char shape[64];
    void *a = random_matrix(rows * depth, dtype, 1), *b = random_matrix(columns * depth, dtype, 2);
    void *c = random_matrix(rows * columns, dtype, 3);
    int failed = 1;
    if (a != NULL && b != NULL && c != NULL) {
        p->m = (coh_matmul){ .layout = layout,
                             .dtype = dtype,
                             .c_dtype = dtype,
                             .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .a = a,
                             .b = b,
                             .c = c,
                             .a_stride = layout == COH_MATMUL_TN ? rows : depth,
                             .b_stride = layout == COH_MATMUL_NT ? depth : columns,
                             .c_stride = columns };
        snprintf(shape, sizeof(shape), "%s %dx%dx%d", names[layout], (int)rows, (int)columns,
                 (int)depth);
        failed = compare(p, shape);
    }
    free(a);
    free(b);
    free(c);
    return failed;
}

/* y = x W^T, dx = dy W and dW = dy^T x of one layer. */
static int run_layer(product *p, coh_dtype dtype, int64_t rows, int64_t outputs, int64_t inputs)
{
    return run(p, dtype, COH_MATMUL_NT, rows, outputs, inputs) ||
           run(p, dtype, COH_MATMUL_NN, rows, inputs, outputs) ||
           run(p, dtype, COH_MATMUL_TN, outputs, inputs, rows);
}

int main(int argc, char **argv)
{
    static const int64_t layers[][2] = {
        { 2304, 768 }, { 768, 768 }, { 3072, 768 }, { 768, 3072 }
    };
    product p = { .thread_count = argc > 1 ? atoi(argv[1]) : 2 };
    int64_t counts[] = { 256, 1024, 2048 };
    int count = 3;
    if (argc > 2) {
        counts[0] = atoll(argv[2]);
        count = 1;
    }
    coh_kernels_start();
    if (coh_pool_create(p.thread_count, &p.pool) != COH_OK)
        return 1;
#if COH_HAVE_ONEDNN
    if (dnnl_engine_create(&p.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&p.stream, p.engine, dnnl_stream_default_flags) != dnnl_success)
        return 1;
#endif
    fprintf(stderr, "%d threads, %s\n", p.thread_count, coh_kernel_path());
    for (int dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_BF16; dtype++)
        for (int n = 0; n < count; n++) {
            const int64_t most = coh_kernel_classifier_chunk((coh_dtype)dtype);
            const int64_t chunk = counts[n] < most ? counts[n] : most;
            const int is_known = n > 0 && counts[n - 1] >= most;
            for (int layer = 0; layer < 4; layer++)
                if (run_layer(&p, (coh_dtype)dtype, counts[n], layers[layer][0], layers[layer][1]))
                    return 1;
            if (!is_known && run_layer(&p, (coh_dtype)dtype, chunk, COH_ROW_BLOCK, 768))
                return 1;
        }
    coh_pool_destroy(p.pool);
    return 0;
}
