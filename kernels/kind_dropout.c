/* The operator kinds dropout and dropout_residual. Backward draws the same words as forward, so no
 * mask is stored. Next: kernels/random.h, kernels.h (coh_dropout). */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_dropout_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_check_probability(a->probability);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = COH_RANDOM_FLOPS * elements;
    facts->flops[COH_PHASE_BACKWARD] = COH_RANDOM_FLOPS * elements;
    return COH_OK;
}

static coh_status infer_residual(const void *attributes, const coh_shape *inputs,
                                 coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_tensor("residual", &inputs[1], inputs[0].dtype, inputs[0].rank);
    if (status == COH_OK)
        status = coh_check_leading("residual", &inputs[1], "x", &inputs[0], 0);
    return status;
}

/* Returns the dropout from `from` to `to` with the mask of this call: it is the same for x and for
 * its gradient. */
static coh_dropout dropout_of(const coh_call *call, const coh_view *from, const coh_view *to)
{
    const coh_dropout_attributes *a = call->attributes;
    return (coh_dropout){
        .dtype = from->shape.dtype,
        .count = coh_shape_elements(&from->shape),
        .first = (uint64_t)(from->origin[0] * from->stride[0]),
        .drop = coh_drop_of(call, a->probability),
        .x = from->data,
        .y = to->data,
    };
}

static coh_status forward(const coh_call *call)
{
    coh_dropout dropout = dropout_of(call, &call->input[0], &call->output[0]);
    dropout.residual = call->input[1].data; /* NULL if the kind has no residual */
    coh_kernel_dropout(call->queue, &dropout);
    return COH_OK;
}

/* dresidual is dy, and may have the same address, so it is passed on last. */
static coh_status backward(const coh_call *call)
{
    const coh_view *dy = &call->output_grad[0];
    coh_dropout dropout = dropout_of(call, dy, &call->input_grad[0]);
    dropout.adds = (call->input_grad_adds & 1u) != 0;
    if (dropout.y != NULL)
        coh_kernel_dropout(call->queue, &dropout);
    if (call->input_grad[1].data != NULL)
        coh_kernel_pass(call->queue, dropout.dtype, call->input_grad[1].data, dy->data,
                        dropout.count, (call->input_grad_adds & 2u) != 0);
    return COH_OK;
}

const coh_op_kind coh_kind_dropout = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.dropout",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .draws = 1,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    .attribute_bytes = sizeof(coh_dropout_attributes),
};

const coh_op_kind coh_kind_dropout_residual = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.dropout_residual",
    .revision = 1,
    .input_count = 2,
    .output_count = 1,
    .can_add_grad = { .inputs = 3u },
    .can_skip_grad = { .inputs = 3u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 1 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .draws = 1,
    .infer = infer_residual,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    .attribute_bytes = sizeof(coh_dropout_attributes),
};
