/* The operator kinds layernorm and rmsnorm: shapes, workspace, costs and calls of kernels. rmsnorm
 * has neither mean nor bias; each of its heads is a row of the kernel. Next: kernels.h (coh_norm).
 */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"

/* Attributes of both kinds begin with the epsilon. */
_Static_assert(offsetof(coh_layernorm_attributes, epsilon) ==
                   offsetof(coh_rmsnorm_attributes, epsilon),
               "one layout");

/* The heads of a row that have their own norm. */
static int64_t heads_of(const void *attributes, int has_mean)
{
    const coh_rmsnorm_attributes *a = attributes;
    return has_mean || a->heads == 0 ? 1 : a->heads;
}

static float offset_of(const void *attributes, int has_mean)
{
    const coh_rmsnorm_attributes *a = attributes;
    return !has_mean && a->from_one ? 1.0f : -0.0f;
}

static coh_status infer(const coh_layernorm_attributes *a, const coh_shape *x, int has_mean,
                        coh_op_facts *facts)
{
    const coh_status status = coh_check_float("x", x, 0);
    if (status != COH_OK)
        return status;
    if (!(a->epsilon >= 0.0f && a->epsilon < 1.0f))
        return coh_kind_fail(COH_ERR_SHAPE, "epsilon is %g: 0 to 1 is possible",
                             (double)a->epsilon);
    const int64_t heads = heads_of(a, has_mean), width = x->dim[x->rank - 1];
    if (heads < 1 || width % heads != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "x has %" PRId64 " channels: a multiple of %" PRId64
                             " heads, at least 1, is needed",
                             width, heads);
    const int64_t C = width / heads, N = coh_shape_rows(x) * heads;
    const coh_shape row = coh_shape_make(x->dtype, 1, C, 0, 0);
    facts->output[0] = *x;
    facts->parameter[0] =
        (coh_parameter_facts){ .name = "weight",
                               .shape = row,
                               .init = offset_of(a, has_mean) > 0 ? COH_INIT_ZERO : COH_INIT_ONE };
    if (has_mean)
        facts->parameter[1] =
            (coh_parameter_facts){ .name = "bias", .shape = row, .init = COH_INIT_ZERO };
    facts->saved_bytes = (size_t)N * (has_mean ? 2 : 1) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_norm_partials(N, C) * sizeof(float);
    facts->flops[COH_PHASE_FORWARD] = (has_mean ? 8.0 : 4.0) * (double)N * (double)C;
    facts->flops[COH_PHASE_BACKWARD] = (has_mean ? 16.0 : 10.0) * (double)N * (double)C;
    return COH_OK;
}

static coh_norm norm_of(const coh_call *call, int has_mean)
{
    const coh_layernorm_attributes *a = call->attributes;
    const coh_shape *shape = &call->input[0].shape;
    const int64_t heads = heads_of(a, has_mean), N = coh_shape_rows(shape) * heads;
    return (coh_norm){
        .N = N,
        .C = shape->dim[shape->rank - 1] / heads,
        .dtype = shape->dtype,
        .epsilon = a->epsilon,
        .offset = offset_of(a, has_mean),
        .x = call->input[0].data,
        .weight = call->parameter[0].data,
        .mean = has_mean ? call->saved : NULL,
        .rstd = (float *)call->saved + (has_mean ? N : 0),
    };
}

static coh_status forward(const coh_call *call, int has_mean)
{
    coh_norm norm = norm_of(call, has_mean);
    norm.bias = call->parameter[1].data; /* NULL if the kind has none */
    norm.y = call->output[0].data;
    coh_kernel_norm(call->queue, &norm);
    return COH_OK;
}

static coh_status backward(const coh_call *call, int has_mean)
{
    coh_norm norm = norm_of(call, has_mean);
    norm.dy = call->output_grad[0].data;
    norm.dx = call->input_grad[0].data;
    norm.dweight = call->parameter_grad[0].data;
    norm.dbias = call->parameter_grad[1].data;
    norm.dx_adds = (call->input_grad_adds & 1u) != 0;
    norm.dweight_adds = (call->parameter_grad_adds & 1u) != 0;
    norm.dbias_adds = (call->parameter_grad_adds & 2u) != 0;
    norm.f32_grads = coh_call_has_f32_grads(call, 0) || coh_call_has_f32_grads(call, 1);
    norm.partials = call->workspace;
    coh_kernel_norm_backward(call->queue, &norm);
    return COH_OK;
}

/* Fields that both kinds share. */
#define NORM_KIND(parameter_mask)                                                                  \
    COH_KIND_GRADIENTS(1u, parameter_mask), COH_KIND_IN_PLACE,                                     \
        .input_count = 1, .output_count = 1, .backward_reads = { .inputs = 1u, .parameters = 1u }, \
        .attribute_bytes = sizeof(coh_layernorm_attributes) /* rmsnorm's grew */

static coh_status infer_layernorm(const void *attributes, const coh_shape *inputs,
                                  coh_op_facts *facts)
{
    return infer(attributes, &inputs[0], 1, facts);
}

static coh_status forward_layernorm(const coh_call *call)
{
    return forward(call, 1);
}

static coh_status backward_layernorm(const coh_call *call)
{
    return backward(call, 1);
}

const coh_op_kind coh_kind_layernorm = {
    COH_KIND("layernorm", 1),
    NORM_KIND(3u),
    .parameter_count = 2,
    .infer = infer_layernorm,
    COH_KIND_RUNS_WITH(forward_layernorm, backward_layernorm, .workspace = coh_cuda_workspace_norm),
};

static coh_status infer_rmsnorm(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    return infer(attributes, &inputs[0], 0, facts);
}

static coh_status forward_rmsnorm(const coh_call *call)
{
    return forward(call, 0);
}

static coh_status backward_rmsnorm(const coh_call *call)
{
    return backward(call, 0);
}

const coh_op_kind coh_kind_rmsnorm = {
    COH_KIND("rmsnorm", 1),
    NORM_KIND(1u),
    .parameter_count = 1,
    .infer = infer_rmsnorm,
    COH_KIND_RUNS_WITH(forward_rmsnorm, backward_rmsnorm, .workspace = coh_cuda_workspace_rmsnorm),
};
