#include "benchmarks/gpu_bare.h"

#include <stdio.h>

#include "memory/library_workspace.h"

static coh_status check(const gpu_bare *bare, cublasStatus_t status, const char *call)
{
    return status == CUBLAS_STATUS_SUCCESS
               ? COH_OK
               : coh_fail(COH_ERR_DEVICE, "%s: %s", call,
                          bare->library->call.cublasLtGetStatusString(status));
}

/* ---- life ---- */

static void start(void *context, uint64_t number, uint32_t index)
{
    gpu_bare *bare = context;
    (void)number;
    (void)index;
    coh_cuda_queue_fail(
        gpu_turns_queue(bare->turns),
        check(bare, bare->library->call.cublasLtCreate(&bare->handle), "cublasLtCreate"));
}

coh_status gpu_bare_open(gpu_turns *turns, gpu_bare *out_bare)
{
    *out_bare = (gpu_bare){ .turns = turns };
    COH_TRY(coh_cublaslt_open(&out_bare->library));
    return gpu_turns_once(turns, start, out_bare);
}

static void stop(void *context, uint64_t number, uint32_t index)
{
    const gpu_bare *bare = context;
    (void)number;
    (void)index;
    bare->library->call.cublasLtDestroy(bare->handle);
}

/* On a failed device, nothing may be called; the handle then lives until the process ends. */
void gpu_bare_close(gpu_bare *bare)
{
    if (bare->handle != NULL)
        (void)gpu_turns_once(bare->turns, stop, bare);
    coh_cublaslt_close(bare->library);
}

/* ---- a product ---- */

static cudaDataType_t type_of(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static coh_status layout(const gpu_bare *bare, coh_dtype dtype, int64_t rows, int64_t columns,
                         int64_t stride, cublasLtMatrixLayout_t *out)
{
    return check(bare,
                 bare->library->call.cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)rows,
                                                                (uint64_t)columns, stride),
                 "cublasLtMatrixLayoutCreate");
}

static coh_status set(const gpu_bare_product *p, cublasLtMatmulDescAttributes_t name,
                      const void *value, size_t bytes)
{
    return check(
        p->bare,
        p->bare->library->call.cublasLtMatmulDescSetAttribute(p->operation, name, value, bytes),
        "cublasLtMatmulDescSetAttribute");
}

/* The pre-activation goes to AUX, which is our c, and its gelu to D. */
static coh_status set_gelu(const gpu_bare_product *p)
{
    const coh_matmul *m = &p->matmul;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    COH_TRY(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    COH_TRY(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &m->bias, sizeof(m->bias)));
    COH_TRY(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &m->c, sizeof(m->c)));
    COH_TRY(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &m->c_stride, sizeof(m->c_stride)));
    return COH_OK;
}

static coh_status describe(gpu_bare_product *p)
{
    const coh_cublaslt_functions *call = &p->bare->library->call;
    const coh_matmul *m = &p->matmul;
    const int a_down = m->layout == COH_MATMUL_TN, b_down = m->layout != COH_MATMUL_NT;
    const int32_t transposed = CUBLAS_OP_T;
    COH_TRY(layout(p->bare, m->dtype, a_down ? m->rows : m->depth, a_down ? m->depth : m->rows,
                   m->a_stride, &p->a));
    COH_TRY(layout(p->bare, m->dtype, b_down ? m->columns : m->depth,
                   b_down ? m->depth : m->columns, m->b_stride, &p->b));
    COH_TRY(layout(p->bare, m->c_dtype, m->columns, m->rows, m->c_stride, &p->c));
    COH_TRY(check(p->bare,
                  call->cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "cublasLtMatmulDescCreate"));
    if (!b_down)
        COH_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    if (a_down)
        COH_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof(transposed)));
    return p->ending == GPU_BARE_BIAS_GELU ? set_gelu(p) : COH_OK;
}

/* Gets the heuristic's candidates, best first; none if it has no algorithm. */
static coh_status ask(gpu_bare_product *p)
{
    const coh_cublaslt_functions *call = &p->bare->library->call;
    const uint64_t workspace_bytes = COH_CUDA_PRODUCT_WORKSPACE_BYTES;
    cublasLtMatmulHeuristicResult_t results[GPU_BARE_CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0;
    cublasStatus_t status = call->cublasLtMatmulPreferenceCreate(&preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = call->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
            sizeof(workspace_bytes));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = call->cublasLtMatmulAlgoGetHeuristic(p->bare->handle, p->operation, p->b, p->a,
                                                      p->c, p->c, preference, GPU_BARE_CANDIDATES,
                                                      results, &count);
    if (preference != NULL)
        call->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        return COH_OK;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            p->algorithms[p->count++] = results[i].algo;
    return check(p->bare, status, "cublasLtMatmulAlgoGetHeuristic");
}

static void describe_and_ask(void *context, uint64_t number, uint32_t index)
{
    gpu_bare_product *p = context;
    (void)number;
    (void)index;
    coh_status status = describe(p);
    if (status == COH_OK)
        status = ask(p);
    coh_cuda_queue_fail(gpu_turns_queue(p->bare->turns), status);
}

coh_status gpu_bare_describe(const gpu_bare *bare, const coh_matmul *matmul, gpu_bare_ending ending,
                             gpu_bare_product *out_product)
{
    *out_product = (gpu_bare_product){
        .bare = bare, .matmul = *matmul, .ending = ending, .status = CUBLAS_STATUS_SUCCESS
    };
    return gpu_turns_once(bare->turns, describe_and_ask, out_product);
}

void gpu_bare_forget(gpu_bare_product *product)
{
    const coh_cublaslt_functions *call = &product->bare->library->call;
    if (product->operation != NULL)
        call->cublasLtMatmulDescDestroy(product->operation);
    if (product->a != NULL)
        call->cublasLtMatrixLayoutDestroy(product->a);
    if (product->b != NULL)
        call->cublasLtMatrixLayoutDestroy(product->b);
    if (product->c != NULL)
        call->cublasLtMatrixLayoutDestroy(product->c);
}

void gpu_bare_enqueue(void *product, uint64_t number, uint32_t index)
{
    gpu_bare_product *p = product;
    const coh_matmul *m = &p->matmul;
    const coh_cuda_queue *queue = gpu_turns_queue(p->bare->turns);
    const float one = 1.0f, beta = m->adds ? 1.0f : 0.0f;
    void *out = p->ending == GPU_BARE_BIAS_GELU ? m->activated : m->c;
    (void)number;
    (void)index;
    const cublasStatus_t status = p->bare->library->call.cublasLtMatmul(
        p->bare->handle, p->operation, &one, m->b, p->b, m->a, p->a, &beta, out, p->c, out, p->c,
        &p->algorithms[p->choice], queue->workspace, COH_CUDA_PRODUCT_WORKSPACE_BYTES,
        queue->stream);
    p->status = p->status == CUBLAS_STATUS_SUCCESS ? status : p->status;
}

coh_status gpu_bare_failure(const gpu_bare_product *product)
{
    return check(product->bare, product->status, "cublasLtMatmul");
}

/* ---- the roof ---- */

static uint64_t cube_bytes(coh_dtype dtype, int64_t size)
{
    return (uint64_t)(size * size) * coh_dtype_bytes(dtype);
}

static coh_matmul cube_of(const gpu_turns *turns, coh_dtype dtype, int64_t size)
{
    return (coh_matmul){ .layout = COH_MATMUL_NN,
                         .dtype = dtype,
                         .c_dtype = dtype,
                         .rows = size,
                         .columns = size,
                         .depth = size,
                         .a = turns->arena,
                         .b = turns->arena + cube_bytes(dtype, size),
                         .c = turns->arena + 2 * cube_bytes(dtype, size),
                         .a_stride = size,
                         .b_stride = size,
                         .c_stride = size };
}

/* The fastest product so far. */
typedef struct roof {
    int64_t size;
    double seconds, flops_per_s;
} roof;

/* Measures one cube; an algorithm that fails to run is skipped. */
static coh_status measure_cube(gpu_bare *bare, const coh_matmul *cube, roof *best)
{
    gpu_bare_product product;
    const double flops = 2.0 * (double)cube->rows * (double)cube->columns * (double)cube->depth;
    coh_status status = gpu_bare_describe(bare, cube, GPU_BARE_PLAIN, &product);
    for (; status == COH_OK && product.choice < product.count; product.choice++) {
        gpu_side side = { .work = gpu_bare_enqueue, .context = &product };
        double seconds = 0.0;
        product.status = CUBLAS_STATUS_SUCCESS;
        status = gpu_turns_best(bare->turns, &side, &seconds);
        if (product.status == CUBLAS_STATUS_SUCCESS && flops / seconds > best->flops_per_s)
            *best = (roof){ cube->rows, seconds, flops / seconds };
    }
    gpu_bare_forget(&product);
    return status;
}

/* Prints like measure_print: a row that is its own ceiling, with how it was measured. */
static void print_roof(const char *name, coh_dtype dtype, const roof *r)
{
    const char *type = dtype == COH_DTYPE_F32 ? "f32" : "bf16";
    const double rate = 1e-9 * r->flops_per_s;
    fprintf(stderr, "%-10s roof of products in %s: %.1f GFLOP/s, %lld cubed\n", name, type, rate,
            (long long)r->size);
    printf("{\"benchmark\": \"%s\", \"shape\": \"roof %s\", \"unit\": \"GFLOP/s\", "
           "\"median\": %.4g, \"ceiling\": %.4g, \"size\": %lld, \"seconds\": %.5g}\n",
           name, type, rate, rate, (long long)r->size, r->seconds);
}

coh_status gpu_bare_roof(gpu_bare *bare, const char *name, coh_dtype dtype, int64_t divisor,
                         double *out_flops_per_s)
{
    static const int64_t sizes[] = { 4096, 8192, 16384 };
    roof best = { 0 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int64_t size = gpu_turns_divided(sizes[i], divisor);
        const coh_matmul cube = cube_of(bare->turns, dtype, size);
        if (3 * cube_bytes(dtype, size) > bare->turns->arena_bytes) {
            fprintf(stderr, "%-10s no cube of %lld in %s: there is no room for it\n", name,
                    (long long)size, dtype == COH_DTYPE_F32 ? "f32" : "bf16");
            break;
        }
        COH_TRY(gpu_turns_fill(bare->turns, dtype, 2 * cube_bytes(dtype, size)));
        COH_TRY(measure_cube(bare, &cube, &best));
    }
    if (best.size == 0)
        return coh_fail(COH_ERR_DEVICE,
                        "cuBLASLt multiplies no cube in %llu bytes: the roof of products is not "
                        "known",
                        (unsigned long long)bare->turns->arena_bytes);
    print_roof(name, dtype, &best);
    *out_flops_per_s = best.flops_per_s;
    return COH_OK;
}
