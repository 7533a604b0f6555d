/* The operator kinds gelu and relu: shapes, costs and calls of kernels. Both work element by
 * element, so they may run in place. Next: cohobate/kinds.h, kernels.h. */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

/* Shared by gelu and relu: each element of y depends on the same element of x only. */

static coh_status infer(const coh_shape *inputs, double forward_flops, double backward_flops,
                        coh_op_facts *facts)
{
    const coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = forward_flops * elements;
    facts->flops[COH_PHASE_BACKWARD] = backward_flops * elements;
    return COH_OK;
}

typedef void kernel(void *queue, coh_dtype dtype, void *y, const void *x, int64_t count);
typedef void kernel_backward(void *queue, coh_dtype dtype, void *dx, const void *dy, const void *of,
                             int64_t count, int adds);

static coh_status forward(const coh_call *call, kernel *activate)
{
    activate(call->queue, call->input[0].shape.dtype, call->output[0].data, call->input[0].data,
             coh_shape_elements(&call->input[0].shape));
    return COH_OK;
}

/* `of`: the input of the derivative, x or y. */
static coh_status backward(const coh_call *call, const coh_view *of, kernel_backward *pass_back)
{
    if (call->input_grad[0].data != NULL)
        pass_back(call->queue, of->shape.dtype, call->input_grad[0].data, call->output_grad[0].data,
                  of->data, coh_shape_elements(&of->shape), (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

/* Fields that both kinds share. */
#define ACTIVATION_KIND                                                                            \
    .struct_bytes = sizeof(coh_op_kind), .abi_version = COH_KIND_ABI, .input_count = 1,            \
    .output_count = 1, .can_add_grad = { .inputs = 1u }, .can_skip_grad = { .inputs = 1u },        \
    .forward_in_place = { { 0, 0 } }, .backward_in_place = { { 0, 0 } },                           \
    .in_place_count = { 1, 1 }, .split_axes = 1u

/* ---- gelu ---- */

static coh_status infer_gelu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    return infer(inputs, 30.0, 40.0, facts);
}

static coh_status forward_gelu(const coh_call *call)
{
    return forward(call, coh_kernel_gelu);
}

static coh_status backward_gelu(const coh_call *call)
{
    return backward(call, &call->input[0], coh_kernel_gelu_backward);
}

const coh_op_kind coh_kind_gelu = {
    .name = "cohobate.gelu",
    .revision = 2,
    .backward_reads = { .inputs = 1u },
    .infer = infer_gelu,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_gelu, .backward = backward_gelu },
                 [COH_DEVICE_CUDA] = { .forward = forward_gelu, .backward = backward_gelu } },
    ACTIVATION_KIND,
};

/* ---- relu ---- */

static coh_status infer_relu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    return infer(inputs, 1.0, 1.0, facts);
}

static coh_status forward_relu(const coh_call *call)
{
    return forward(call, coh_kernel_relu);
}

/* A view has its shape even if it has no data. */
static coh_status backward_relu(const coh_call *call)
{
    return backward(call, &call->output[0], coh_kernel_relu_backward);
}

/* y is positive where x is: so backward needs only y, which the next product keeps anyway. */
const coh_op_kind coh_kind_relu = {
    .name = "cohobate.relu",
    .revision = 1,
    .backward_reads = { .outputs = 1u },
    .infer = infer_relu,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_relu, .backward = backward_relu },
                 [COH_DEVICE_CUDA] = { .forward = forward_relu, .backward = backward_relu } },
    ACTIVATION_KIND,
};
