#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = 30.0 * elements;
    facts->flops[COH_PHASE_BACKWARD] = 40.0 * elements;
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    coh_kernel_gelu(call->queue, call->input[0].shape.dtype, call->output[0].data,
                    call->input[0].data, coh_shape_elements(&call->input[0].shape));
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    if (call->input_grad[0].data != NULL)
        coh_kernel_gelu_backward(call->queue, call->input[0].shape.dtype, call->input_grad[0].data,
                                 call->output_grad[0].data, call->input[0].data,
                                 coh_shape_elements(&call->input[0].shape),
                                 (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

const coh_op_kind coh_kind_gelu = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.gelu",
    .revision = 2,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .inputs = 1u },
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};
