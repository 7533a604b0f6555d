/* The operator kinds mean and softmax, and the losses over a model's output: cross-entropy of given
 * logits and mean squared error. Next: cohobate/kinds.h, plain.h;
 * kind_classifier.c for the loss of a language model. */
#include "cohobate/kinds.h"

#include "kernels/kernels.h"
#include "kernels/kind.h"
#include "kernels/plain.h"

/* An exponential, and a logarithm, in flops. */
#define EXP_FLOPS 20.0

/* ---- mean ---- */

static coh_status infer_mean(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_axis_attributes *a = attributes;
    const coh_shape *x = &inputs[0];
    coh_shape *y = &facts->output[0];
    coh_axis at;
    coh_status status = coh_check_float("x", x, 0);
    if (status == COH_OK)
        status = coh_axis_of(x, a->axis, &at);
    if (status != COH_OK)
        return status;
    *y = (coh_shape){ .dtype = x->dtype, .rank = x->rank > 1 ? x->rank - 1 : 1, .dim = { 1 } };
    for (int32_t axis = 0, to = 0; axis < x->rank; axis++)
        if (axis != at.axis)
            y->dim[to++] = x->dim[axis];
    facts->flops[COH_PHASE_FORWARD] = (double)coh_shape_elements(x);
    facts->flops[COH_PHASE_BACKWARD] = (double)coh_shape_elements(x);
    return COH_OK;
}

static coh_mean mean_of(const coh_call *call, const coh_shape *x)
{
    const coh_axis_attributes *a = call->attributes;
    coh_axis at;
    (void)coh_axis_of(x, a->axis, &at); /* infer has checked it */
    return (coh_mean){ .dtype = x->dtype, .outer = at.outer, .count = at.count, .inner = at.inner };
}

static coh_status forward_mean(const coh_call *call)
{
    coh_mean mean = mean_of(call, &call->input[0].shape);
    mean.from = call->input[0].data;
    mean.to = call->output[0].data;
    coh_kernel_mean(call->queue, &mean);
    return COH_OK;
}

static coh_status backward_mean(const coh_call *call)
{
    if (call->input_grad[0].data == NULL)
        return COH_OK;
    coh_mean mean = mean_of(call, &call->input_grad[0].shape);
    mean.from = call->output_grad[0].data;
    mean.to = call->input_grad[0].data;
    mean.adds = (call->input_grad_adds & 1u) != 0;
    coh_kernel_mean_backward(call->queue, &mean);
    return COH_OK;
}

const coh_op_kind coh_kind_mean = {
    COH_KIND("mean", 1),
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_RUNS(forward_mean, backward_mean),
    .input_count = 1,
    .output_count = 1,
    .infer = infer_mean,
    .attribute_bytes = sizeof(coh_axis_attributes),
};

/* ---- softmax ---- */

static coh_status infer_softmax(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    (void)attributes;
    const coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->output[0] = inputs[0];
    facts->flops[COH_PHASE_FORWARD] = 2.0 * EXP_FLOPS * elements;
    facts->flops[COH_PHASE_BACKWARD] = 4.0 * elements;
    return COH_OK;
}

static coh_softmax softmax_of(const coh_shape *shape)
{
    return (coh_softmax){ .dtype = shape->dtype,
                          .rows = coh_shape_rows(shape),
                          .columns = shape->dim[shape->rank - 1] };
}

static coh_status forward_softmax(const coh_call *call)
{
    coh_softmax softmax = softmax_of(&call->input[0].shape);
    softmax.from = call->input[0].data;
    softmax.to = call->output[0].data;
    coh_kernel_softmax(call->queue, &softmax);
    return COH_OK;
}

static coh_status backward_softmax(const coh_call *call)
{
    coh_softmax softmax = softmax_of(&call->output[0].shape);
    softmax.from = call->output_grad[0].data;
    softmax.y = call->output[0].data;
    softmax.to = call->input_grad[0].data;
    softmax.adds = (call->input_grad_adds & 1u) != 0;
    if (softmax.to != NULL)
        coh_kernel_softmax_backward(call->queue, &softmax);
    return COH_OK;
}

const coh_op_kind coh_kind_softmax = {
    COH_KIND("softmax", 1),
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_softmax, backward_softmax),
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .outputs = 1u },
    .infer = infer_softmax,
};

/* ---- cross-entropy ---- */

/* Checks logits and targets. */
static coh_status infer_rows(const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_shape *logits = &inputs[0], *targets = &inputs[1];
    coh_status status = coh_check_float("logits", logits, 0);
    if (status == COH_OK)
        status = coh_check_tensor("targets", targets, COH_DTYPE_I32, 0);
    if (status != COH_OK)
        return status;
    int agree = targets->rank == (logits->rank > 1 ? logits->rank - 1 : 1);
    const int64_t rows = coh_shape_rows(logits), columns = logits->dim[logits->rank - 1];
    for (int32_t axis = 0; agree && axis < logits->rank - 1; axis++)
        agree = targets->dim[axis] == logits->dim[axis];
    if (!agree || coh_shape_elements(targets) != rows) {
        char text[COH_SHAPE_TEXT_BYTES], targets_text[COH_SHAPE_TEXT_BYTES];
        coh_shape_text(logits, text);
        coh_shape_text(targets, targets_text);
        return coh_kind_fail(COH_ERR_SHAPE,
                             "logits is %s and targets is %s: one target per row is needed", text,
                             targets_text);
    }
    facts->index_range[1] = (coh_index_range){ .least = -1, .end = columns };
    facts->flops[COH_PHASE_FORWARD] = EXP_FLOPS * (double)coh_shape_elements(logits);
    return COH_OK;
}

static coh_status infer_entropy(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    (void)attributes;
    const coh_shape *logits = &inputs[0];
    const int64_t rows = coh_shape_rows(logits);
    const coh_status status = infer_rows(inputs, facts);
    if (status != COH_OK)
        return status;
    facts->output[0] = coh_shape_make(COH_DTYPE_F32, 1, 1, 0, 0);
    facts->saved_bytes = (size_t)(2 * rows) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_FORWARD] =
        (size_t)coh_kernel_row_partials(rows) * sizeof(double);
    facts->flops[COH_PHASE_BACKWARD] = EXP_FLOPS * (double)coh_shape_elements(logits);
    return COH_OK;
}

/* `saved`: maximum and sum of each row. */
static coh_cross_entropy entropy_of(const coh_call *call, float *saved)
{
    const coh_shape *logits = &call->input[0].shape;
    const int64_t rows = coh_shape_rows(logits);
    return (coh_cross_entropy){ .dtype = logits->dtype,
                                .rows = rows,
                                .columns = logits->dim[logits->rank - 1],
                                .logits = call->input[0].data,
                                .targets = call->input[1].data,
                                .max = saved,
                                .sum = saved + rows };
}

static coh_status check_targets(const coh_call *call, const coh_cross_entropy *entropy)
{
    const coh_index_check check = { .what = "target",
                                    .remedy = "the logits have fewer classes than the data",
                                    .indices = entropy->targets,
                                    .count = entropy->rows,
                                    .least = -1,
                                    .most = entropy->columns - 1 };
    return coh_kernel_check_indices(call->queue, &check);
}

static coh_status forward_entropy(const coh_call *call)
{
    coh_cross_entropy entropy = entropy_of(call, call->saved);
    const coh_status status = check_targets(call, &entropy);
    if (status != COH_OK)
        return status;
    entropy.partial = call->workspace;
    entropy.loss = call->output[0].data;
    coh_kernel_cross_entropy(call->queue, &entropy);
    return COH_OK;
}

static coh_status backward_entropy(const coh_call *call)
{
    coh_cross_entropy entropy = entropy_of(call, call->saved);
    entropy.to = call->input_grad[0].data;
    entropy.loss_share = call->loss_share;
    entropy.loss_factor = call->loss_factor_cell;
    entropy.adds = (call->input_grad_adds & 1u) != 0;
    if (entropy.to != NULL)
        coh_kernel_cross_entropy_backward(call->queue, &entropy);
    return COH_OK;
}

const coh_op_kind coh_kind_cross_entropy = {
    COH_KIND("cross_entropy", 1),
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_RUNS_WITH(forward_entropy, backward_entropy,
                       .workspace = coh_cuda_workspace_cross_entropy),
    .input_count = 2,
    .output_count = 1,
    .backward_reads = { .inputs = 3u },
    .is_loss = 1,
    .infer = infer_entropy,
};

/* ---- the loss of each row ---- */

static coh_status infer_token_losses(const void *attributes, const coh_shape *inputs,
                                     coh_op_facts *facts)
{
    (void)attributes;
    const coh_status status = infer_rows(inputs, facts);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[1];
    facts->output[0].dtype = COH_DTYPE_F32;
    facts->workspace_bytes[COH_PHASE_FORWARD] =
        (size_t)(2 * coh_shape_rows(&inputs[0])) * sizeof(float);
    return COH_OK;
}

static coh_status forward_token_losses(const coh_call *call)
{
    coh_cross_entropy entropy = entropy_of(call, call->workspace);
    const coh_status status = check_targets(call, &entropy);
    entropy.each = call->output[0].data;
    if (status == COH_OK)
        coh_kernel_cross_entropy(call->queue, &entropy);
    return status;
}

const coh_op_kind coh_kind_token_losses = {
    COH_KIND("token_losses", 1),
    COH_KIND_RUNS(forward_token_losses, NULL),
    .input_count = 2,
    .output_count = 1,
    .infer = infer_token_losses,
};

/* ---- mean squared error ---- */

static coh_status infer_squares(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    (void)attributes;
    const coh_dtype dtype = inputs[1].dtype == COH_DTYPE_F32 ? COH_DTYPE_F32 : inputs[0].dtype;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_check_tensor("target", &inputs[1], dtype, inputs[0].rank);
    if (status == COH_OK)
        status = coh_check_leading("target", &inputs[1], "x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    const int64_t elements = coh_shape_elements(&inputs[0]);
    facts->output[0] = coh_shape_make(COH_DTYPE_F32, 1, 1, 0, 0);
    facts->workspace_bytes[COH_PHASE_FORWARD] =
        (size_t)coh_kernel_grain_partials(elements) * sizeof(double);
    facts->flops[COH_PHASE_FORWARD] = 3.0 * (double)elements;
    facts->flops[COH_PHASE_BACKWARD] = 3.0 * (double)elements;
    return COH_OK;
}

static coh_squares squares_of(const coh_call *call)
{
    return (coh_squares){ .dtype = call->input[0].shape.dtype,
                          .target_dtype = call->input[1].shape.dtype,
                          .count = coh_shape_elements(&call->input[0].shape),
                          .x = call->input[0].data,
                          .target = call->input[1].data };
}

static coh_status forward_squares(const coh_call *call)
{
    coh_squares squares = squares_of(call);
    squares.partial = call->workspace;
    squares.loss = call->output[0].data;
    coh_kernel_squares(call->queue, &squares);
    return COH_OK;
}

static coh_status backward_squares(const coh_call *call)
{
    coh_squares squares = squares_of(call);
    squares.to = call->input_grad[0].data;
    squares.to_target = call->input_grad[1].data;
    squares.loss_share = call->loss_share;
    squares.loss_factor = call->loss_factor_cell;
    squares.adds = (call->input_grad_adds & 1u) != 0;
    squares.target_adds = (call->input_grad_adds & 2u) != 0;
    if (squares.to != NULL || squares.to_target != NULL)
        coh_kernel_squares_backward(call->queue, &squares);
    return COH_OK;
}

const coh_op_kind coh_kind_mean_squared_error = {
    COH_KIND("mean_squared_error", 1),
    COH_KIND_GRADIENTS(3u, 0u),
    COH_KIND_RUNS(forward_squares, backward_squares),
    .input_count = 2,
    .output_count = 1,
    .backward_reads = { .inputs = 3u },
    .is_loss = 1,
    .infer = infer_squares,
};
