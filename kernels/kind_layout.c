/* The operator kinds that move elements and compute nothing: reshape, slice and concat. A tensor is
 * `outer` blocks of `axis` times `inner` elements, so that each kind is a copy of blocks. Next:
 * cohobate/kinds.h, plain.h (coh_blocks). */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"
#include "kernels/plain.h"

/* ---- reshape ---- */

/* Completes the dimensions of y: at most one of them is -1, for the elements left over. */
static coh_status complete(const coh_reshape_attributes *a, const coh_shape *x, coh_shape *y)
{
    int32_t open = -1;
    int64_t known = 1;
    const int64_t elements = coh_shape_elements(x);
    for (int32_t axis = 0; axis < a->rank; axis++) {
        const int64_t dim = a->dim[axis];
        if ((dim < 1 && dim != -1) || (dim == -1 && open >= 0))
            return coh_kind_fail(COH_ERR_SHAPE,
                                 "dimension %d is %" PRId64
                                 ": a size from 1 on is possible, and one -1 for the rest",
                                 axis, dim);
        if (dim == -1)
            open = axis;
        else if (__builtin_mul_overflow(known, dim, &known))
            return coh_kind_fail(COH_ERR_SHAPE, "the elements of y do not fit 63 bits");
        y->dim[axis] = dim;
    }
    if (open >= 0 && elements % known == 0) {
        y->dim[open] = elements / known;
        known = elements;
    }
    if (known == elements)
        return COH_OK;
    char text[COH_SHAPE_TEXT_BYTES];
    coh_shape_text(x, text);
    return coh_kind_fail(COH_ERR_SHAPE,
                         "x is %s with %" PRId64 " elements, and the dimensions given %s %" PRId64,
                         text, elements, open >= 0 ? "are no divisor of them:" : "make", known);
}

static coh_status infer_reshape(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const coh_reshape_attributes *a = attributes;
    const coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status != COH_OK)
        return status;
    if (a->rank < 1 || a->rank > COH_RANK_MAX)
        return coh_kind_fail(COH_ERR_SHAPE, "rank is %d: 1 to %d is possible", a->rank,
                             COH_RANK_MAX);
    coh_shape *y = &facts->output[0];
    *y = (coh_shape){ .dtype = inputs[0].dtype, .rank = a->rank };
    const coh_status completed = complete(a, &inputs[0], y);
    return completed == COH_OK ? coh_check_float("y", y, 0) : completed;
}

static coh_status forward_reshape(const coh_call *call)
{
    const coh_shape *shape = &call->input[0].shape;
    coh_kernel_pass(call->queue, shape->dtype, call->output[0].data, call->input[0].data,
                    coh_shape_elements(shape), 0);
    return COH_OK;
}

static coh_status backward_reshape(const coh_call *call)
{
    const coh_shape *shape = &call->output_grad[0].shape;
    if (call->input_grad[0].data != NULL)
        coh_kernel_pass(call->queue, shape->dtype, call->input_grad[0].data,
                        call->output_grad[0].data, coh_shape_elements(shape),
                        (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

const coh_op_kind coh_kind_reshape = {
    COH_KIND("reshape", 1), COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_IN_PLACE,      COH_KIND_RUNS(forward_reshape, backward_reshape),
    .input_count = 1,       .output_count = 1,
    .infer = infer_reshape, .attribute_bytes = sizeof(coh_reshape_attributes),
};

/* ---- slice ---- */

static coh_status infer_slice(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_slice_attributes *a = attributes;
    const coh_shape *x = &inputs[0];
    coh_axis at;
    coh_status status = coh_check_float("x", x, 0);
    if (status == COH_OK)
        status = coh_axis_of(x, a->axis, &at);
    if (status != COH_OK)
        return status;
    if (a->begin < 0 || a->begin >= a->end || a->end > at.count)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "a slice of %" PRId64 " to %" PRId64 " of an axis of %" PRId64
                             ": 0 <= begin < end <= axis is needed",
                             a->begin, a->end, at.count);
    facts->output[0] = *x;
    facts->output[0].dim[at.axis] = a->end - a->begin;
    return COH_OK;
}

/* The blocks of a tensor of x's shape that are y. */
static coh_blocks slice_of(const coh_call *call, const coh_shape *x)
{
    const coh_slice_attributes *a = call->attributes;
    coh_axis at;
    (void)coh_axis_of(x, a->axis, &at); /* infer has checked it */
    return (coh_blocks){ .dtype = x->dtype,
                         .outer = at.outer,
                         .count = (a->end - a->begin) * at.inner,
                         .wide = at.count * at.inner,
                         .begin = a->begin * at.inner };
}

static coh_status forward_slice(const coh_call *call)
{
    coh_blocks blocks = slice_of(call, &call->input[0].shape);
    blocks.whole_in = call->input[0].data;
    blocks.part_out = call->output[0].data;
    coh_kernel_take_blocks(call->queue, &blocks);
    return COH_OK;
}

static coh_status backward_slice(const coh_call *call)
{
    if (call->input_grad[0].data == NULL)
        return COH_OK;
    coh_blocks blocks = slice_of(call, &call->input_grad[0].shape);
    blocks.part_in = call->output_grad[0].data;
    blocks.whole_out = call->input_grad[0].data;
    blocks.adds = (call->input_grad_adds & 1u) != 0;
    blocks.clears = !blocks.adds;
    coh_kernel_put_blocks(call->queue, &blocks);
    return COH_OK;
}

const coh_op_kind coh_kind_slice = {
    COH_KIND("slice", 1),
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_RUNS(forward_slice, backward_slice),
    .input_count = 1,
    .output_count = 1,
    .infer = infer_slice,
    .attribute_bytes = sizeof(coh_slice_attributes),
};

/* ---- concat ---- */

static coh_status infer_concat(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_axis_attributes *a = attributes;
    coh_axis at;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_axis_of(&inputs[0], a->axis, &at);
    if (status == COH_OK)
        status = coh_check_tensor("second", &inputs[1], inputs[0].dtype, inputs[0].rank);
    if (status != COH_OK)
        return status;
    for (int32_t axis = 0; axis < inputs[0].rank; axis++)
        if (axis != at.axis && inputs[0].dim[axis] != inputs[1].dim[axis])
            return coh_kind_fail(COH_ERR_SHAPE,
                                 "axis %d of x is %" PRId64 " and of second %" PRId64
                                 ": they must agree in every axis except %d",
                                 axis, inputs[0].dim[axis], inputs[1].dim[axis], at.axis);
    facts->output[0] = inputs[0];
    facts->output[0].dim[at.axis] += inputs[1].dim[at.axis];
    return coh_check_float("y", &facts->output[0], 0);
}

/* The blocks of y that are input `port`: input 0 begins a block, input 1 ends it. */
static coh_blocks part_of(const coh_call *call, int port, const coh_shape *y, const coh_shape *x)
{
    const coh_axis_attributes *a = call->attributes;
    coh_axis whole, part;
    (void)coh_axis_of(y, a->axis, &whole); /* infer has checked it */
    (void)coh_axis_of(x, a->axis, &part);
    return (coh_blocks){ .dtype = y->dtype,
                         .outer = whole.outer,
                         .count = part.count * part.inner,
                         .wide = whole.count * whole.inner,
                         .begin = port == 0 ? 0 : (whole.count - part.count) * part.inner };
}

static coh_status forward_concat(const coh_call *call)
{
    for (int port = 0; port < 2; port++) {
        coh_blocks blocks = part_of(call, port, &call->output[0].shape, &call->input[port].shape);
        blocks.part_in = call->input[port].data;
        blocks.whole_out = call->output[0].data;
        coh_kernel_put_blocks(call->queue, &blocks);
    }
    return COH_OK;
}

static coh_status backward_concat(const coh_call *call)
{
    for (int port = 0; port < 2; port++) {
        const coh_view *dx = &call->input_grad[port];
        if (dx->data == NULL)
            continue;
        coh_blocks blocks = part_of(call, port, &call->output_grad[0].shape, &dx->shape);
        blocks.whole_in = call->output_grad[0].data;
        blocks.part_out = dx->data;
        blocks.adds = (call->input_grad_adds >> port & 1u) != 0;
        coh_kernel_take_blocks(call->queue, &blocks);
    }
    return COH_OK;
}

const coh_op_kind coh_kind_concat = {
    COH_KIND("concat", 1),
    COH_KIND_GRADIENTS(3u, 0u),
    COH_KIND_RUNS(forward_concat, backward_concat),
    .input_count = 2,
    .output_count = 1,
    .infer = infer_concat,
    .attribute_bytes = sizeof(coh_axis_attributes),
};
