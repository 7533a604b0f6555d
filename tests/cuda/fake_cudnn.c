#include "tests/cuda/fake_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernels/cuda/attention_scratch.h"

enum { VERSION = 91801 };
fake_cudnn_state fake_dnn = { .version = VERSION, .candidates = 1 };

/* Returns the status of a call that has no other way to fail. */
static cudnnStatus_t count_call(void)
{
    return ++fake_dnn.calls == fake_dnn.fail_nth ? fake_dnn.fail_with : CUDNN_STATUS_SUCCESS;
}

/* The names of tensors, as in cudnn_graph.c. */
enum { Q = 1, K, V, Y, STATISTICS, DY, DELTA, DQ, DK, DV, DQ_SUM, SCALE, NAMES };

typedef struct tensor {
    int64_t dim[4], stride[4];
} tensor;

/* Any descriptor; a graph uses the newest tensor of each name. */
typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    int64_t name;
    tensor as;
    tensor tensors[NAMES]; /* a plan's */
    void *address[NAMES];  /* a variant pack's */
    int64_t names[16], name_count;
    char *workspace;
} descriptor;

static tensor newest[NAMES];

void fake_cudnn_reset(void)
{
    fake_dnn = (fake_cudnn_state){ .version = VERSION, .candidates = 1, .live = fake_dnn.live };
    memset(newest, 0, sizeof(newest));
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *out)
{
    const cudnnStatus_t status = count_call();
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    descriptor *made = calloc(1, sizeof(*made));
    made->type = type;
    fake_dnn.live++;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t of)
{
    fake_dnn.live -= of != NULL;
    free(of);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *elements)
{
    descriptor *d = of;
    (void)type;
    if (name == CUDNN_ATTR_TENSOR_DIMENSIONS)
        memcpy(d->as.dim, elements, sizeof(d->as.dim));
    else if (name == CUDNN_ATTR_TENSOR_STRIDES)
        memcpy(d->as.stride, elements, sizeof(d->as.stride));
    else if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID)
        memcpy(&d->name, elements, sizeof(d->name));
    else if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        memcpy(&d->workspace, elements, sizeof(d->workspace));
    else if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
        memcpy(d->names, elements, (size_t)(d->name_count = count) * sizeof(d->names[0]));
    else if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        for (int64_t i = 0; i < count && i < d->name_count; i++)
            if (d->names[i] < NAMES)
                memcpy(&d->address[d->names[i]],
                       (const char *)elements + i * (int64_t)sizeof(void *), sizeof(void *));
    return count_call();
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t of)
{
    descriptor *d = of;
    if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && d->name < NAMES)
        newest[d->name] = d->as;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const int number = fake_dnn.finalized++;
        if (number < FAKE_CUDNN_STATUSES && fake_dnn.finalize_with[number] != CUDNN_STATUS_SUCCESS)
            return fake_dnn.finalize_with[number];
        memcpy(d->tensors, newest, sizeof(newest));
        memset(newest, 0, sizeof(newest));
    }
    return count_call();
}

/* The dimensions of a plan. */
typedef struct shape {
    int64_t B, H, G, T, D;
} shape;

static shape shape_of(const descriptor *plan)
{
    const int64_t *q = plan->tensors[Q].dim, *k = plan->tensors[K].dim;
    return (shape){ q[0], q[1], k[1], q[2], q[3] };
}

/* The largest workspace a plan may want. */
static int64_t workspace_of(const descriptor *plan)
{
    const shape s = shape_of(plan);
    if (plan->tensors[DQ_SUM].dim[0] != 0)
        return coh_cudnn_atomic_plan_bytes(s.B, s.T, s.H, s.G, s.D);
    return plan->tensors[DQ].dim[0] != 0 ? coh_cudnn_plan_bytes(s.B, s.T, s.H, s.G, s.D) : 256;
}

static int is_backward(const descriptor *pack)
{
    return pack->address[DY] != NULL;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   int64_t *out_count, void *elements)
{
    (void)type;
    (void)count;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        *out_count = fake_dnn.candidates;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        const int64_t bytes = workspace_of(of);
        memcpy(elements, &bytes, sizeof(bytes));
    }
    return count_call();
}

/* ---- attention ---- */

/* One head of one sequence. */
typedef struct one_head {
    const descriptor *plan, *pack;
    shape s;
    int64_t b, h;
} one_head;

/* Returns the offset of element (row, column) of the head in a tensor. k and v are described
 * transposed where `name` requires it; their strides undo that. */
static int64_t at(const one_head *one, int name, int64_t row, int64_t column)
{
    const tensor *t = &one->plan->tensors[name];
    const int64_t head = t->dim[1] == one->s.H ? one->h : one->h / (one->s.H / one->s.G);
    const int is_transposed = name == K || (name == V && is_backward(one->pack));
    return one->b * t->stride[0] + head * t->stride[1] + row * t->stride[is_transposed ? 3 : 2] +
           column * t->stride[is_transposed ? 2 : 3];
}

static double get(const one_head *one, int name, int64_t row, int64_t column)
{
    return (double)coh_f32_of_bf16(
        ((const uint16_t *)one->pack->address[name])[at(one, name, row, column)]);
}

static void put(const one_head *one, int name, int64_t row, int64_t column, double value)
{
    ((uint16_t *)one->pack->address[name])[at(one, name, row, column)] =
        coh_bf16_of_f32((float)value);
}

static double product(const one_head *one, int a, int64_t i, int b, int64_t j)
{
    double sum = 0.0;
    for (int64_t d = 0; d < one->s.D; d++)
        sum += get(one, a, i, d) * get(one, b, j, d);
    return sum;
}

static void forward(const one_head *one, double *p)
{
    const double scale = (double)*(const float *)one->pack->address[SCALE];
    float *statistics = (float *)one->pack->address[STATISTICS] + at(one, STATISTICS, 0, 0);
    for (int64_t i = 0; i < one->s.T; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j <= i; j++)
            sum += p[j] = exp(scale * product(one, Q, i, K, j));
        statistics[i] = (float)log(sum);
        for (int64_t d = 0; d < one->s.D; d++) {
            double y = 0.0;
            for (int64_t j = 0; j <= i; j++)
                y += p[j] / sum * get(one, V, j, d);
            put(one, Y, i, d, y);
        }
    }
}

/* Returns where the sum for dq's element is kept; NULL: dq is written at once. */
static float *dq_sum(const one_head *one, int64_t row, int64_t column)
{
    float *sums = one->pack->address[DQ_SUM];
    return sums == NULL ? NULL : sums + at(one, DQ_SUM, row, column);
}

/* Writes dq before reading dy, as cuDNN may. dk and dv are sums, [T][D], over the heads so far that
 * share them. */
static void backward(const one_head *one, double *dk, double *dv, double *p)
{
    const double scale = (double)*(const float *)one->pack->address[SCALE];
    const float *statistics =
        (const float *)one->pack->address[STATISTICS] + at(one, STATISTICS, 0, 0);
    double *ds = p + one->s.T;
    for (int64_t i = 0; i < one->s.T; i++) {
        const double delta = product(one, DY, i, Y, i);
        for (int64_t j = 0; j <= i; j++) {
            p[j] = exp(scale * product(one, Q, i, K, j) - (double)statistics[i]);
            ds[j] = scale * p[j] * (product(one, DY, i, V, j) - delta);
        }
        for (int64_t d = 0; d < one->s.D; d++) {
            double dq = 0.0;
            float *sum = dq_sum(one, i, d);
            for (int64_t j = 0; j <= i; j++)
                dq += ds[j] * get(one, K, j, d);
            if (sum != NULL)
                *sum = (float)dq;
            else
                put(one, DQ, i, d, dq);
        }
        for (int64_t j = 0; j <= i; j++)
            for (int64_t d = 0; d < one->s.D; d++) {
                dk[j * one->s.D + d] += ds[j] * get(one, Q, i, d);
                dv[j * one->s.D + d] += p[j] * get(one, DY, i, d);
            }
    }
}

/* Rounds all of dq's sums, once they are complete. */
static void round_sums(one_head *one)
{
    for (one->b = 0; one->b < one->s.B; one->b++)
        for (one->h = 0; one->h < one->s.H; one->h++)
            for (int64_t i = 0; i < one->s.T * one->s.D; i++)
                put(one, DQ, i / one->s.D, i % one->s.D,
                    (double)*dq_sum(one, i / one->s.D, i % one->s.D));
}

/* Tensors are described as aligned to 16 bytes. */
static int is_misaligned(const descriptor *pack)
{
    int64_t all = 0;
    for (int name = Q; name < SCALE; name++)
        all |= (int64_t)(uintptr_t)pack->address[name];
    return all % 16 != 0;
}

static cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    (void)handle;
    one_head one = { .plan = plan, .pack = pack, .s = shape_of(plan) };
    const shape s = one.s;
    double *sums = calloc((size_t)(2 * s.T * s.D + 2 * s.T), sizeof(double));
    double *dk = sums, *dv = dk + s.T * s.D, *p = dv + s.T * s.D;
    cudnnStatus_t status = count_call();
    if (status == CUDNN_STATUS_SUCCESS && is_misaligned(pack))
        status = CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    if (status != CUDNN_STATUS_SUCCESS) {
        free(sums);
        return status;
    }
    fake_dnn.executed++;
    memset(one.pack->workspace, 0xff, (size_t)workspace_of(plan));
    for (one.b = 0; one.b < s.B; one.b++)
        for (one.h = 0; one.h < s.H; one.h++) {
            if (!is_backward(pack)) {
                forward(&one, p);
                continue;
            }
            if (one.h % (s.H / s.G) == 0)
                memset(sums, 0, (size_t)(2 * s.T * s.D) * sizeof(double));
            backward(&one, dk, dv, p);
            for (int64_t i = 0; i < s.T * s.D; i++) {
                put(&one, DK, i / s.D, i % s.D, dk[i]);
                put(&one, DV, i / s.D, i % s.D, dv[i]);
            }
        }
    memset(one.pack->workspace, 0xff, (size_t)workspace_of(plan)); /* the workspace holds no sums */
    if (one.pack->address[DQ_SUM] != NULL)
        round_sums(&one);
    free(sums);
    return CUDNN_STATUS_SUCCESS;
}

static size_t get_version(void)
{
    return fake_dnn.version;
}

static const char *error_string(cudnnStatus_t status)
{
    (void)status;
    return "a fake failure";
}

const coh_cudnn_functions fake_cudnn = {
    .cudnnGetVersion = get_version,
    .cudnnGetErrorString = error_string,
    .cudnnBackendCreateDescriptor = create_descriptor,
    .cudnnBackendDestroyDescriptor = destroy_descriptor,
    .cudnnBackendSetAttribute = set_attribute,
    .cudnnBackendGetAttribute = get_attribute,
    .cudnnBackendFinalize = finalize,
    .cudnnBackendExecute = execute,
};
