/* Makes, finds and runs plans of cuBLASLt: a hash table from the form of a product to its
 * descriptors and algorithm. While measuring, it also times algorithms. Next: products.h,
 * kernels/algorithm.h. */
#include "kernels/cuda/products.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"

/* Below this alignment the library's kernels load single elements, and some refuse. */
enum { ALIGNMENT_LEAST = 16 };

/* Measuring: number of algorithms tried; the least time of all turns counts for each. */
enum { CANDIDATES = 8, TURNS = 5, CALLS_MOST = 64 };
#define TURN_NS 500000.0
#define FASTER  0.97 /* part of the first one's time that a change of bits is worth */

typedef struct plan {
    coh_product_form form;
    int is_refused, is_stored, has_run;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* ours; the library's A is b */
    cublasLtMatmulAlgo_t algorithm;
} plan;

struct coh_cuda_products {
    const coh_cublaslt_functions *lt;
    cublasLtHandle_t handle;
    void *workspace;
    size_t workspace_bytes;
    coh_algorithm_device device;
    void *stream; /* only with a clock: for measuring */
    coh_status (*clock)(void *context, uint64_t *out_ns);
    void *clock_context;
    plan **slots; /* open addressing by the form's hash; a power of two */
    size_t slot_count, plan_count;
};

static coh_status fail_call(const coh_cuda_products *p, const coh_product_form *f, const char *call,
                            cublasStatus_t status)
{
    return coh_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? COH_ERR_MEMORY : COH_ERR_DEVICE,
                    "cuBLASLt: %s of the product %" PRId64 " x %" PRId64 " x %" PRId64
                    " failed with %s",
                    call, f->rows, f->columns, f->depth, p->lt->cublasLtGetStatusString(status));
}

/* ---- create and destroy ---- */

coh_status coh_cuda_products_create(const coh_cuda_products_config *config,
                                    coh_cuda_products **out_products)
{
    coh_cuda_products *p = NULL;
    *out_products = NULL;
    COH_TRY(COH_ALLOC(1, &p));
    p->lt = config->functions;
    p->workspace = config->workspace;
    p->workspace_bytes = config->workspace_bytes;
    p->stream = config->stream;
    p->clock = config->clock;
    p->clock_context = config->clock_context;
    snprintf(p->device.name, sizeof(p->device.name), "%s", config->device_name);
    p->device.multiprocessors = config->multiprocessors;
    p->device.library_version = (int64_t)p->lt->cublasLtGetVersion();
    const cublasStatus_t status = p->lt->cublasLtCreate(&p->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        const coh_status failed = coh_fail(
            COH_ERR_DEVICE,
            "cuBLASLt %" PRId64 " cannot be started on %s (%s): cohobate doctor says which driver "
            "and libraries are here",
            p->device.library_version, p->device.name, p->lt->cublasLtGetStatusString(status));
        coh_free(p);
        return failed;
    }
    *out_products = p;
    return COH_OK;
}

static void plan_destroy(const coh_cublaslt_functions *lt, plan *one)
{
    if (one == NULL)
        return;
    if (one->operation != NULL)
        lt->cublasLtMatmulDescDestroy(one->operation);
    if (one->a != NULL)
        lt->cublasLtMatrixLayoutDestroy(one->a);
    if (one->b != NULL)
        lt->cublasLtMatrixLayoutDestroy(one->b);
    if (one->c != NULL)
        lt->cublasLtMatrixLayoutDestroy(one->c);
    coh_free(one);
}

void coh_cuda_products_destroy(coh_cuda_products *products)
{
    if (products == NULL)
        return;
    for (size_t i = 0; i < products->slot_count; i++)
        plan_destroy(products->lt, products->slots[i]);
    coh_free(products->slots);
    products->lt->cublasLtDestroy(products->handle);
    coh_free(products);
}

/* ---- plans ---- */

static uint64_t hash_of(const coh_product_form *form)
{
    return XXH3_64bits(form, sizeof(*form));
}

/* Returns the slot that holds the form, or the empty one for it. slot_count is above 0. */
static plan **slot_of(plan **slots, size_t slot_count, const coh_product_form *form)
{
    size_t at = (size_t)hash_of(form) & (slot_count - 1);
    while (slots[at] != NULL && memcmp(&slots[at]->form, form, sizeof(*form)) != 0)
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

/* Makes room for one more plan, with half of the slots empty. */
static coh_status make_room(coh_cuda_products *p)
{
    plan **slots = NULL;
    if (2 * (p->plan_count + 1) <= p->slot_count)
        return COH_OK;
    const size_t slot_count = p->slot_count == 0 ? 64 : 2 * p->slot_count;
    COH_TRY(COH_ALLOC(slot_count, &slots));
    for (size_t i = 0; i < p->slot_count; i++)
        if (p->slots[i] != NULL)
            *slot_of(slots, slot_count, &p->slots[i]->form) = p->slots[i];
    coh_free(p->slots);
    p->slots = slots;
    p->slot_count = slot_count;
    return COH_OK;
}

/* Forms for which the library is never asked. Its C, D and bias have one type. */
static int is_ours_alone(const coh_product_form *f)
{
    const int narrows = f->dtype == COH_DTYPE_F32 && f->c_dtype != COH_DTYPE_F32;
    return narrows || f->mixed || f->alignment < ALIGNMENT_LEAST;
}

static cudaDataType_t data_type(int32_t dtype)
{
    return dtype == COH_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasStatus_t make_layout(const coh_cublaslt_functions *lt, int32_t dtype, int64_t rows,
                                  int64_t columns, int64_t stride, cublasLtMatrixLayout_t *out)
{
    return lt->cublasLtMatrixLayoutCreate(out, data_type(dtype), (uint64_t)rows, (uint64_t)columns,
                                          stride);
}

/* The three layouts of the table in products.h. */
static cublasStatus_t make_layouts(const coh_cublaslt_functions *lt, plan *one)
{
    const coh_product_form *f = &one->form;
    const int a_is_transposed = f->layout == COH_MATMUL_TN;
    const int b_is_transposed = f->layout == COH_MATMUL_NT;
    cublasStatus_t status = make_layout(lt, f->dtype, a_is_transposed ? f->rows : f->depth,
                                        a_is_transposed ? f->depth : f->rows, f->a_stride, &one->a);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(lt, f->dtype, b_is_transposed ? f->depth : f->columns,
                             b_is_transposed ? f->columns : f->depth, f->b_stride, &one->b);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layout(lt, f->c_dtype, f->columns, f->rows, f->c_stride, &one->c);
    return status;
}

static uint32_t epilogue_of(const coh_product_form *f)
{
    if (f->relu)
        return f->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return f->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t set_bias(const coh_cublaslt_functions *lt, cublasLtMatmulDesc_t operation,
                               const void *bias)
{
    return lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof(bias));
}

/* `bias`: an address as aligned as the one that will be used. */
static cublasStatus_t make_operation(const coh_cublaslt_functions *lt, plan *one, const void *bias)
{
    const coh_product_form *f = &one->form;
    const int32_t transposed = CUBLAS_OP_T;
    const uint32_t epilogue = epilogue_of(f);
    cublasStatus_t status =
        lt->cublasLtMatmulDescCreate(&one->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS && f->layout == COH_MATMUL_NT)
        status = lt->cublasLtMatmulDescSetAttribute(one->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &transposed, sizeof(transposed));
    if (status == CUBLAS_STATUS_SUCCESS && f->layout == COH_MATMUL_TN)
        status = lt->cublasLtMatmulDescSetAttribute(one->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                    &transposed, sizeof(transposed));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulDescSetAttribute(one->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &epilogue, sizeof(epilogue));
    if (status == CUBLAS_STATUS_SUCCESS && f->bias)
        status = set_bias(lt, one->operation, bias);
    return status;
}

/* Limits of an algorithm. Partial sums of a type other than f32 would be rounded in between. */
static cublasStatus_t make_preference(const coh_cuda_products *p, const coh_product_form *f,
                                      cublasLtMatmulPreference_t *out)
{
    const uint64_t workspace_bytes = p->workspace_bytes;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t alignment = (uint32_t)f->alignment;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes) },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof(alignment) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof(alignment) },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof(alignment) },
    };
    cublasStatus_t status = p->lt->cublasLtMatmulPreferenceCreate(out);
    for (size_t i = 0;
         i < sizeof(attributes) / sizeof(attributes[0]) && status == CUBLAS_STATUS_SUCCESS; i++)
        status = p->lt->cublasLtMatmulPreferenceSetAttribute(
            *out, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return status;
}

/* Returns the heuristic's first `most` algorithms, best first; none: the library has none for this
 * form. */
static coh_status ask_heuristic(const coh_cuda_products *p, const plan *one, int most,
                                cublasLtMatmulHeuristicResult_t *results, int *out_count)
{
    cublasLtMatmulPreference_t preference = NULL;
    *out_count = 0;
    cublasStatus_t status = make_preference(p, &one->form, &preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            p->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, one->operation, one->b, one->a, one->c,
                                                  one->c, preference, most, results, out_count);
    if (preference != NULL)
        p->lt->cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        return COH_OK;
    *out_count = 0;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return COH_OK;
    return fail_call(p, &one->form, "the choice of an algorithm", status);
}

static cublasStatus_t launch(const coh_cuda_products *p, const plan *one, const coh_matmul *m,
                             const cublasLtMatmulAlgo_t *algorithm, void *stream)
{
    const float one_time = 1.0f, beta = one->form.adds ? 1.0f : 0.0f;
    const void *begin = !m->adds && m->residual != NULL ? m->residual : m->c;
    const cublasStatus_t status =
        one->form.bias ? set_bias(p->lt, one->operation, m->bias) : CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return p->lt->cublasLtMatmul(p->handle, one->operation, &one_time, m->b, one->b, m->a, one->a,
                                 &beta, begin, one->c, m->c, one->c, algorithm, p->workspace,
                                 p->workspace_bytes, stream);
}

/* ---- measuring ---- */

/* Measures nanoseconds per product over `calls` products; infinite if the algorithm fails to
 * run. */
static coh_status time_calls(const coh_cuda_products *p, const plan *one, const coh_matmul *m,
                             const cublasLtMatmulAlgo_t *algorithm, int calls, double *out_ns)
{
    uint64_t begin_ns = 0, end_ns = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    COH_TRY(p->clock(p->clock_context, &begin_ns));
    for (int i = 0; i < calls && status == CUBLAS_STATUS_SUCCESS; i++)
        status = launch(p, one, m, algorithm, p->stream);
    COH_TRY(p->clock(p->clock_context, &end_ns));
    *out_ns = status == CUBLAS_STATUS_SUCCESS ? (double)(end_ns - begin_ns) / calls : INFINITY;
    return COH_OK;
}

/* Measures the least time of a few turns; in a turn the algorithms follow one another. */
static coh_status time_all(const coh_cuda_products *p, const plan *one, const coh_matmul *m,
                           const cublasLtMatmulHeuristicResult_t *results, int count,
                           double least[CANDIDATES])
{
    double ns = 0;
    for (int i = 0; i < count; i++) { /* the first call loads code */
        least[i] = INFINITY;
        COH_TRY(time_calls(p, one, m, &results[i].algo, 1, &ns));
    }
    COH_TRY(time_calls(p, one, m, &results[0].algo, 1, &ns));
    const double wanted = ns > 0 ? TURN_NS / ns : CALLS_MOST;
    const int calls = wanted < 1 ? 1 : wanted > CALLS_MOST ? CALLS_MOST : (int)wanted;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < count; i++) {
            COH_TRY(time_calls(p, one, m, &results[i].algo, calls, &ns));
            least[i] = ns < least[i] ? ns : least[i];
        }
    return COH_OK;
}

/* Selects the fastest of `count` algorithms and stores it. */
static coh_status choose_fastest(const coh_cuda_products *p, plan *one, const coh_matmul *m,
                                 const cublasLtMatmulHeuristicResult_t *results, int count)
{
    coh_algorithm line = { .device = p->device, .form = one->form };
    double least[CANDIDATES];
    int chosen = 0;
    COH_TRY(time_all(p, one, m, results, count, least));
    for (int i = 1; i < count; i++)
        if (least[i] < FASTER * least[0] && least[i] < least[chosen])
            chosen = i;
    if (isinf(least[chosen]))
        return fail_call(p, &one->form, "the measurement", CUBLAS_STATUS_EXECUTION_FAILED);
    memcpy(line.words, results[chosen].algo.data, sizeof(line.words));
    line.microseconds = fmax(least[chosen] * 1e-3, 1e-3);
    COH_TRY(coh_algorithms_add(&line));
    one->algorithm = results[chosen].algo;
    one->is_stored = one->has_run = 1;
    return COH_OK;
}

/* If the table has none: takes the heuristic's first, or notes a refusal. */
static coh_status take_heuristic(const coh_cuda_products *p, plan *one, const coh_matmul *m)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    const int is_measured =
        p->clock != NULL && coh_algorithms_are_measured() && coh_algorithms_has_room();
    int count, good = 0;
    COH_TRY(ask_heuristic(p, one, is_measured ? CANDIDATES : 1, results, &count));
    for (int i = 0; i < count; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            results[good++] = results[i];
    if (good == 0) {
        one->is_refused = 1;
        return COH_OK;
    }
    one->algorithm = results[0].algo;
    return is_measured ? choose_fastest(p, one, m, results, good) : COH_OK;
}

/* ---- plans, made once ---- */

/* Checks what the heuristic was asked for; the library's check of an algorithm does not include
 * it. */
static int adds_in_f32(const coh_cuda_products *p, const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    size_t bytes = 0;
    const cublasStatus_t status = p->lt->cublasLtMatmulAlgoConfigGetAttribute(
        algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme), &bytes);
    return status == CUBLAS_STATUS_SUCCESS && bytes == sizeof(scheme) &&
           (scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
            scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

/* If this library refuses an algorithm that a table names, no other replaces it: the user of the
 * table relies on its bits. */
static coh_status take_stored(const coh_cuda_products *p, plan *one, const uint64_t *words)
{
    const coh_product_form *f = &one->form;
    cublasLtMatmulHeuristicResult_t result = { .state = CUBLAS_STATUS_NOT_SUPPORTED };
    _Static_assert(sizeof(one->algorithm.data) == COH_ALGORITHM_WORDS * sizeof(*words), "64 bytes");
    memcpy(one->algorithm.data, words, sizeof(one->algorithm.data));
    const cublasStatus_t status = p->lt->cublasLtMatmulAlgoCheck(
        p->handle, one->operation, one->b, one->a, one->c, one->c, &one->algorithm, &result);
    const char *why = status != CUBLAS_STATUS_SUCCESS ? p->lt->cublasLtGetStatusString(status)
                      : result.workspaceSize > p->workspace_bytes ? "it wants more workspace"
                      : !adds_in_f32(p, &one->algorithm)          ? "its parts are not added in f32"
                                                                  : NULL;
    if (why != NULL)
        return coh_fail(COH_ERR_DEVICE,
                        "the kernel table's algorithm for the product %" PRId64 " x %" PRId64
                        " x %" PRId64 " does not run on %s (%s): measure again",
                        f->rows, f->columns, f->depth, p->device.name, why);
    one->is_stored = 1;
    return COH_OK;
}

static coh_status make_plan(const coh_cuda_products *p, plan *one, const coh_matmul *m)
{
    if (is_ours_alone(&one->form)) {
        one->is_refused = 1;
        return COH_OK;
    }
    cublasStatus_t status = make_layouts(p->lt, one);
    if (status == CUBLAS_STATUS_SUCCESS) /* no real bias yet: pass an aligned address */
        status = make_operation(p->lt, one, (const void *)(uintptr_t)one->form.alignment);
    if (status != CUBLAS_STATUS_SUCCESS)
        return fail_call(p, &one->form, "the description", status);
    const uint64_t *words = coh_algorithm_find(&p->device, &one->form);
    return words != NULL ? take_stored(p, one, words) : take_heuristic(p, one, m);
}

/* Returns the plan of this product's form; makes it if it is new. */
static coh_status plan_of(coh_cuda_products *p, const coh_matmul *m, const coh_product_form *form,
                          plan **out_plan)
{
    coh_status status = COH_OK;
    plan *one = p->slot_count == 0 ? NULL : *slot_of(p->slots, p->slot_count, form);
    *out_plan = one;
    if (one != NULL)
        return COH_OK;
    COH_TRY(make_room(p));
    COH_TRY(COH_ALLOC(1, &one));
    one->form = *form;
    COH_TRY_GOTO(status, make_plan(p, one, m), fail);
    *slot_of(p->slots, p->slot_count, form) = one;
    p->plan_count++;
    *out_plan = one;
    return COH_OK;
fail:
    plan_destroy(p->lt, one);
    return status;
}

/* ---- use ---- */

coh_status coh_cuda_products_prepare(coh_cuda_products *products, const coh_matmul *matmul,
                                     int *out_has_run)
{
    const coh_product_form form = coh_product_form_of(matmul);
    plan *one;
    *out_has_run = 0;
    COH_TRY(plan_of(products, matmul, &form, &one));
    *out_has_run = one->has_run || one->is_refused;
    return COH_OK;
}

coh_status coh_cuda_products_run(coh_cuda_products *products, void *stream,
                                 const coh_matmul *matmul, int *out_done)
{
    const coh_product_form form = coh_product_form_of(matmul);
    plan *one;
    *out_done = 0;
    COH_TRY(plan_of(products, matmul, &form, &one));
    if (one->is_refused)
        return COH_OK;
    const cublasStatus_t status = launch(products, one, matmul, &one->algorithm, stream);
    if (status != CUBLAS_STATUS_SUCCESS)
        return fail_call(products, &form, "the launch", status);
    *out_done = one->has_run = 1;
    return COH_OK;
}

void coh_cuda_products_facts_of(const coh_cuda_products *products,
                                coh_cuda_products_facts *out_facts)
{
    *out_facts = (coh_cuda_products_facts){ .device = products->device };
    for (size_t i = 0; i < products->slot_count; i++) {
        const plan *one = products->slots[i];
        if (one == NULL)
            continue;
        out_facts->plan_count += !one->is_refused;
        out_facts->refused_count += one->is_refused;
        out_facts->stored_count += one->is_stored;
    }
}

void coh_cuda_products_refused(const coh_cuda_products *products,
                               void (*visit)(void *context, const coh_product_form *form),
                               void *context)
{
    for (size_t i = 0; i < products->slot_count; i++)
        if (products->slots[i] != NULL && products->slots[i]->is_refused)
            visit(context, &products->slots[i]->form);
}
