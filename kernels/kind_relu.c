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
    facts->flops[COH_PHASE_FORWARD] = elements;
    facts->flops[COH_PHASE_BACKWARD] = elements;
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    coh_kernel_relu(call->queue, call->input[0].shape.dtype, call->output[0].data,
                    call->input[0].data, coh_shape_elements(&call->input[0].shape));
    return COH_OK;
}

/* Shapes are there whether data is or not. */
static coh_status backward(const coh_call *call)
{
    if (call->input_grad[0].data != NULL)
        coh_kernel_relu_backward(call->queue, call->output[0].shape.dtype, call->input_grad[0].data,
                                 call->output_grad[0].data, call->output[0].data,
                                 coh_shape_elements(&call->output[0].shape),
                                 (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

/* y is positive where x is: backward asks for y, which the next product keeps anyway. */
const coh_op_kind coh_kind_relu = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.relu",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .outputs = 1u },
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
