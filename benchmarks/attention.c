/* Compares causal attention, forward and backward, with the rate of a matrix product. Only scores
 * below the diagonal count as work, 14 D flops each, so the distance to the ceiling is the cost of
 * blocks on the diagonal, softmax and packing.
 *
 *     bench_attention [threads, default 1] */
#include <stdio.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/rng.h"
#include "benchmarks/measure.h"
#include "cohobate/engine.h"
#include "kernels/kernels.h"

/* The ceiling: a product with this many rows and columns, and the depth of the case. */
enum { PRODUCT_SIDE = 1024 };

typedef struct problem {
    coh_pool *pool;
    coh_attention attention;
    coh_matmul product;
} problem;

static void ours(void *argument)
{
    const problem *p = argument;
    coh_kernel_attention(p->pool, &p->attention);
    coh_kernel_attention_backward(p->pool, &p->attention);
}

static void product(void *argument)
{
    const problem *p = argument;
    coh_kernel_matmul(p->pool, &p->product);
}

/* Uniform in (-1, 1), truncated for bf16. */
static void *random_tensor(coh_dtype dtype, int64_t elements, uint64_t seed)
{
    float *x = malloc((size_t)elements * sizeof(float));
    if (x == NULL)
        exit(1);
    for (int64_t i = 0; i < elements; i++) {
        union {
            float value;
            uint32_t bits;
        } u = { (float)(2.0 * coh_rng_uniform(seed, 0, (uint64_t)i) - 1.0) };
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)x)[i] = (uint16_t)(u.bits >> 16);
        else
            x[i] = u.value;
    }
    return x;
}

/* q, k and v are adjacent in one tensor, which the caller frees through `q`; so are their
 * gradients. */
static coh_attention attention_of(coh_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t G,
                                  int64_t D)
{
    const int64_t rows = B * T * H * D, wide = (H + 2 * G) * D;
    const size_t k_bytes = (size_t)(H * D) * coh_dtype_bytes(dtype);
    const size_t v_bytes = (size_t)((H + G) * D) * coh_dtype_bytes(dtype);
    char *qkv = random_tensor(dtype, B * T * wide, 1);
    char *dqkv = random_tensor(dtype, B * T * wide, 5);
    return (coh_attention){
        .B = B,
        .T = T,
        .H = H,
        .G = G,
        .D = D,
        .dtype = dtype,
        .q_stride = wide,
        .kv_stride = wide,
        .q = qkv,
        .k = qkv + k_bytes,
        .v = qkv + v_bytes,
        .y = random_tensor(dtype, rows, 2),
        .lse = random_tensor(COH_DTYPE_F32, B * H * T, 3),
        .dy = random_tensor(dtype, rows, 4),
        .dq = dqkv,
        .dk = dqkv + k_bytes,
        .dv = dqkv + v_bytes,
        .scratch = random_tensor(COH_DTYPE_F32, coh_kernel_attention_scratch(B, T, H, G, D), 6),
    };
}

static void run(coh_pool *pool, coh_dtype dtype, int64_t B, int64_t T, int64_t H, int64_t G,
                int64_t D)
{
    const double flops = 14.0 * (double)D * (double)(B * H) * (double)T * (double)(T + 1) / 2.0;
    const int64_t depth = (int64_t)(flops / (2.0 * PRODUCT_SIDE * PRODUCT_SIDE) + 0.5);
    char shape[64];
    measure_result result;
    problem p = { .pool = pool, .attention = attention_of(dtype, B, T, H, G, D) };
    p.product = (coh_matmul){
        .layout = COH_MATMUL_NT,
        .dtype = dtype,
        .c_dtype = dtype,
        .rows = PRODUCT_SIDE,
        .columns = PRODUCT_SIDE,
        .depth = depth,
        .a = random_tensor(dtype, PRODUCT_SIDE * depth, 7),
        .b = random_tensor(dtype, PRODUCT_SIDE * depth, 8),
        .c = random_tensor(dtype, PRODUCT_SIDE * PRODUCT_SIDE, 9),
        .a_stride = depth,
        .b_stride = depth,
        .c_stride = PRODUCT_SIDE,
    };
    measure_pairs(ours, product, &p, &result);
    char shared[24] = "";
    if (G < H)
        snprintf(shared, sizeof(shared), " G%d", (int)G);
    snprintf(shape, sizeof(shape), "%s B%d T%d H%d%s D%d", dtype == COH_DTYPE_BF16 ? "bf16" : "f32",
             (int)B, (int)T, (int)H, shared, (int)D);
    measure_print("attention", shape, flops * 1e-9, "GFLOP", &result);
    const void *memory[] = { p.attention.q,   p.attention.dq, p.attention.y,
                             p.attention.lse, p.attention.dy, p.attention.scratch,
                             p.product.a,     p.product.b,    p.product.c };
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        free((void *)memory[i]);
}

int main(int argc, char **argv)
{
    static const int64_t tokens[] = { 64, 256, 1024 };
    const int thread_count = argc > 1 ? atoi(argv[1]) : 1;
    coh_pool *pool = NULL;
    coh_kernels_start();
    if (coh_pool_create(thread_count, &pool) != COH_OK)
        return 1;
    fprintf(stderr, "%d threads, %s\n", thread_count, coh_kernel_path());
    for (int dtype = 0; dtype < 2; dtype++) /* GPT-2's heads, 4,096 tokens, one layer */
        for (int i = 0; i < 3; i++)
            run(pool, dtype == 0 ? COH_DTYPE_F32 : COH_DTYPE_BF16, 4096 / tokens[i], tokens[i], 12,
                12, 64);
    run(pool, COH_DTYPE_F32, 4, 256, 6, 6, 80);
    run(pool, COH_DTYPE_BF16, 4, 256, 6, 6, 80);
    run(pool, COH_DTYPE_F32, 4, 1024, 9, 3, 64); /* a small Llama's: three heads share keys */
    run(pool, COH_DTYPE_BF16, 4, 1024, 9, 3, 64);
    coh_pool_destroy(pool);
    return 0;
}
