/* The operator kind layernorm: shapes, workspace, costs and calls of kernels. Next: kernels.h
 * (coh_norm); kind_rmsnorm.c is the variant without mean and bias. */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/kind_devices.h"
#include "kernels/shape_check.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_layernorm_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    if (!(a->epsilon >= 0.0f && a->epsilon < 1.0f))
        return coh_kind_fail(COH_ERR_SHAPE, "epsilon is %g: 0 to 1 is possible",
                             (double)a->epsilon);
    const int64_t C = inputs[0].dim[inputs[0].rank - 1], N = coh_shape_rows(&inputs[0]);
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape = coh_shape_make(inputs[0].dtype, 1, C, 0, 0),
        .init = COH_INIT_ONE,
    };
    facts->parameter[1] = (coh_parameter_facts){
        .name = "bias",
        .shape = coh_shape_make(inputs[0].dtype, 1, C, 0, 0),
        .init = COH_INIT_ZERO,
    };
    facts->saved_bytes = (size_t)N * 2 * sizeof(float);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_norm_partials(N, C) * sizeof(float);
    facts->flops[COH_PHASE_FORWARD] = 8.0 * (double)N * (double)C;
    facts->flops[COH_PHASE_BACKWARD] = 16.0 * (double)N * (double)C;
    return COH_OK;
}

static coh_norm norm_of(const coh_call *call, const coh_shape *shape)
{
    const coh_layernorm_attributes *a = call->attributes;
    const int64_t N = coh_shape_rows(shape);
    return (coh_norm){
        .N = N,
        .C = shape->dim[shape->rank - 1],
        .dtype = shape->dtype,
        .epsilon = a->epsilon,
        .x = call->input[0].data,
        .weight = call->parameter[0].data,
        .mean = call->saved,
        .rstd = (float *)call->saved + N,
    };
}

static coh_status forward(const coh_call *call)
{
    coh_norm norm = norm_of(call, &call->input[0].shape);
    norm.bias = call->parameter[1].data;
    norm.y = call->output[0].data;
    coh_kernel_norm(call->queue, &norm);
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    coh_norm norm = norm_of(call, &call->input[0].shape);
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

const coh_op_kind coh_kind_layernorm = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.layernorm",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 2,
    .backward_reads = { .inputs = 1u, .parameters = 1u },
    .can_add_grad = { .inputs = 1u, .parameters = 3u },
    .can_skip_grad = { .inputs = 1u, .parameters = 3u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward,
                                       .backward = backward,
                                       .workspace = coh_cuda_workspace_norm } },
    .can_widen_grad = 3u,
    .attribute_bytes = sizeof(coh_layernorm_attributes),
};
