/* The operator kinds that add learned position rows to x: for whole sequences, and for one step of
 * a decoder. Next: kernels.h (coh_position). */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "cohobate/terms.h"
#include "kernels/kernels.h"
#include "kernels/kind.h"

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_position_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 3);
    if (status == COH_OK)
        status = coh_check_count("positions", a->positions);
    if (status == COH_OK && (a->offset < 0 || a->positions + a->offset > INT32_MAX))
        status = coh_kind_fail(COH_ERR_SHAPE, "offset is %" PRId32 ": 0 to %" PRId64 " is possible",
                               a->offset, INT32_MAX - a->positions);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0], T = inputs[0].dim[1], C = inputs[0].dim[2];
    if (T > a->positions)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "a sequence of %" PRId64 " tokens needs as many positions, there are "
                             "%" PRId64 ": lower %s",
                             T, a->positions, coh_term_text(COH_TERM_SEQUENCE));
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape = coh_shape_make(inputs[0].dtype, 2, a->positions + a->offset, C, 0),
        .init = COH_INIT_NORMAL,
        .init_std = a->init_std,
        .decays = 1,
    };
    const double NC = (double)(B * T) * (double)C, TC = (double)T * (double)C;
    facts->flops[COH_PHASE_FORWARD] = NC;
    facts->flops[COH_PHASE_BACKWARD] = NC;
    facts->bytes[COH_PHASE_FORWARD] = (double)coh_dtype_bytes(inputs[0].dtype) * (2.0 * NC + TC);
    return COH_OK;
}

/* Adds the table's rows; skips the first `offset` rows, which are never read. */
static void add_rows(const coh_call *call, const int32_t *first)
{
    const coh_position_attributes *a = call->attributes;
    const coh_view *x = &call->input[0];
    const int64_t *dim = x->shape.dim;
    const coh_position position = {
        .dtype = x->shape.dtype,
        .B = dim[0],
        .T = dim[1],
        .C = dim[2],
        .rows = a->positions,
        .x = x->data,
        .weight = (const char *)call->parameter[0].data +
                  (size_t)(a->offset * dim[2]) * coh_dtype_bytes(x->shape.dtype),
        .y = call->output[0].data,
        .position = first,
    };
    coh_kernel_position(call->queue, &position);
}

static coh_status forward(const coh_call *call)
{
    add_rows(call, NULL);
    return COH_OK;
}

/* The gradient of x is that of y. */
static void pass_gradient(const coh_call *call)
{
    const coh_view *dy = &call->output_grad[0];
    if (call->input_grad[0].data != NULL)
        coh_kernel_pass(call->queue, dy->shape.dtype, call->input_grad[0].data, dy->data,
                        coh_shape_elements(&dy->shape), (call->input_grad_adds & 1u) != 0);
}

static coh_status backward(const coh_call *call)
{
    const coh_position_attributes *a = call->attributes;
    const int64_t *dim = call->output_grad[0].shape.dim;
    const coh_position_gradient gradient = {
        .dtype = call->output_grad[0].shape.dtype,
        .B = dim[0],
        .T = dim[1],
        .C = dim[2],
        .rows = a->positions + a->offset,
        .offset = a->offset,
        .dy = call->output_grad[0].data,
        .dweight = call->parameter_grad[0].data,
        .adds = (call->parameter_grad_adds & 1u) != 0,
        .f32_grads = coh_call_has_f32_grads(call, 0),
    };
    if (gradient.dweight != NULL)
        coh_kernel_position_backward(call->queue, &gradient);
    pass_gradient(call);
    return COH_OK;
}

const coh_op_kind coh_kind_position = {
    COH_KIND("position", 2),
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    COH_KIND_GRADIENTS(1u, 1u),
    COH_KIND_IN_PLACE,
    .infer = infer,
    COH_KIND_RUNS(forward, backward),
    .attribute_bytes = sizeof(coh_position_attributes),
};

/* ---- positions that begin again with each document ---- */

static coh_status infer_documents(const void *attributes, const coh_shape *inputs,
                                  coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_documents(inputs, 1, facts);
    if (status != COH_OK)
        return status;
    const double NC = (double)coh_shape_elements(&inputs[0]);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_embedding_order(coh_shape_elements(&inputs[1])) * sizeof(int32_t);
    facts->bytes[COH_PHASE_FORWARD] = (double)coh_dtype_bytes(inputs[0].dtype) * 5.0 * NC;
    return COH_OK;
}

/* Rows of y or dy by position. The first `offset` rows of the table are before position 0. */
static coh_embedding rows_of(const coh_call *call, const coh_shape *y)
{
    const coh_position_attributes *a = call->attributes;
    return (coh_embedding){ .N = coh_shape_elements(&call->input[1].shape),
                            .C = y->dim[2],
                            .row_begin = -a->offset,
                            .row_end = a->positions,
                            .tokens = call->input[1].data,
                            .dtype = y->dtype };
}

static coh_status forward_documents(const coh_call *call)
{
    const coh_embedding rows = rows_of(call, &call->output[0].shape);
    coh_kernel_embedding(call->queue, &rows, call->output[0].data, call->parameter[0].data);
    coh_kernel_pass(call->queue, rows.dtype, call->output[0].data, call->input[0].data,
                    rows.N * rows.C, 1);
    return COH_OK;
}

static coh_status backward_documents(const coh_call *call)
{
    coh_embedding rows = rows_of(call, &call->output_grad[0].shape);
    rows.order = call->workspace;
    rows.f32_grads = coh_call_has_f32_grads(call, 0);
    if (call->parameter_grad[0].data != NULL)
        coh_kernel_embedding_backward(call->queue, &rows, call->parameter_grad[0].data,
                                      call->output_grad[0].data,
                                      (call->parameter_grad_adds & 1u) != 0);
    pass_gradient(call);
    return COH_OK;
}

const coh_op_kind coh_kind_position_documents = {
    COH_KIND("position_documents", 1),
    .input_count = 2,
    .output_count = 1,
    .parameter_count = 1,
    .backward_reads = { .inputs = 2u },
    COH_KIND_GRADIENTS(1u, 1u),
    .infer = infer_documents,
    COH_KIND_RUNS_WITH(forward_documents, backward_documents,
                       .workspace = coh_cuda_workspace_position_documents),
    .attribute_bytes = sizeof(coh_position_attributes),
};

/* ---- one step of a decoder ---- */

static coh_status infer_at(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_position_attributes *a = attributes;
    coh_status status = infer(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[1]);
    facts->index_range[1] = (coh_index_range){ .end = a->positions };
    return status;
}

static coh_status forward_at(const coh_call *call)
{
    const coh_position_attributes *a = call->attributes;
    const coh_status status = coh_check_position(call, 1, a->positions);
    if (status == COH_OK)
        add_rows(call, call->input[1].data);
    return status;
}

const coh_op_kind coh_kind_position_at = {
    COH_KIND("position_at", 1),
    .input_count = 2,
    .output_count = 1,
    .parameter_count = 1,
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = infer_at,
    COH_KIND_RUNS(forward_at, NULL),
    .attribute_bytes = sizeof(coh_position_attributes),
};
