/* The operator kind scale: y = factor x, for example for an adapter's rank. The factor is an
 * attribute of the operator. Next: kernels.h (coh_scale), cohobate/kinds.h. */
#include "cohobate/kinds.h"

#include <math.h>

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_scale_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    if (!isfinite(a->factor))
        return coh_kind_fail(COH_ERR_SHAPE, "factor is %g: a finite number is needed",
                             (double)a->factor);
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = elements;
    facts->flops[COH_PHASE_BACKWARD] = elements;
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    const coh_scale_attributes *a = call->attributes;
    const coh_scale scale = { .dtype = call->input[0].shape.dtype,
                              .count = coh_shape_elements(&call->input[0].shape),
                              .x = call->input[0].data,
                              .y = call->output[0].data,
                              .factor = a->factor };
    coh_kernel_scale(call->queue, &scale);
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    const coh_scale_attributes *a = call->attributes;
    const coh_scale scale = { .dtype = call->output_grad[0].shape.dtype,
                              .count = coh_shape_elements(&call->output_grad[0].shape),
                              .x = call->output_grad[0].data,
                              .y = call->input_grad[0].data,
                              .factor = a->factor,
                              .adds = (call->input_grad_adds & 1u) != 0 };
    if (scale.y != NULL)
        coh_kernel_scale(call->queue, &scale);
    return COH_OK;
}

const coh_op_kind coh_kind_scale = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.scale",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    .attribute_bytes = sizeof(coh_scale_attributes),
};
