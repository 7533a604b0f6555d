/* Checks of shapes and attributes that the built-in kinds share; each failure names port, value and
 * limit. Next: kind.h; the kind_*.c files call them. */
#include "kernels/kind.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "kernels/kernels.h"

static const char *dtype_name(coh_dtype dtype)
{
    switch (dtype) {
    case COH_DTYPE_F32:
        return "f32";
    case COH_DTYPE_BF16:
        return "bf16";
    case COH_DTYPE_F16:
        return "f16";
    case COH_DTYPE_I32:
        return "i32";
    case COH_DTYPE_NF4:
        return "nf4";
    }
    return "unknown dtype";
}

void coh_shape_text(const coh_shape *shape, char out_text[COH_SHAPE_TEXT_BYTES])
{
    int used = snprintf(out_text, COH_SHAPE_TEXT_BYTES, "%s [", dtype_name(shape->dtype));
    for (int32_t axis = 0; axis < shape->rank && axis < COH_RANK_MAX; axis++)
        used += snprintf(out_text + used, (size_t)(COH_SHAPE_TEXT_BYTES - used), "%s%" PRId64,
                         axis > 0 ? "," : "", shape->dim[axis]);
    snprintf(out_text + used, (size_t)(COH_SHAPE_TEXT_BYTES - used), "]");
}

coh_status coh_check_tensor(const char *port, const coh_shape *shape, coh_dtype dtype, int32_t rank)
{
    char text[COH_SHAPE_TEXT_BYTES];
    coh_shape_text(shape, text);
    if (shape->dtype != dtype)
        return coh_kind_fail(COH_ERR_SHAPE, "%s is %s: %s is needed", port, text,
                             dtype_name(dtype));
    if (shape->rank < 1 || shape->rank > COH_RANK_MAX || (rank > 0 && shape->rank != rank))
        return coh_kind_fail(COH_ERR_SHAPE, "%s is %s: %d %s needed", port, text,
                             rank > 0 ? rank : 1, rank > 0 ? "dimensions are" : "or more are");
    int64_t bytes = (int64_t)coh_dtype_bytes(dtype);
    for (int32_t axis = 0; axis < shape->rank; axis++) {
        if (shape->dim[axis] < 1 || shape->dim[axis] > INT32_MAX)
            return coh_kind_fail(COH_ERR_SHAPE, "%s is %s: every dimension must be 1 to %d", port,
                                 text, INT32_MAX);
        if (__builtin_mul_overflow(bytes, shape->dim[axis], &bytes) || bytes > INT64_MAX / 2)
            return coh_kind_fail(COH_ERR_SHAPE, "%s is %s: its bytes do not fit 62 bits", port,
                                 text);
    }
    return COH_OK;
}

coh_status coh_check_float(const char *port, const coh_shape *shape, int32_t rank)
{
    if (shape->dtype == COH_DTYPE_F32 || shape->dtype == COH_DTYPE_BF16)
        return coh_check_tensor(port, shape, shape->dtype, rank);
    char text[COH_SHAPE_TEXT_BYTES];
    coh_shape_text(shape, text);
    return coh_kind_fail(COH_ERR_SHAPE, "%s is %s: f32 or bf16 is needed", port, text);
}

coh_status coh_check_count(const char *attribute, int64_t count)
{
    if (count < 1 || count > INT32_MAX)
        return coh_kind_fail(COH_ERR_SHAPE, "%s is %" PRId64 ": 1 to %d is possible", attribute,
                             count, INT32_MAX);
    return COH_OK;
}

coh_status coh_check_cap(float cap)
{
    return cap >= 0.0f && isfinite(cap)
               ? COH_OK
               : coh_kind_fail(COH_ERR_SHAPE, "a soft cap of %g: above 0, or 0 for none",
                               (double)cap);
}

coh_status coh_check_leading(const char *port, const coh_shape *shape, const char *other_port,
                             const coh_shape *other, int32_t free_axes)
{
    int agree = shape->rank == other->rank;
    for (int32_t axis = 0; agree && axis < shape->rank - free_axes; axis++)
        agree = shape->dim[axis] == other->dim[axis];
    if (agree)
        return COH_OK;
    char text[COH_SHAPE_TEXT_BYTES], other_text[COH_SHAPE_TEXT_BYTES];
    coh_shape_text(shape, text);
    coh_shape_text(other, other_text);
    return coh_kind_fail(COH_ERR_SHAPE, "%s is %s and %s is %s: they must agree%s", port, text,
                         other_port, other_text, free_axes > 0 ? " except for the last axis" : "");
}

coh_status coh_check_documents(const coh_shape *inputs, int port, coh_op_facts *facts)
{
    const coh_shape *positions = &inputs[port], *x = &inputs[0];
    const coh_status status = coh_check_tensor("positions", positions, COH_DTYPE_I32, 2);
    if (status != COH_OK)
        return status;
    if (positions->dim[0] != x->dim[0] || positions->dim[1] != x->dim[1])
        return coh_kind_fail(COH_ERR_SHAPE,
                             "positions are of %" PRId64 " x %" PRId64
                             " tokens, and there are %" PRId64 " x %" PRId64,
                             positions->dim[0], positions->dim[1], x->dim[0], x->dim[1]);
    facts->index_range[port] = (coh_index_range){ .end = x->dim[1] };
    facts->counting_inputs |= 1u << port;
    return COH_OK;
}

coh_status coh_check_position(const coh_call *call, int port, int64_t positions)
{
    const coh_index_check check = { .what = "position",
                                    .remedy = "the text is longer than the model's positions",
                                    .indices = call->input[port].data,
                                    .count = 1,
                                    .most = positions - 1 };
    return coh_kernel_check_indices(call->queue, &check);
}

coh_status coh_check_step(const coh_shape *x, const coh_shape *position)
{
    coh_status status = coh_check_tensor("position", position, COH_DTYPE_I32, 1);
    if (status == COH_OK && position->dim[0] != 1)
        status = coh_kind_fail(COH_ERR_SHAPE,
                               "a decoder takes the position of the first of its %" PRId64
                               " tokens, got %" PRId64 " positions",
                               x->dim[1], position->dim[0]);
    return status;
}

coh_status coh_axis_of(const coh_shape *shape, int32_t axis, coh_axis *out_axis)
{
    const int32_t from_first = axis < 0 ? axis + shape->rank : axis;
    *out_axis = (coh_axis){ .axis = from_first, .outer = 1, .inner = 1 };
    if (from_first < 0 || from_first >= shape->rank)
        return coh_kind_fail(COH_ERR_SHAPE, "axis is %d: -%d to %d is possible", axis, shape->rank,
                             shape->rank - 1);
    out_axis->count = shape->dim[from_first];
    for (int32_t i = 0; i < from_first; i++)
        out_axis->outer *= shape->dim[i];
    for (int32_t i = from_first + 1; i < shape->rank; i++)
        out_axis->inner *= shape->dim[i];
    return COH_OK;
}

int64_t coh_shape_rows(const coh_shape *shape)
{
    return coh_shape_elements(shape) / shape->dim[shape->rank - 1];
}

coh_shape coh_shape_make(coh_dtype dtype, int32_t rank, int64_t d0, int64_t d1, int64_t d2)
{
    return (coh_shape){ .dtype = dtype, .rank = rank, .dim = { d0, d1, d2 } };
}

void coh_call_rows(const coh_call *call, int64_t row_count, int64_t *out_begin, int64_t *out_end)
{
    *out_begin = call->row_count == 0 ? 0 : call->row_begin;
    *out_end = call->row_count == 0 ? row_count : call->row_end;
}

int coh_call_has_f32_grads(const coh_call *call, int port)
{
    const coh_view *grad = &call->parameter_grad[port];
    return grad->data != NULL && grad->shape.dtype == COH_DTYPE_F32;
}
