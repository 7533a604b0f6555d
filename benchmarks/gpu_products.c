/* Measures matrix products on a GPU, three sides in turns: our kernel (product.cu, the fallback
 * where cuBLASLt is missing), coh_kernel_matmul as in a run, and a direct cublasLtMatmul with the
 * heuristic's first algorithm. The products are those of GPT-2 124M's and a 7B model's layers, of a
 * classifier's tile, and a cube. Each has a row for coh_kernel_matmul and one for our kernel, both
 * compared with the direct call and given as a fraction of the roof: the fastest cube of
 * gpu_bare_roof in the same type. Operands are random, since a GPU multiplies zeros faster.
 *
 * Then measures what an epilogue would save: product, bias and gelu by cuBLASLt at once are the
 * ceiling for coh_kernel_matmul, which uses cuBLASLt's epilogue for the bias, then our gelu on the
 * values in c. If the ratio is below 1, fusing is that much faster.
 *
 *     gpu_products [DIVISOR]    divides sizes, default 1; 77: there is no GPU, or no cuBLASLt */
#include <stdio.h>

#include "benchmarks/gpu_bare.h"
#include "benchmarks/gpu_turns.h"
#include "benchmarks/measure.h"
#include "kernels/kernels.h"

enum { OPERANDS = 3 };
#define OPERAND_ELEMENTS ((int64_t)1 << 27) /* in the largest shape; a cube of 16384 in bf16 */
#define BIAS_BYTES       ((uint64_t)64 << 10)
#define GOAL             0.95 /* ratio to the direct call */

typedef struct products {
    gpu_turns *turns;
    gpu_bare bare;
    int64_t divisor;
    coh_dtype dtype;
    double roof; /* GFLOP/s */
} products;

typedef struct shape {
    const char *name;
    coh_matmul_layout layout;
    int64_t rows, columns, depth;
    int adds;
} shape;

static const shape shapes[] = {
    { "124M up", COH_MATMUL_NT, 8192, 3072, 768, 0 },
    { "124M up dx", COH_MATMUL_NN, 8192, 768, 3072, 0 },
    { "124M up dw", COH_MATMUL_TN, 3072, 768, 8192, 1 },
    { "7B qkv", COH_MATMUL_NT, 8192, 4096, 4096, 0 },
    { "7B up", COH_MATMUL_NT, 8192, 11008, 4096, 0 },
    { "7B up dx", COH_MATMUL_NN, 8192, 4096, 11008, 0 },
    { "7B up dw", COH_MATMUL_TN, 11008, 4096, 8192, 1 },
    { "classifier", COH_MATMUL_NT, 8192, COH_GPU_TABLE_BLOCKS *COH_ROW_BLOCK, 4096, 0 },
    { "8192 cubed", COH_MATMUL_NN, 8192, 8192, 8192, 0 },
};

/* Training keeps two outputs: c and its gelu. */
static const shape fused[] = {
    { "124M up gelu", COH_MATMUL_NT, 8192, 3072, 768, 0 },
    { "7B up gelu", COH_MATMUL_NT, 8192, 11008, 4096, 0 },
};

/* A call of coh_kernel_matmul. */
typedef struct call {
    const gpu_turns *turns;
    coh_matmul matmul;
} call;

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    const call *c = context;
    (void)number;
    (void)index;
    coh_kernel_matmul(c->turns->queue, &c->matmul);
}

/* Returns the bytes of an operand, whose two halves begin at multiples of 256; sizes are
 * divided. */
static uint64_t operand_bytes(int64_t divisor)
{
    return (uint64_t)(OPERAND_ELEMENTS / divisor) * sizeof(float) / 512 * 512;
}

static uint64_t arena_bytes(int64_t divisor)
{
    return OPERANDS * operand_bytes(divisor) + BIAS_BYTES;
}

static coh_matmul matmul_of(const products *p, const shape *s)
{
    const int a_down = s->layout == COH_MATMUL_TN, b_down = s->layout != COH_MATMUL_NT;
    const int64_t rows = gpu_turns_divided(s->rows, p->divisor),
                  columns = gpu_turns_divided(s->columns, p->divisor),
                  depth = gpu_turns_divided(s->depth, p->divisor);
    return (coh_matmul){ .layout = s->layout,
                         .dtype = p->dtype,
                         .c_dtype = p->dtype,
                         .rows = rows,
                         .columns = columns,
                         .depth = depth,
                         .a = p->turns->arena,
                         .b = p->turns->arena + operand_bytes(p->divisor),
                         .c = p->turns->arena + 2 * operand_bytes(p->divisor),
                         .a_stride = a_down ? rows : depth,
                         .b_stride = b_down ? columns : depth,
                         .c_stride = columns,
                         .adds = s->adds };
}

static void print(const products *p, const shape *s, const char *side, const coh_matmul *m,
                  double ours_s[MEASURE_PAIRS], double ceiling_s[MEASURE_PAIRS], double goal)
{
    char name[64];
    measure_result result;
    const double work = 2e-9 * (double)m->rows * (double)m->columns * (double)m->depth;
    const measure_aims aims = { .goal = goal, .roof = p->roof };
    measure_compare(ours_s, ceiling_s, &result);
    snprintf(name, sizeof(name), "%s %s%s", s->name, p->dtype == COH_DTYPE_F32 ? "f32" : "bf16",
             side);
    measure_print_aims("gpu_products", name, work, "GFLOP", &result, &aims);
}

static coh_status measure_sides_of(products *p, const shape *s, gpu_bare_product *bare)
{
    call c = { p->turns, matmul_of(p, s) };
    double seconds[3][MEASURE_PAIRS];
    gpu_side sides[] = { { .work = enqueue, .context = &c },
                         { .work = enqueue, .context = &c, .is_alone = 1 },
                         { .work = gpu_bare_enqueue, .context = bare } };
    COH_TRY(gpu_bare_describe(&p->bare, &c.matmul, GPU_BARE_PLAIN, bare));
    if (bare->count == 0) {
        fprintf(stderr, "gpu_products: cuBLASLt has no algorithm for %s\n", s->name);
        return COH_OK;
    }
    COH_TRY(gpu_turns_take(p->turns, sides, 3, seconds));
    COH_TRY(gpu_bare_failure(bare));
    print(p, s, "", &c.matmul, seconds[0], seconds[2], GOAL);
    print(p, s, ", own kernel", &c.matmul, seconds[1], seconds[2], 0.0);
    return COH_OK;
}

static coh_status measure_fused(products *p, const shape *s, gpu_bare_product *bare)
{
    call c = { p->turns, matmul_of(p, s) };
    double seconds[2][MEASURE_PAIRS];
    gpu_side sides[] = { { .work = enqueue, .context = &c },
                         { .work = gpu_bare_enqueue, .context = bare } };
    c.matmul.bias = p->turns->arena + OPERANDS * operand_bytes(p->divisor);
    c.matmul.activation = COH_ACTIVATION_GELU;
    c.matmul.activated = (char *)c.matmul.c + operand_bytes(p->divisor) / 2;
    COH_TRY(gpu_bare_describe(&p->bare, &c.matmul, GPU_BARE_BIAS_GELU, bare));
    if (bare->count == 0) {
        fprintf(stderr, "gpu_products: cuBLASLt has no epilogue for %s\n", s->name);
        return COH_OK;
    }
    COH_TRY(gpu_turns_take(p->turns, sides, 2, seconds));
    COH_TRY(gpu_bare_failure(bare));
    print(p, s, " against its epilogue", &c.matmul, seconds[0], seconds[1], 0.0);
    return COH_OK;
}

static coh_status measure_each(products *p, const shape list[], size_t count,
                               coh_status (*measure)(products *, const shape *, gpu_bare_product *))
{
    coh_status status = COH_OK;
    for (size_t i = 0; i < count && status == COH_OK; i++) {
        gpu_bare_product bare = { .bare = &p->bare };
        status = measure(p, &list[i], &bare);
        gpu_bare_forget(&bare);
    }
    return status;
}

static coh_status measure_type(products *p, coh_dtype dtype)
{
    double flops_per_s;
    p->dtype = dtype;
    COH_TRY(gpu_bare_roof(&p->bare, "gpu_products", dtype, p->divisor, &flops_per_s));
    COH_TRY(gpu_turns_fill(p->turns, dtype, p->turns->arena_bytes));
    p->roof = 1e-9 * flops_per_s;
    COH_TRY(measure_each(p, shapes, sizeof(shapes) / sizeof(shapes[0]), measure_sides_of));
    if (dtype == COH_DTYPE_BF16) /* the dtype that models are trained in */
        COH_TRY(measure_each(p, fused, sizeof(fused) / sizeof(fused[0]), measure_fused));
    return COH_OK;
}

static coh_status measure(gpu_turns *turns, int64_t divisor)
{
    products p = { .turns = turns, .divisor = divisor };
    coh_status status = gpu_bare_open(turns, &p.bare);
    if (status == COH_OK)
        status = measure_type(&p, COH_DTYPE_BF16);
    if (status == COH_OK)
        status = measure_type(&p, COH_DTYPE_F32);
    gpu_bare_close(&p.bare);
    return status;
}

static const char *missing(const coh_cuda_libraries *libraries)
{
    return libraries->products == NULL ? "cuBLASLt" : NULL;
}

int main(int argc, char **argv)
{
    static const gpu_program program = { .name = "gpu_products",
                                         .divided = "sizes",
                                         .arena_bytes = arena_bytes,
                                         .missing = missing,
                                         .measure = measure };
    return gpu_turns_main(&program, argc, argv);
}
