/* Matrix products on a GPU: our kernel (product.cu, which serves where cuBLASLt is missing) against
 * cuBLASLt's choice for the same form, both as coh_matmul asks for them: the products of GPT-2 124M
 * and of a 7B model's layers, of a classifier's tile, and one of 8192 cubed, which is as fast as
 * this GPU multiplies. Operands are random: of zeros a GPU multiplies faster.
 *
 *     gpu_products [DIVISOR]    of all sizes, 1 unless told; 77: there is no GPU, or no cuBLASLt */
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/rng.h"
#include "benchmarks/gpu_turns.h"
#include "benchmarks/measure.h"
#include "kernels/kernels.h"

enum { OPERANDS = 3, DIVISOR_MOST = 256 }; /* of the least size, 768 */
#define OPERAND_ELEMENTS ((int64_t)1 << 27)
#define OPERAND_BYTES    ((size_t)OPERAND_ELEMENTS * sizeof(float))

static const coh_device_ops *const ops = &coh_device_cuda;

typedef struct products {
    gpu_turns turns;
    int64_t divisor;
    coh_matmul matmul;
} products;

static const struct shape {
    const char *name;
    coh_matmul_layout layout;
    int64_t rows, columns, depth;
    int adds;
} shapes[] = {
    { "124M up", COH_MATMUL_NT, 8192, 3072, 768, 0 },
    { "124M up dx", COH_MATMUL_NN, 8192, 768, 3072, 0 },
    { "124M up dw", COH_MATMUL_TN, 3072, 768, 8192, 1 },
    { "7B qkv", COH_MATMUL_NT, 8192, 4096, 4096, 0 },
    { "7B up", COH_MATMUL_NT, 8192, 11008, 4096, 0 },
    { "7B up dx", COH_MATMUL_NN, 8192, 4096, 11008, 0 },
    { "7B up dw", COH_MATMUL_TN, 11008, 4096, 8192, 1 },
    { "classifier", COH_MATMUL_NT, 16384, COH_ROW_BLOCK, 4096, 0 },
    { "8192 cubed", COH_MATMUL_NN, 8192, 8192, 8192, 0 },
};

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    products *p = context;
    (void)number;
    (void)index;
    coh_kernel_matmul(p->turns.queue, &p->matmul);
}

static void measure_shape(products *p, const struct shape *s, coh_dtype dtype)
{
    char name[64];
    measure_result result;
    const int a_down = s->layout == COH_MATMUL_TN, b_down = s->layout != COH_MATMUL_NT;
    const int64_t rows = s->rows / p->divisor, columns = s->columns / p->divisor,
                  depth = s->depth / p->divisor;
    p->matmul = (coh_matmul){ .layout = s->layout,
                              .dtype = dtype,
                              .c_dtype = dtype,
                              .rows = rows,
                              .columns = columns,
                              .depth = depth,
                              .a = p->turns.arena,
                              .b = p->turns.arena + OPERAND_BYTES,
                              .c = p->turns.arena + 2 * OPERAND_BYTES,
                              .a_stride = a_down ? rows : depth,
                              .b_stride = b_down ? columns : depth,
                              .c_stride = columns,
                              .adds = s->adds };
    measure_pairs(gpu_turns_ours, gpu_turns_libraries, &p->turns, &result);
    snprintf(name, sizeof(name), "%s %s", s->name, dtype == COH_DTYPE_F32 ? "f32" : "bf16");
    measure_print("gpu_products", name,
                  2e-9 * GPU_TURNS_CALLS * (double)rows * (double)columns * (double)depth, "GFLOP",
                  &result);
}

/* Normal numbers, one piece again and again. */
static coh_status fill(const products *p, coh_dtype dtype)
{
    enum { PIECE = 1 << 20 };
    static float piece[PIECE];
    const size_t piece_bytes = (size_t)PIECE * coh_dtype_bytes(dtype);
    for (int i = 0; i < PIECE; i++) {
        const float value = (float)coh_rng_normal(1, 2, (uint64_t)i);
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)(void *)piece)[i] = coh_bf16_of_f32(value);
        else
            piece[i] = value;
    }
    for (size_t at = 0; at < OPERANDS * OPERAND_BYTES; at += piece_bytes)
        COH_TRY(ops->put(p->turns.device, p->turns.arena + at, piece, piece_bytes));
    return COH_OK;
}

static coh_status measure_all(products *p, coh_dtype dtype)
{
    COH_TRY(fill(p, dtype));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        measure_shape(p, &shapes[i], dtype);
        COH_TRY(ops->failure(p->turns.device));
    }
    return COH_OK;
}

int main(int argc, char **argv)
{
    products p = { .divisor = argc > 1 ? atoll(argv[1]) : 1 };
    p.turns.work = enqueue;
    p.turns.context = &p;
    if (p.divisor < 1 || p.divisor > DIVISOR_MOST) {
        fprintf(stderr, "gpu_products: sizes are divided by 1 to %d\n", DIVISOR_MOST);
        return 2;
    }
    coh_status status = gpu_turns_open(&p.turns, OPERANDS * OPERAND_BYTES);
    int is_absent = status != COH_OK && p.turns.device == NULL;
    if (status == COH_OK && p.turns.libraries->products == NULL) {
        fprintf(stderr, "gpu_products: cuBLASLt is not on this machine\n");
        is_absent = 1;
    } else {
        if (status == COH_OK)
            status = measure_all(&p, COH_DTYPE_BF16);
        if (status == COH_OK)
            status = measure_all(&p, COH_DTYPE_F32);
        if (status != COH_OK)
            fprintf(stderr, "gpu_products: %s\n", coh_last_error());
    }
    gpu_turns_close(&p.turns);
    return is_absent ? MEASURE_ABSENT : status != COH_OK;
}
