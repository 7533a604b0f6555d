#include "tests/cuda/fake_cublaslt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

fake_cublaslt fake_lt;

typedef struct operation {
    cublasComputeType_t compute_type;
    cudaDataType_t scale_type;
    int32_t transposed_a, transposed_b;
    uint32_t epilogue;
    const void *bias;
    void *aux; /* the inputs of gelu, for epilogues that keep them */
    int64_t aux_leading;
} operation;

typedef struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
} layout;

typedef struct preference {
    uint64_t workspace_bytes;
    uint32_t reduction_mask, alignment[4];
} preference;

/* The data of an algorithm: a mark, its workspace, the alignment it assumes, its number. */
enum { MARK = 0x5eed };

void fake_lt_reset(void)
{
    fake_lt = (fake_cublaslt){ .version = 130100 };
}

/* Returns 1 if this call is the one that fails. */
static int fails(void)
{
    fake_lt.calls++;
    if (fake_lt.fail_nth == 0 || --fake_lt.fail_nth > 0)
        return 0;
    fake_lt.was_hit = 1;
    return 1;
}

static cublasStatus_t make(void *out_object, size_t bytes)
{
    void *object = fails() ? NULL : calloc(1, bytes);
    if (object == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(out_object, &object, sizeof(object));
    fake_lt.live_objects++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop(void *object)
{
    free(object);
    fake_lt.live_objects--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_create(cublasLtHandle_t *handle)
{
    return make(handle, 1);
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle)
{
    return drop(handle);
}

static size_t fake_version(void)
{
    return (size_t)fake_lt.version;
}

static const char *fake_status_string(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_ALLOC_FAILED ? "ALLOC_FAILED" : "ANOTHER_STATUS";
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                    uint64_t columns, int64_t leading)
{
    const cublasStatus_t status = make(out, sizeof(layout));
    if (status == CUBLAS_STATUS_SUCCESS)
        *(layout *)(void *)*out = (layout){ type, rows, columns, leading };
    return status;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t object)
{
    return drop(object);
}

/* The defaults are those of the manual. */
static cublasStatus_t operation_create(cublasLtMatmulDesc_t *out, cublasComputeType_t compute_type,
                                       cudaDataType_t scale_type)
{
    const cublasStatus_t status = make(out, sizeof(operation));
    if (status == CUBLAS_STATUS_SUCCESS)
        *(operation *)(void *)*out = (operation){ .compute_type = compute_type,
                                                  .scale_type = scale_type,
                                                  .transposed_a = CUBLAS_OP_N,
                                                  .transposed_b = CUBLAS_OP_N,
                                                  .epilogue = CUBLASLT_EPILOGUE_DEFAULT };
    return status;
}

static cublasStatus_t operation_destroy(cublasLtMatmulDesc_t object)
{
    return drop(object);
}

static cublasStatus_t take(void *member, size_t member_bytes, const void *value, size_t bytes)
{
    if (bytes != member_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

#define TAKE(member) take(&(member), sizeof(member), value, bytes)

static cublasStatus_t operation_set(cublasLtMatmulDesc_t object,
                                    cublasLtMatmulDescAttributes_t name, const void *value,
                                    size_t bytes)
{
    operation *o = (operation *)(void *)object;
    if (fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA)
        return TAKE(o->transposed_a);
    if (name == CUBLASLT_MATMUL_DESC_TRANSB)
        return TAKE(o->transposed_b);
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE)
        return TAKE(o->epilogue);
    if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        return TAKE(o->bias);
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
        return TAKE(o->aux);
    if (name == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
        return TAKE(o->aux_leading);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out)
{
    const cublasStatus_t status = make(out, sizeof(preference));
    if (status == CUBLAS_STATUS_SUCCESS)
        *(preference *)(void *)*out =
            (preference){ .reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK,
                          .alignment = { 256, 256, 256, 256 } };
    return status;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t object)
{
    return drop(object);
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t object,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t bytes)
{
    preference *p = (preference *)(void *)object;
    if (fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return TAKE(p->workspace_bytes);
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return TAKE(p->reduction_mask);
    if (name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
        name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        return TAKE(p->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES]);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* Checks the shapes for op(A) op(B): m x k, k x n, m x n. */
static int shapes_agree(const operation *o, const layout *a, const layout *b, const layout *c,
                        const layout *d)
{
    const uint64_t m = o->transposed_a ? a->columns : a->rows;
    const uint64_t k = o->transposed_a ? a->rows : a->columns;
    const uint64_t n = o->transposed_b ? b->rows : b->columns;
    return (o->transposed_b ? b->columns : b->rows) == k && d->rows == m && d->columns == n &&
           c->rows == m && c->columns == n && c->type == d->type && a->type == b->type &&
           a->leading >= (int64_t)a->rows && b->leading >= (int64_t)b->rows &&
           c->leading >= (int64_t)c->rows && d->leading >= (int64_t)d->rows;
}

/* Makes proposal `n`, from 0. */
static cublasLtMatmulHeuristicResult_t proposal(const preference *p, int n)
{
    cublasLtMatmulHeuristicResult_t result = { .state = CUBLAS_STATUS_SUCCESS };
    result.algo.data[0] = MARK;
    result.algo.data[1] = result.workspaceSize = p->workspace_bytes;
    for (int i = 0; i < 4; i++)
        result.algo.data[2 + i] = p->alignment[i];
    result.algo.data[6] = (uint64_t)n;
    return result;
}

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t object,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preferred, int most,
                                cublasLtMatmulHeuristicResult_t *results, int *out_count)
{
    const operation *o = (const operation *)(const void *)object;
    const preference *p = (const preference *)(const void *)preferred;
    (void)handle;
    *out_count = 0;
    fake_lt.heuristics++;
    if (fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    fake_lt.workspace_bytes = p->workspace_bytes;
    fake_lt.reduction_mask = p->reduction_mask;
    memcpy(fake_lt.alignment, p->alignment, sizeof(p->alignment));
    fake_lt.compute_type = o->compute_type;
    fake_lt.scale_type = o->scale_type;
    fake_lt.epilogue = o->epilogue;
    if (most < 1 ||
        !shapes_agree(o, (const layout *)(const void *)a, (const layout *)(const void *)b,
                      (const layout *)(const void *)c, (const layout *)(const void *)d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((o->epilogue & CUBLASLT_EPILOGUE_BIAS) && fake_lt.refuses_bias)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fake_lt.most = most;
    const int known = fake_lt.algorithm_count > 0 ? fake_lt.algorithm_count : 1;
    for (; *out_count < most && *out_count < known; ++*out_count)
        results[*out_count] = proposal(p, *out_count);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(cublasLtHandle_t handle, cublasLtMatmulDesc_t object,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algorithm,
                            cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    fake_lt.checks++;
    if (fails())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    if (fake_lt.refuses_checks ||
        !shapes_agree((const operation *)(const void *)object, (const layout *)(const void *)a,
                      (const layout *)(const void *)b, (const layout *)(const void *)c,
                      (const layout *)(const void *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = (cublasLtMatmulHeuristicResult_t){ .algo = *algorithm,
                                                 .workspaceSize = fake_lt.check_workspace_bytes,
                                                 .state = CUBLAS_STATUS_SUCCESS };
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algorithm_get(const cublasLtMatmulAlgo_t *algorithm,
                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *to,
                                    size_t bytes, size_t *written)
{
    (void)algorithm;
    if (attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || bytes != sizeof(uint32_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, &fake_lt.reduction_scheme, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static float load(cudaDataType_t type, const void *data, int64_t at)
{
    return type == CUDA_R_16BF ? coh_f32_of_bf16(((const uint16_t *)data)[at])
                               : ((const float *)data)[at];
}

static void store(cudaDataType_t type, void *data, int64_t at, float value)
{
    if (type == CUDA_R_16BF)
        ((uint16_t *)data)[at] = coh_bf16_of_f32(value);
    else
        ((float *)data)[at] = value;
}

/* Returns element (row, column) of op(X). */
static double element(const layout *x, const void *data, int transposed, int64_t row,
                      int64_t column)
{
    return (double)load(x->type, data,
                        transposed ? row * x->leading + column : column * x->leading + row);
}

static float finish(const operation *o, const layout *d, double sum, int64_t row, int64_t column)
{
    if (o->epilogue & CUBLASLT_EPILOGUE_BIAS)
        sum += (double)load(d->type, o->bias, row); /* the default is D's type */
    if ((o->epilogue & CUBLASLT_EPILOGUE_RELU) && sum < 0.0)
        sum = 0.0;
    if ((o->epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX)
        store(d->type, o->aux, column * o->aux_leading + row, (float)sum);
    if (o->epilogue & CUBLASLT_EPILOGUE_GELU) /* the tanh form */
        sum *= 0.5 * (1.0 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    return (float)sum;
}

static void check_promises(const operation *o, const void *const places[4], size_t workspace_bytes,
                           const cublasLtMatmulAlgo_t *algorithm)
{
    if (algorithm->data[0] != MARK)
        return;
    for (int i = 0; i < 4; i++)
        fake_lt.broken += (uintptr_t)places[i] % algorithm->data[2 + i] != 0;
    if (o->epilogue & CUBLASLT_EPILOGUE_BIAS)
        fake_lt.broken += (uintptr_t)o->bias % algorithm->data[2] != 0;
    fake_lt.broken += workspace_bytes < algorithm->data[1];
}

static cublasStatus_t product(cublasLtHandle_t handle, cublasLtMatmulDesc_t object,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const operation *o = (const operation *)(const void *)object;
    const layout *la = (const layout *)(const void *)a_layout;
    const layout *lb = (const layout *)(const void *)b_layout;
    const layout *lc = (const layout *)(const void *)c_layout;
    const layout *ld = (const layout *)(const void *)d_layout;
    const double scale = (double)*(const float *)alpha, keep = (double)*(const float *)beta;
    (void)handle;
    if (fails())
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!shapes_agree(o, la, lb, lc, ld))
        return CUBLAS_STATUS_INVALID_VALUE;
    const uint64_t number = algorithm->data[0] == MARK ? algorithm->data[6] : 0;
    if (number + 1 == (uint64_t)fake_lt.broken_algorithm)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    check_promises(o, (const void *const[]){ a, b, c, d }, workspace_bytes, algorithm);
    fake_lt.now_ns += fake_lt.cost_ns[number];
    fake_lt.products++;
    memcpy(fake_lt.algorithm_words, algorithm->data, sizeof(algorithm->data));
    fake_lt.workspace = workspace;
    fake_lt.stream = stream;
    const int64_t depth = (int64_t)(o->transposed_a ? la->rows : la->columns);
    for (int64_t j = 0; j < (int64_t)ld->columns; j++)
        for (int64_t i = 0; i < (int64_t)ld->rows; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < depth; k++)
                sum +=
                    element(la, a, o->transposed_a, i, k) * element(lb, b, o->transposed_b, k, j);
            sum *= scale;
            if (keep != 0.0)
                sum += keep * element(lc, c, 0, i, j);
            store(ld->type, d, j * ld->leading + i, finish(o, ld, sum, i, j));
        }
    return CUBLAS_STATUS_SUCCESS;
}

const coh_cublaslt_functions fake_lt_functions = {
    .cublasLtCreate = fake_create,
    .cublasLtDestroy = fake_destroy,
    .cublasLtGetVersion = fake_version,
    .cublasLtGetStatusString = fake_status_string,
    .cublasLtMatrixLayoutCreate = layout_create,
    .cublasLtMatrixLayoutDestroy = layout_destroy,
    .cublasLtMatmulDescCreate = operation_create,
    .cublasLtMatmulDescSetAttribute = operation_set,
    .cublasLtMatmulDescDestroy = operation_destroy,
    .cublasLtMatmulPreferenceCreate = preference_create,
    .cublasLtMatmulPreferenceSetAttribute = preference_set,
    .cublasLtMatmulPreferenceDestroy = preference_destroy,
    .cublasLtMatmulAlgoGetHeuristic = heuristic,
    .cublasLtMatmulAlgoCheck = check,
    .cublasLtMatmulAlgoConfigGetAttribute = algorithm_get,
    .cublasLtMatmul = product,
};
