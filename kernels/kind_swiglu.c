/* The operator kind swiglu: y = gate / (1 + e^-gate) * up. Shapes, costs and calls of kernels.
 * Next: kernels.h (coh_swiglu), cohobate/kinds.h. */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    coh_status status = coh_check_float("gate", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_check_tensor("up", &inputs[1], inputs[0].dtype, 0);
    if (status == COH_OK)
        status = coh_check_leading("up", &inputs[1], "gate", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = 25.0 * elements;
    facts->flops[COH_PHASE_BACKWARD] = 35.0 * elements;
    return COH_OK;
}

static coh_swiglu swiglu_of(const coh_call *call)
{
    return (coh_swiglu){
        .dtype = call->input[0].shape.dtype,
        .count = coh_shape_elements(&call->input[0].shape),
        .gate = call->input[0].data,
        .up = call->input[1].data,
        .y = call->output[0].data,
    };
}

static coh_status forward(const coh_call *call)
{
    const coh_swiglu swiglu = swiglu_of(call);
    coh_kernel_swiglu(call->queue, &swiglu);
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    coh_swiglu swiglu = swiglu_of(call);
    swiglu.dy = call->output_grad[0].data;
    swiglu.dgate = call->input_grad[0].data;
    swiglu.dup = call->input_grad[1].data;
    swiglu.dgate_adds = (call->input_grad_adds & 1u) != 0;
    swiglu.dup_adds = (call->input_grad_adds & 2u) != 0;
    if (swiglu.dgate != NULL || swiglu.dup != NULL)
        coh_kernel_swiglu_backward(call->queue, &swiglu);
    return COH_OK;
}

const coh_op_kind coh_kind_swiglu = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.swiglu",
    .revision = 1,
    .input_count = 2,
    .output_count = 1,
    .backward_reads = { .inputs = 3u },
    .can_add_grad = { .inputs = 3u },
    .can_skip_grad = { .inputs = 3u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
};
