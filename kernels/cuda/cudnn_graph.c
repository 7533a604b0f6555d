/* Builds one attention as a graph of cuDNN's operations, and a plan from it. The graph must follow
 * a pattern that cuDNN's fused engines know: an engine takes the graph as a whole or not at all. So
 * operations, layouts and types of inner tensors must be exactly as they are here. Next:
 * cudnn.h. */
#include "kernels/cuda/cudnn.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/terms.h"

enum {
    DESCRIPTORS_MOST = 128,
    OPERATIONS_MOST = 32,
    CANDIDATES_MOST = 8,
};

/* Names of tensors with an address; inner tensors are named from INSIDE on. */
enum {
    TENSOR_Q = 1,
    TENSOR_K,
    TENSOR_V,
    TENSOR_Y,
    TENSOR_STATISTICS,
    TENSOR_DY,
    TENSOR_DELTA,
    TENSOR_DQ,
    TENSOR_DK,
    TENSOR_DV,
    TENSOR_DQ_SUM,
    TENSOR_SCALE,
    TENSOR_MINUS_INFINITY,
    TENSOR_ONE,
    TENSOR_INSIDE,
};

/* Numbers of tensors with an address: of forward, and with those that backward and atomics add. */
enum { FORWARD_TENSORS = 7, BACKWARD_TENSORS = 13, ATOMIC_TENSORS = 14 };

/* Addresses in cuDNN's form: an object that cannot be changed once it is finalized. A program's
 * calls have the same addresses in every step, in the same order, so each is made once and kept. */
typedef struct variant_pack {
    coh_cudnn_tensors tensors;
    cudnnBackendDescriptor_t descriptor;
} variant_pack;

struct coh_cudnn_plan {
    coh_cudnn_target target;
    cudnnBackendDescriptor_t plan;
    /* the descriptors it was made from: cuDNN does not say that a plan may outlive them */
    cudnnBackendDescriptor_t made[DESCRIPTORS_MOST];
    int made_count;
    float scale, minus_infinity, one; /* read by cuDNN when the plan runs */
    int64_t tensor_count;             /* with an address */
    int has_run;
    size_t workspace_bytes;
    variant_pack *packs;
    size_t pack_count, pack_capacity, next; /* next: probably used next */
};

typedef cudnnBackendDescriptor_t node;

/* A graph under construction. The first failure is kept; after it, calls do nothing. */
typedef struct graph {
    const coh_cudnn_functions *call;
    coh_cudnn_target target;
    coh_cudnn_shape shape;
    cudnnStatus_t status;
    node made[DESCRIPTORS_MOST], operations[OPERATIONS_MOST];
    int made_count, operation_count;
    int64_t inside; /* name of the next inner tensor */
} graph;

static node make(graph *g, cudnnBackendDescriptorType_t type)
{
    node made = NULL;
    if (g->made_count == DESCRIPTORS_MOST)
        g->status = CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = g->call->cudnnBackendCreateDescriptor(type, &made);
    if (made != NULL)
        g->made[g->made_count++] = made;
    return made;
}

static void set(graph *g, node of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = g->call->cudnnBackendSetAttribute(of, name, type, count, elements);
}

static void set_node(graph *g, node of, cudnnBackendAttributeName_t name, node to)
{
    set(g, of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void finish(graph *g, node of)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = g->call->cudnnBackendFinalize(of);
}

/* ---- tensors ---- */

/* [B, heads, rows, columns]; strides in elements. */
typedef struct layout {
    int64_t dim[4], stride[4];
} layout;

static layout layout_of(const graph *g, int64_t heads, int64_t rows, int64_t columns)
{
    return (layout){ { g->shape.B, heads, rows, columns },
                     { heads * rows * columns, rows * columns, columns, 1 } };
}

/* Returns the layout of a head's rows in a tensor whose rows are `stride` apart. */
static layout rows_of(const graph *g, int64_t heads, int64_t stride)
{
    return (layout){ { g->shape.B, heads, g->shape.T, g->shape.D },
                     { g->shape.T * stride, g->shape.D, stride, 1 } };
}

static layout transposed(layout of)
{
    return (layout){ { of.dim[0], of.dim[1], of.dim[3], of.dim[2] },
                     { of.stride[0], of.stride[1], of.stride[3], of.stride[2] } };
}

typedef enum place { IN_MEMORY, INSIDE, BY_VALUE } place;

static node tensor(graph *g, int64_t name, cudnnDataType_t type, place where, layout as)
{
    node t = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool is_inside = where == INSIDE, is_value = where == BY_VALUE;
    const int64_t alignment = 16;
    set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, as.dim);
    set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, as.stride);
    set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inside);
    set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    finish(g, t);
    return t;
}

static node inside(graph *g, cudnnDataType_t type, layout as)
{
    return tensor(g, g->inside++, type, INSIDE, as);
}

static node value(graph *g, int64_t name)
{
    return tensor(g, name, CUDNN_DATA_FLOAT, BY_VALUE, (layout){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } });
}

static node scores(graph *g)
{
    return inside(g, CUDNN_DATA_FLOAT, layout_of(g, g->shape.H, g->shape.T, g->shape.T));
}

/* Makes a tensor with one number per query, in memory, laid out as on the host. */
static node per_query(graph *g, int64_t name)
{
    return tensor(g, name, CUDNN_DATA_FLOAT, IN_MEMORY, layout_of(g, g->shape.H, g->shape.T, 1));
}

/* ---- operations ---- */

static void add(graph *g, node operation)
{
    finish(g, operation);
    g->operations[g->operation_count++] = operation;
}

/* y = mode of x and b (and t); b and t may be NULL. `axis`: that of GEN_INDEX, else -1. */
static node pointwise(graph *g, cudnnPointwiseMode_t mode, int64_t axis, node x, node b, node t,
                      node y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    node how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how);
    node operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_node(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_node(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL)
        set_node(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t != NULL)
        set_node(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_node(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(g, operation);
    return y;
}

static node binary(graph *g, cudnnPointwiseMode_t mode, node x, node b, node y)
{
    return pointwise(g, mode, -1, x, b, NULL, y);
}

static node unary(graph *g, cudnnPointwiseMode_t mode, node x, node y)
{
    return pointwise(g, mode, -1, x, NULL, NULL, y);
}

static node matmul(graph *g, node a, node b, node c)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    node how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, how);
    node operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_node(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_node(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_node(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_node(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    add(g, operation);
    return c;
}

static node reduce(graph *g, cudnnReduceTensorOp_t by, node x, node y)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    node how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, how);
    node operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_node(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_node(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_node(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add(g, operation);
    return y;
}

static node reshape(graph *g, node x, node y)
{
    node operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_node(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(g, operation);
    return y;
}

/* ---- attention ---- */

/* scale q k^T where the key is not after the query, minus infinity elsewhere. */
static node causal_scores(graph *g, node q, node k_transposed, node scale)
{
    const layout square = layout_of(g, g->shape.H, g->shape.T, g->shape.T);
    node s = matmul(g, q, k_transposed, scores(g));
    s = binary(g, CUDNN_POINTWISE_MUL, s, scale, scores(g));
    node query = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 2, s, NULL, NULL,
                           inside(g, CUDNN_DATA_INT32, square));
    node key = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, 3, s, NULL, NULL,
                         inside(g, CUDNN_DATA_INT32, square));
    node is_seen =
        binary(g, CUDNN_POINTWISE_CMP_GE, query, key, inside(g, CUDNN_DATA_BOOLEAN, square));
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, -1, s, value(g, TENSOR_MINUS_INFINITY),
                     is_seen, scores(g));
}

static void build_forward(graph *g)
{
    const coh_cudnn_shape *s = &g->shape;
    const layout query = layout_of(g, s->H, s->T, 1), keys = rows_of(g, s->G, s->kv_stride);
    const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    node q = tensor(g, TENSOR_Q, bf16, IN_MEMORY, rows_of(g, s->H, s->q_stride));
    node k = tensor(g, TENSOR_K, bf16, IN_MEMORY, transposed(keys));
    node v = tensor(g, TENSOR_V, bf16, IN_MEMORY, keys);
    node y = tensor(g, TENSOR_Y, bf16, IN_MEMORY, rows_of(g, s->H, s->y_stride));
    node score = causal_scores(g, q, k, value(g, TENSOR_SCALE));
    node max = reduce(g, CUDNN_REDUCE_TENSOR_MAX, score, inside(g, CUDNN_DATA_FLOAT, query));
    node less = binary(g, CUDNN_POINTWISE_SUB, score, max, scores(g));
    node weight = unary(g, CUDNN_POINTWISE_EXP, less, scores(g));
    node sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, weight, inside(g, CUDNN_DATA_FLOAT, query));
    node log_sum = unary(g, CUDNN_POINTWISE_LOG, sum, inside(g, CUDNN_DATA_FLOAT, query));
    binary(g, CUDNN_POINTWISE_ADD, max, log_sum, per_query(g, TENSOR_STATISTICS));
    node share = binary(g, CUDNN_POINTWISE_DIV, weight, sum,
                        inside(g, bf16, layout_of(g, s->H, s->T, s->T)));
    matmul(g, share, v, y);
}

/* Makes a gradient of keys or values: one per head of queries, then summed over the heads that
 * share. */
static void shared_gradient(graph *g, node weights, node rows, int64_t name)
{
    const coh_cudnn_shape *s = &g->shape;
    node to = tensor(g, name, CUDNN_DATA_BFLOAT16, IN_MEMORY, rows_of(g, s->G, s->kv_stride));
    if (s->G == s->H) {
        matmul(g, weights, rows, to);
        return;
    }
    node all = inside(g, CUDNN_DATA_BFLOAT16, layout_of(g, s->H, s->T, s->D));
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, matmul(g, weights, rows, all), to);
}

static node dq_sum(graph *g)
{
    return tensor(g, TENSOR_DQ_SUM, CUDNN_DATA_FLOAT, IN_MEMORY,
                  layout_of(g, g->shape.H, g->shape.T, g->shape.D));
}

static void build_backward(graph *g)
{
    const coh_cudnn_shape *s = &g->shape;
    const layout query = layout_of(g, s->H, s->T, 1), keys = rows_of(g, s->G, s->kv_stride);
    const layout across = transposed(layout_of(g, s->H, s->T, s->T));
    const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    node q = tensor(g, TENSOR_Q, bf16, IN_MEMORY, rows_of(g, s->H, s->q_stride));
    node k = tensor(g, TENSOR_K, bf16, IN_MEMORY, transposed(keys));
    node v = tensor(g, TENSOR_V, bf16, IN_MEMORY, transposed(keys));
    node y = tensor(g, TENSOR_Y, bf16, IN_MEMORY, rows_of(g, s->H, s->y_stride));
    node dy = tensor(g, TENSOR_DY, bf16, IN_MEMORY, rows_of(g, s->H, s->y_stride));
    node dq = tensor(g, TENSOR_DQ, bf16, IN_MEMORY, rows_of(g, s->H, s->q_stride));
    node scale = value(g, TENSOR_SCALE);

    node product = binary(g, CUDNN_POINTWISE_MUL, dy, y,
                          inside(g, CUDNN_DATA_FLOAT, layout_of(g, s->H, s->T, s->D)));
    node sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, inside(g, CUDNN_DATA_FLOAT, query));
    node delta =
        binary(g, CUDNN_POINTWISE_MUL, sum, value(g, TENSOR_ONE), per_query(g, TENSOR_DELTA));

    node score = causal_scores(g, q, k, scale);
    node less = binary(g, CUDNN_POINTWISE_SUB, score, per_query(g, TENSOR_STATISTICS), scores(g));
    node weight = unary(g, CUDNN_POINTWISE_EXP, less, scores(g));
    shared_gradient(g, reshape(g, weight, inside(g, bf16, across)), dy, TENSOR_DV);

    node slope = matmul(g, dy, v, scores(g));
    slope = binary(g, CUDNN_POINTWISE_SUB, slope, delta, scores(g));
    slope = binary(g, CUDNN_POINTWISE_MUL, slope, weight, scores(g));
    slope = binary(g, CUDNN_POINTWISE_MUL, slope, scale, scores(g));
    shared_gradient(g, reshape(g, slope, inside(g, bf16, across)), q, TENSOR_DK);
    /* With atomics, engines add only to a sum in memory, never directly to dq. So the presence of
     * this sum selects atomics. */
    node key = reshape(g, k, inside(g, bf16, keys));
    if (s->atomics)
        unary(g, CUDNN_POINTWISE_IDENTITY, matmul(g, slope, key, dq_sum(g)), dq);
    else
        matmul(g, slope, key, dq);
}

/* ---- plans ---- */

static node operation_graph(graph *g)
{
    node all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
        g->operations);
    if (g->target.handle != NULL)
        set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->target.handle);
    finish(g, all);
    return all;
}

/* Asks the heuristics for engines, best first. */
static int ask(graph *g, node operations, node candidates[CANDIDATES_MOST])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    node heuristics = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_node(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (g->target.device != NULL)
        set_node(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->target.device);
    finish(g, heuristics);
    int64_t count = 0;
    for (int i = 0; i < CANDIDATES_MOST; i++)
        candidates[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = g->call->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                      CANDIDATES_MOST, &count, candidates);
    return (int)(count < CANDIDATES_MOST ? count : CANDIDATES_MOST);
}

static int is_refusal(cudnnStatus_t status)
{
    return CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED;
}

/* Returns the first candidate that can be finalized as a plan; its descriptor leaves the graph. A
 * failure other than a refusal ends the search, because the next candidate would give other
 * bits. */
static node finalized_plan(graph *g, const node *candidates, int count)
{
    cudnnStatus_t refused = CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < count && g->status == CUDNN_STATUS_SUCCESS; i++) {
        node plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        if (g->target.handle != NULL)
            set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->target.handle);
        else
            set_node(g, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, g->target.device);
        set_node(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidates[i]);
        if (g->status != CUDNN_STATUS_SUCCESS)
            break;
        refused = g->call->cudnnBackendFinalize(plan);
        if (refused == CUDNN_STATUS_SUCCESS) {
            g->made_count--;
            return plan;
        }
        if (!is_refusal(refused))
            break;
    }
    if (g->status == CUDNN_STATUS_SUCCESS)
        g->status = refused;
    return NULL;
}

/* Returns COH_OK and sets *out_refusal if it is a refusal. */
static coh_status explain(const graph *g, const char **out_refusal)
{
    const coh_cudnn_shape *shape = &g->shape;
    const char *word = g->call->cudnnGetErrorString(g->status);
    const int is_memory = g->status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                          g->status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    if (is_refusal(g->status)) {
        *out_refusal = word;
        return COH_OK;
    }
    return coh_fail(is_memory ? COH_ERR_MEMORY : COH_ERR_DEVICE,
                    "cuDNN cannot plan attention %s of %lld heads by %lld tokens: %s; "
                    "%s%s does without it",
                    shape->atomics       ? "backward by atomics"
                    : shape->is_backward ? "backward"
                                         : "forward",
                    (long long)shape->H, (long long)shape->T, word,
                    shape->atomics ? coh_term_text(COH_TERM_ATOMICS) : "COH_CUDA_LIBRARIES=none",
                    shape->atomics ? " off" : "");
}

coh_status coh_cudnn_plan_create(const coh_cudnn_target *target, const coh_cudnn_shape *shape,
                                 coh_cudnn_plan **out_plan, const char **out_refusal)
{
    graph g = { .call = target->call, .target = *target, .shape = *shape, .inside = TENSOR_INSIDE };
    *out_plan = NULL;
    *out_refusal = NULL;
    coh_cudnn_plan *plan;
    COH_TRY(COH_ALLOC(1, &plan));
    *plan = (coh_cudnn_plan){ .target = *target,
                              .scale = (float)(1.0 / sqrt((double)shape->D)),
                              .minus_infinity = -INFINITY,
                              .one = 1.0f,
                              .tensor_count = shape->atomics       ? ATOMIC_TENSORS
                                              : shape->is_backward ? BACKWARD_TENSORS
                                                                   : FORWARD_TENSORS };
    node candidates[CANDIDATES_MOST];
    shape->is_backward ? build_backward(&g) : build_forward(&g);
    const int count = ask(&g, operation_graph(&g), candidates);
    plan->plan = finalized_plan(&g, candidates, count);
    int64_t bytes = 0;
    if (g.status == CUDNN_STATUS_SUCCESS)
        g.status =
            g.call->cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                             CUDNN_TYPE_INT64, 1, NULL, &bytes);
    plan->workspace_bytes = (size_t)bytes;
    plan->made_count = g.made_count;
    memcpy(plan->made, g.made, sizeof(g.made));
    if (g.status == CUDNN_STATUS_SUCCESS) {
        *out_plan = plan;
        return COH_OK;
    }
    coh_cudnn_plan_destroy(plan);
    return explain(&g, out_refusal);
}

void coh_cudnn_plan_destroy(coh_cudnn_plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->pack_count; i++)
        plan->target.call->cudnnBackendDestroyDescriptor(plan->packs[i].descriptor);
    coh_free(plan->packs);
    if (plan->plan != NULL)
        plan->target.call->cudnnBackendDestroyDescriptor(plan->plan);
    while (plan->made_count > 0)
        plan->target.call->cudnnBackendDestroyDescriptor(plan->made[--plan->made_count]);
    coh_free(plan);
}

size_t coh_cudnn_plan_workspace(const coh_cudnn_plan *plan)
{
    return plan->workspace_bytes;
}

/* Fills a new pack. */
static cudnnStatus_t fill(const coh_cudnn_plan *plan, cudnnBackendDescriptor_t pack,
                          const coh_cudnn_tensors *t)
{
    const int64_t names[] = { TENSOR_Q,          TENSOR_K,     TENSOR_V,
                              TENSOR_Y,          TENSOR_SCALE, TENSOR_MINUS_INFINITY,
                              TENSOR_STATISTICS, TENSOR_DY,    TENSOR_DELTA,
                              TENSOR_DQ,         TENSOR_DK,    TENSOR_DV,
                              TENSOR_ONE,        TENSOR_DQ_SUM };
    const void *addresses[] = { t->q,          t->k,         t->v,
                                t->y,          &plan->scale, &plan->minus_infinity,
                                t->statistics, t->dy,        t->delta,
                                t->dq,         t->dk,        t->dv,
                                &plan->one,    t->dq_sum };
    const int64_t count = plan->tensor_count;
    const coh_cudnn_functions *call = plan->target.call;
    cudnnStatus_t status = call->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                          CUDNN_TYPE_INT64, count, names);
    if (status == CUDNN_STATUS_SUCCESS)
        status = call->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                CUDNN_TYPE_VOID_PTR, count, addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status = call->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                CUDNN_TYPE_VOID_PTR, 1, &t->workspace);
    return status == CUDNN_STATUS_SUCCESS ? call->cudnnBackendFinalize(pack) : status;
}

static cudnnStatus_t find_pack(coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors,
                               cudnnBackendDescriptor_t *out_pack)
{
    const coh_cudnn_functions *call = plan->target.call;
    for (size_t i = 0; i < plan->pack_count; i++) {
        const size_t at = (plan->next + i) % plan->pack_count;
        if (memcmp(&plan->packs[at].tensors, tensors, sizeof(*tensors)) == 0) {
            plan->next = at + 1;
            *out_pack = plan->packs[at].descriptor;
            return CUDNN_STATUS_SUCCESS;
        }
    }
    if (COH_GROW(&plan->packs, &plan->pack_capacity, plan->pack_count + 1) != COH_OK)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    variant_pack made = { .tensors = *tensors };
    cudnnStatus_t status =
        call->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &made.descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = fill(plan, made.descriptor, tensors);
    if (status != CUDNN_STATUS_SUCCESS) {
        call->cudnnBackendDestroyDescriptor(made.descriptor);
        return status;
    }
    plan->packs[plan->pack_count++] = made;
    *out_pack = made.descriptor;
    return CUDNN_STATUS_SUCCESS;
}

int coh_cudnn_plan_has_run(const coh_cudnn_plan *plan)
{
    return plan->has_run;
}

cudnnStatus_t coh_cudnn_plan_prepare(coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors)
{
    cudnnBackendDescriptor_t pack;
    return find_pack(plan, tensors, &pack);
}

cudnnStatus_t coh_cudnn_plan_execute(coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors)
{
    cudnnBackendDescriptor_t pack;
    cudnnStatus_t status = find_pack(plan, tensors, &pack);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    status = plan->target.call->cudnnBackendExecute(plan->target.handle, plan->plan, pack);
    plan->has_run |= status == CUDNN_STATUS_SUCCESS;
    return status;
}
