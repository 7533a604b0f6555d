/* Runs all matrix products of one optimizer step of a GPT-2 at the library's best rate, as a
 * worker: the time of a step with nothing but products, at full speed, on operands that are ready.
 * f32: OpenBLAS with its own threads, whole products. bf16: oneDNN with its own threads, the faster
 * of plain and prepacked weights (packing not counted).
 *
 *     products f32 12 768 50257 256 2       dtype, layers, channels, vocabulary, tokens, threads
 *
 * Each linear layer has three products: y = x W^T, dx = dy W, dW = dy^T x; the classifier is one
 * more layer. Every shape runs a few times a pass, and its least time counts as often as it occurs
 * in the step. */
#include <cblas.h>
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/measure.h"

enum { BEST_OF = 3, LAYERS_OF_BLOCK = 4, SHAPES = 3 * (LAYERS_OF_BLOCK + 1) };

/* c [rows, columns] = op(a) op(b): strides show which operand is transposed. */
typedef struct product {
    int64_t rows, columns, depth;
    int a_transposed, b_transposed;
    double times; /* occurrences in a step */
    dnnl_primitive_t plain, packed;
    dnnl_memory_t a, b, b_packed, c;
} product;

typedef struct products {
    int bf16, thread_count;
    product shape[SHAPES];
    char *a, *b, *c, *b_packed;
    size_t operand_bytes, packed_bytes;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} products;

typedef struct call {
    products *all;
    product *one;
    dnnl_primitive_t primitive;
    dnnl_memory_t b;
} call;

static void multiply_f32(void *argument)
{
    const call *turn = argument;
    const product *p = turn->one;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, (int)p->rows, (int)p->columns,
                (int)p->depth, 1.0f, (const float *)turn->all->a,
                (int)(p->a_transposed ? p->rows : p->depth), (const float *)turn->all->b,
                (int)(p->b_transposed ? p->depth : p->columns), 0.0f, (float *)turn->all->c,
                (int)p->columns);
}

static void multiply_bf16(void *argument)
{
    const call *turn = argument;
    const dnnl_exec_arg_t arguments[] = { { DNNL_ARG_SRC, turn->one->a },
                                          { DNNL_ARG_WEIGHTS, turn->b },
                                          { DNNL_ARG_DST, turn->one->c } };
    dnnl_primitive_execute(turn->primitive, turn->all->stream, 3, arguments);
    dnnl_stream_wait(turn->all->stream);
}

/* ---- oneDNN ---- */

static dnnl_primitive_t primitive(const products *all, const dnnl_memory_desc_t *a,
                                  const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                                  dnnl_memory_desc_t *out_b)
{
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t facts;
    dnnl_primitive_t made = NULL;
    if (dnnl_matmul_desc_init(&desc, a, b, NULL, c) != dnnl_success ||
        dnnl_primitive_desc_create(&facts, &desc, NULL, all->engine, NULL) != dnnl_success)
        return NULL;
    *out_b = *dnnl_primitive_desc_query_md(facts, dnnl_query_weights_md, 0);
    if (dnnl_primitive_create(&made, facts) != dnnl_success)
        made = NULL;
    dnnl_primitive_desc_destroy(facts);
    return made;
}

static int prepare_bf16(products *all, product *p)
{
    const dnnl_dims_t a_dims = { p->rows, p->depth }, b_dims = { p->depth, p->columns },
                      c_dims = { p->rows, p->columns };
    const dnnl_dims_t a_strides = { p->a_transposed ? 1 : p->depth, p->a_transposed ? p->rows : 1 };
    const dnnl_dims_t b_strides = { p->b_transposed ? 1 : p->columns,
                                    p->b_transposed ? p->depth : 1 };
    const dnnl_dims_t c_strides = { p->columns, 1 };
    dnnl_memory_desc_t a, b, c, any, packed;
    dnnl_memory_desc_init_by_strides(&a, 2, a_dims, dnnl_bf16, a_strides);
    dnnl_memory_desc_init_by_strides(&b, 2, b_dims, dnnl_bf16, b_strides);
    dnnl_memory_desc_init_by_strides(&c, 2, c_dims, dnnl_bf16, c_strides);
    dnnl_memory_desc_init_by_tag(&any, 2, b_dims, dnnl_bf16, dnnl_format_tag_any);
    p->plain = primitive(all, &a, &b, &c, &packed);
    p->packed = primitive(all, &a, &any, &c, &packed);
    if (p->plain == NULL || p->packed == NULL)
        return 1;
    if (dnnl_memory_desc_get_size(&packed) > all->packed_bytes) {
        fprintf(stderr, "products: packed weights of %zu bytes\n",
                dnnl_memory_desc_get_size(&packed));
        return 1;
    }
    dnnl_memory_create(&p->a, &a, all->engine, all->a);
    dnnl_memory_create(&p->b, &b, all->engine, all->b);
    dnnl_memory_create(&p->b_packed, &packed, all->engine, all->b_packed);
    dnnl_memory_create(&p->c, &c, all->engine, all->c);
    return 0;
}

/* ---- one pass over the shapes ---- */

static double best(products *all, product *p)
{
    call plain = { .all = all, .one = p, .primitive = p->plain, .b = p->b };
    call packed = { .all = all, .one = p, .primitive = p->packed, .b = p->b_packed };
    if (!all->bf16)
        return measure_best(BEST_OF, multiply_f32, &plain);
    double a = measure_best(BEST_OF, multiply_bf16, &plain);
    double b = measure_best(BEST_OF, multiply_bf16, &packed);
    return a < b ? a : b;
}

static int run(void *argument, int count)
{
    products *all = argument;
    printf("{\"seconds\": [");
    for (int i = 0; i < count; i++) {
        double seconds = 0;
        for (int j = 0; j < SHAPES; j++)
            seconds += all->shape[j].times * best(all, &all->shape[j]);
        printf("%s%.6f", i ? ", " : "", seconds);
    }
    printf("]}\n");
    return 0;
}

/* ---- start ---- */

static void fill_shapes(products *all, int64_t layers, int64_t C, int64_t V, int64_t N)
{
    const int64_t outputs[] = { 3 * C, C, 4 * C, C, V }, inputs[] = { C, C, C, 4 * C, C };
    for (int i = 0; i <= LAYERS_OF_BLOCK; i++) {
        double times = i < LAYERS_OF_BLOCK ? (double)layers : 1;
        int64_t out = outputs[i], in = inputs[i];
        all->shape[3 * i] = (product){ N, out, in, 0, 1, times, 0, 0, 0, 0, 0, 0 };
        all->shape[3 * i + 1] = (product){ N, in, out, 0, 0, times, 0, 0, 0, 0, 0, 0 };
        all->shape[3 * i + 2] = (product){ out, in, N, 1, 0, times, 0, 0, 0, 0, 0, 0 };
    }
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int make(products *all, int64_t layers, int64_t C, int64_t V, int64_t N)
{
    size_t element_bytes = all->bf16 ? 2 : 4;
    fill_shapes(all, layers, C, V, N);
    for (int i = 0; i < SHAPES; i++) {
        const product *p = &all->shape[i];
        size_t a = (size_t)(p->rows * p->depth), b = (size_t)(p->columns * p->depth);
        size_t c = (size_t)(p->rows * p->columns);
        all->operand_bytes = largest(all->operand_bytes, largest(a, largest(b, c)) * element_bytes);
    }
    all->operand_bytes = (all->operand_bytes + 63) / 64 * 64;
    all->packed_bytes = all->operand_bytes / 64 * 80; /* packed blocks are padded at their ends */
    all->a = aligned_alloc(64, all->operand_bytes);
    all->b = aligned_alloc(64, all->operand_bytes);
    all->c = aligned_alloc(64, all->operand_bytes);
    all->b_packed = aligned_alloc(64, all->packed_bytes);
    if (all->a == NULL || all->b == NULL || all->c == NULL || all->b_packed == NULL)
        return 1;
    memset(all->a, 0x3c, all->operand_bytes); /* 0.0115 in either type */
    memset(all->b, 0x3c, all->operand_bytes);
    memset(all->c, 0, all->operand_bytes);
    memset(all->b_packed, 0x3c, all->packed_bytes);
    openblas_set_num_threads(all->thread_count);
    omp_set_num_threads(all->thread_count);
    if (!all->bf16)
        return 0;
    if (dnnl_engine_create(&all->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&all->stream, all->engine, dnnl_stream_default_flags) != dnnl_success)
        return 1;
    for (int i = 0; i < SHAPES; i++)
        if (prepare_bf16(all, &all->shape[i]) != 0)
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    static products all; /* lives as long as the process; nothing is freed separately */
    if (argc != 7) {
        fprintf(stderr, "usage: products f32|bf16 LAYERS CHANNELS VOCABULARY TOKENS THREADS\n");
        return 1;
    }
    all.bf16 = strcmp(argv[1], "bf16") == 0;
    all.thread_count = atoi(argv[6]);
    if (make(&all, atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[5])) != 0)
        return 1;
    double flops = 0;
    for (int i = 0; i < SHAPES; i++)
        flops += all.shape[i].times * 2.0 * (double)all.shape[i].rows *
                 (double)all.shape[i].columns * (double)all.shape[i].depth;
    const dnnl_version_t *version = dnnl_version();
    printf("{\"dtype\": \"%s\", \"gflop\": %.4g, \"onednn\": \"%d.%d.%d\", \"openblas\": \"%s\", "
           "\"threads\": %d}\n",
           argv[1], flops * 1e-9, version->major, version->minor, version->patch,
           openblas_get_corename(), all.thread_count);
    fflush(stdout);
    return measure_serve(run, &all);
}
