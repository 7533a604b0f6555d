/* The operator kinds that work element by element: gelu, relu, scale, swiglu, geglu, dropout,
 * dropout_residual and add. Each element of y depends on the same element of the inputs only, so
 * all may run in place (except swiglu_packed, whose y is narrower) and be split by sequences. Next:
 * cohobate/kinds.h, kernels.h. */
#include "cohobate/kinds.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"

/* Fields that all of them share, with this many inputs, all of which may get a gradient. */
#define ELEMENTWISE_KIND(input_ports)                                                              \
    COH_KIND_GRADIENTS((1u << (input_ports)) - 1u, 0u), .input_count = input_ports,                \
                                                        .output_count = 1

/* y has the shape of x, and costs these flops per element. */
static coh_status infer(const char *port, const coh_shape *x, double forward_flops,
                        double backward_flops, coh_op_facts *facts)
{
    const coh_status status = coh_check_float(port, x, 0);
    if (status != COH_OK)
        return status;
    const double elements = (double)coh_shape_elements(x);
    facts->output[0] = *x;
    facts->flops[COH_PHASE_FORWARD] = forward_flops * elements;
    facts->flops[COH_PHASE_BACKWARD] = backward_flops * elements;
    return COH_OK;
}

/* Checks that input 1 has the shape of input 0, whose rank must be `rank` if it is not 0. */
static coh_status check_second(const char *second, const char *first, const coh_shape *inputs,
                               int32_t rank)
{
    const coh_status status = coh_check_tensor(second, &inputs[1], inputs[0].dtype, rank);
    return status == COH_OK ? coh_check_leading(second, &inputs[1], first, &inputs[0], 0) : status;
}

/* ---- gelu and relu ---- */

static coh_status activate(const coh_call *call, coh_activation activation)
{
    const coh_shape *shape = &call->input[0].shape;
    coh_kernel_activate(call->queue, activation, shape->dtype, call->output[0].data,
                        call->input[0].data, coh_shape_elements(shape));
    return COH_OK;
}

/* `of`: the input of the derivative, x or y. A view has its shape even if it has no data. */
static coh_status pass_back(const coh_call *call, coh_activation activation, const coh_view *of)
{
    if (call->input_grad[0].data != NULL)
        coh_kernel_activate_backward(call->queue, activation, of->shape.dtype,
                                     call->input_grad[0].data, call->output_grad[0].data, of->data,
                                     coh_shape_elements(&of->shape),
                                     (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

static coh_status infer_gelu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    return infer("x", &inputs[0], 30.0, 40.0, facts);
}

static coh_status forward_gelu(const coh_call *call)
{
    return activate(call, COH_ACTIVATION_GELU);
}

static coh_status backward_gelu(const coh_call *call)
{
    return pass_back(call, COH_ACTIVATION_GELU, &call->input[0]);
}

const coh_op_kind coh_kind_gelu = {
    COH_KIND("gelu", 2),
    ELEMENTWISE_KIND(1),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_gelu, backward_gelu),
    .backward_reads = { .inputs = 1u },
    .infer = infer_gelu,
};

static coh_status infer_relu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    return infer("x", &inputs[0], 1.0, 1.0, facts);
}

static coh_status forward_relu(const coh_call *call)
{
    return activate(call, COH_ACTIVATION_RELU);
}

static coh_status backward_relu(const coh_call *call)
{
    return pass_back(call, COH_ACTIVATION_RELU, &call->output[0]);
}

/* y is positive where x is: so backward needs only y, which the next product keeps anyway. */
const coh_op_kind coh_kind_relu = {
    COH_KIND("relu", 1),
    ELEMENTWISE_KIND(1),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_relu, backward_relu),
    .backward_reads = { .outputs = 1u },
    .infer = infer_relu,
};

/* ---- scale: y = factor x, for example for an adapter's rank ---- */

static coh_status infer_scale(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_scale_attributes *a = attributes;
    const coh_status status = infer("x", &inputs[0], 1.0, 1.0, facts);
    if (status == COH_OK && !isfinite(a->factor))
        return coh_kind_fail(COH_ERR_SHAPE, "factor is %g: a finite number is needed",
                             (double)a->factor);
    return status;
}

static coh_status scale(const coh_call *call, const coh_view *from, const coh_view *to, int adds)
{
    const coh_scale_attributes *a = call->attributes;
    const coh_scale scale = { .dtype = from->shape.dtype,
                              .count = coh_shape_elements(&from->shape),
                              .x = from->data,
                              .y = to->data,
                              .factor = a->factor,
                              .adds = adds };
    if (scale.y != NULL)
        coh_kernel_scale(call->queue, &scale);
    return COH_OK;
}

static coh_status forward_scale(const coh_call *call)
{
    return scale(call, &call->input[0], &call->output[0], 0);
}

static coh_status backward_scale(const coh_call *call)
{
    return scale(call, &call->output_grad[0], &call->input_grad[0],
                 (call->input_grad_adds & 1u) != 0);
}

const coh_op_kind coh_kind_scale = {
    COH_KIND("scale", 1), ELEMENTWISE_KIND(1),
    COH_KIND_IN_PLACE,    COH_KIND_RUNS(forward_scale, backward_scale),
    .infer = infer_scale, .attribute_bytes = sizeof(coh_scale_attributes),
};

/* ---- swiglu and geglu: y = gate / (1 + e^-gate) * up, gelu(gate) * up ---- */

static coh_status infer_swiglu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    const coh_status status = infer("gate", &inputs[0], 25.0, 35.0, facts);
    return status == COH_OK ? check_second("up", "gate", inputs, 0) : status;
}

static coh_swiglu swiglu_of(const coh_call *call, int gelu)
{
    return (coh_swiglu){
        .gelu = gelu,
        .dtype = call->input[0].shape.dtype,
        .count = coh_shape_elements(&call->input[0].shape),
        .gate = call->input[0].data,
        .up = call->input[1].data,
        .y = call->output[0].data,
    };
}

static coh_status forward_gated(const coh_call *call, int gelu)
{
    const coh_swiglu swiglu = swiglu_of(call, gelu);
    coh_kernel_swiglu(call->queue, &swiglu);
    return COH_OK;
}

static coh_status backward_gated(const coh_call *call, int gelu)
{
    coh_swiglu swiglu = swiglu_of(call, gelu);
    swiglu.dy = call->output_grad[0].data;
    swiglu.dgate = call->input_grad[0].data;
    swiglu.dup = call->input_grad[1].data;
    swiglu.dgate_adds = (call->input_grad_adds & 1u) != 0;
    swiglu.dup_adds = (call->input_grad_adds & 2u) != 0;
    if (swiglu.dgate != NULL || swiglu.dup != NULL)
        coh_kernel_swiglu_backward(call->queue, &swiglu);
    return COH_OK;
}

static coh_status forward_swiglu(const coh_call *call)
{
    return forward_gated(call, 0);
}

static coh_status backward_swiglu(const coh_call *call)
{
    return backward_gated(call, 0);
}

static coh_status forward_geglu(const coh_call *call)
{
    return forward_gated(call, 1);
}

static coh_status backward_geglu(const coh_call *call)
{
    return backward_gated(call, 1);
}

const coh_op_kind coh_kind_geglu = {
    COH_KIND("geglu", 1),
    ELEMENTWISE_KIND(2),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_geglu, backward_geglu),
    .backward_reads = { .inputs = 3u },
    .infer = infer_swiglu,
};

const coh_op_kind coh_kind_swiglu = {
    COH_KIND("swiglu", 1),
    ELEMENTWISE_KIND(2),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_swiglu, backward_swiglu),
    .backward_reads = { .inputs = 3u },
    .infer = infer_swiglu,
};

/* gate and up are the halves of each row of one tensor */

static coh_status infer_swiglu_packed(const void *attributes, const coh_shape *inputs,
                                      coh_op_facts *facts)
{
    (void)attributes;
    const coh_status status = infer("x", &inputs[0], 12.5, 17.5, facts);
    int64_t *columns = &facts->output[0].dim[inputs[0].rank - 1];
    if (status != COH_OK)
        return status;
    if (*columns % 2 != 0)
        return coh_kind_fail(
            COH_ERR_SHAPE, "x has %" PRId64 " channels: an even number is needed, for gate and up",
            *columns);
    *columns /= 2;
    return COH_OK;
}

static coh_swiglu swiglu_packed_of(const coh_call *call)
{
    const coh_shape *x = &call->input[0].shape;
    const int64_t columns = x->dim[x->rank - 1] / 2;
    const size_t half_bytes = (size_t)columns * coh_dtype_bytes(x->dtype);
    const char *gate = call->input[0].data;
    char *dgate = call->input_grad[0].data;
    const int adds = (call->input_grad_adds & 1u) != 0;
    return (coh_swiglu){ .dtype = x->dtype,
                         .count = coh_shape_elements(x) / 2,
                         .columns = columns,
                         .gate = gate,
                         .up = gate + half_bytes,
                         .y = call->output[0].data,
                         .dy = call->output_grad[0].data,
                         .dgate = dgate,
                         .dup = dgate != NULL ? dgate + half_bytes : NULL,
                         .dgate_adds = adds,
                         .dup_adds = adds };
}

static coh_status forward_swiglu_packed(const coh_call *call)
{
    const coh_swiglu swiglu = swiglu_packed_of(call);
    coh_kernel_swiglu(call->queue, &swiglu);
    return COH_OK;
}

static coh_status backward_swiglu_packed(const coh_call *call)
{
    const coh_swiglu swiglu = swiglu_packed_of(call);
    if (swiglu.dgate != NULL)
        coh_kernel_swiglu_backward(call->queue, &swiglu);
    return COH_OK;
}

const coh_op_kind coh_kind_swiglu_packed = {
    COH_KIND("swiglu_packed", 1),
    ELEMENTWISE_KIND(1),
    COH_KIND_RUNS(forward_swiglu_packed, backward_swiglu_packed),
    .backward_reads = { .inputs = 1u },
    .infer = infer_swiglu_packed,
};

/* ---- dropout: backward draws the same words as forward, so no mask is stored (random.h) ---- */

static coh_status infer_dropout(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const coh_dropout_attributes *a = attributes;
    const coh_status status = infer("x", &inputs[0], COH_RANDOM_FLOPS, COH_RANDOM_FLOPS, facts);
    return status == COH_OK ? coh_check_probability(a->probability) : status;
}

static coh_status infer_residual(const void *attributes, const coh_shape *inputs,
                                 coh_op_facts *facts)
{
    const coh_status status = infer_dropout(attributes, inputs, facts);
    return status == COH_OK ? check_second("residual", "x", inputs, inputs[0].rank) : status;
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

static coh_status forward_dropout(const coh_call *call)
{
    coh_dropout dropout = dropout_of(call, &call->input[0], &call->output[0]);
    dropout.residual = call->input[1].data; /* NULL if the kind has no residual */
    coh_kernel_dropout(call->queue, &dropout);
    return COH_OK;
}

/* dresidual is dy, and may have the same address, so it is passed on last. */
static coh_status backward_dropout(const coh_call *call)
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
    COH_KIND("dropout", 1),
    ELEMENTWISE_KIND(1),
    COH_KIND_IN_PLACE,
    COH_KIND_RUNS(forward_dropout, backward_dropout),
    .infer = infer_dropout,
    .draws = 1,
    .attribute_bytes = sizeof(coh_dropout_attributes),
};

const coh_op_kind coh_kind_dropout_residual = {
    COH_KIND("dropout_residual", 1),
    ELEMENTWISE_KIND(2),
    COH_KIND_RUNS(forward_dropout, backward_dropout),
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 1 } },
    .in_place_count = { 1, 1 },
    .infer = infer_residual,
    .draws = 1,
    .attribute_bytes = sizeof(coh_dropout_attributes),
};

/* ---- add: y = x + residual, which is dropout that drops nothing ---- */

static coh_status infer_add(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    const coh_status status = infer("x", &inputs[0], 1.0, 1.0, facts);
    return status == COH_OK ? check_second("residual", "x", inputs, inputs[0].rank) : status;
}

static coh_status forward_add(const coh_call *call)
{
    const coh_dropout sum = { .dtype = call->input[0].shape.dtype,
                              .count = coh_shape_elements(&call->input[0].shape),
                              .drop = { .scale = 1.0f },
                              .x = call->input[0].data,
                              .residual = call->input[1].data,
                              .y = call->output[0].data };
    coh_kernel_dropout(call->queue, &sum);
    return COH_OK;
}

/* dresidual is dy, and may have the same address, so it is passed on last. */
static coh_status backward_add(const coh_call *call)
{
    const coh_view *dy = &call->output_grad[0];
    for (int port = 0; port < 2; port++)
        if (call->input_grad[port].data != NULL)
            coh_kernel_pass(call->queue, dy->shape.dtype, call->input_grad[port].data, dy->data,
                            coh_shape_elements(&dy->shape),
                            (call->input_grad_adds >> port & 1u) != 0);
    return COH_OK;
}

const coh_op_kind coh_kind_add = {
    COH_KIND("add", 1),
    ELEMENTWISE_KIND(2),
    COH_KIND_RUNS(forward_add, backward_add),
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 1 } },
    .in_place_count = { 1, 1 },
    .infer = infer_add,
};
