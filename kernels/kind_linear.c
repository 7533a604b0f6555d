/* The operator kinds of linear layers, y = x weight^T + bias, with a residual or an activation in
 * the same product. Next: kernels.h (coh_matmul), cohobate/kinds.h. */
#include "cohobate/kinds.h"

#include <math.h>

#include "kernels/kernels.h"
#include "kernels/shape_check.h"

/* linear, linear_uniform, linear_residual, linear_gelu, linear_relu: input 1 is the residual, if
 * the kind has one.
 *
 * A large weight is multiplied in blocks of its rows, which are columns of y. Each block is a
 * product by itself, and dx is the sum over blocks, in order, in f32. So the weight may come in
 * ranges of whole blocks, and the number of blocks per call changes no bit. The blocks depend only
 * on the weight's shape. */

/* A block has at least BLOCK_ELEMENTS elements, and a multiple of BLOCK_ROWS rows: small enough to
 * stream through a memory that the whole weight does not fit, large enough for a product to run at
 * full rate. */
enum { BLOCK_ELEMENTS = 1 << 22, BLOCK_ROWS = 1024 };

/* Returns the rows of a block; 0: the weight is not cut. */
static int64_t block_rows(int64_t I, int64_t O)
{
    const int64_t rows = (BLOCK_ELEMENTS + I - 1) / I;
    const int64_t block = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    return block < O ? block : 0;
}

/* Returns the bytes of dx's f32 sums over the blocks, if dx itself is narrower. */
static size_t sums_bytes(coh_dtype dtype, int64_t N, int64_t I, int64_t O)
{
    return dtype != COH_DTYPE_F32 && block_rows(I, O) > 0 ? (size_t)(N * I) * sizeof(float) : 0;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_linear_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_check_count("outputs", a->outputs);
    if (status != COH_OK)
        return status;
    const int64_t I = inputs[0].dim[inputs[0].rank - 1], N = coh_shape_rows(&inputs[0]);
    facts->output[0] = inputs[0];
    facts->output[0].dim[inputs[0].rank - 1] = a->outputs;
    status = coh_check_float("y", &facts->output[0], 0);
    if (status != COH_OK)
        return status;
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape = coh_shape_make(inputs[0].dtype, 2, a->outputs, I, 0),
        .init = a->init_std != 0.0f ? COH_INIT_NORMAL : COH_INIT_ZERO,
        .init_std = a->init_std,
        .decays = 1,
        .row_block = block_rows(I, a->outputs),
    };
    if (a->has_bias)
        facts->parameter[1] = (coh_parameter_facts){
            .name = "bias",
            .shape = coh_shape_make(inputs[0].dtype, 1, a->outputs, 0, 0),
            .init = COH_INIT_ZERO,
        };
    facts->workspace_bytes[COH_PHASE_BACKWARD] = sums_bytes(inputs[0].dtype, N, I, a->outputs);
    facts->flops[COH_PHASE_FORWARD] = 2.0 * (double)N * (double)I * (double)a->outputs;
    facts->flops[COH_PHASE_BACKWARD] = 2.0 * facts->flops[COH_PHASE_FORWARD];
    return COH_OK;
}

static coh_status infer_uniform(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status != COH_OK)
        return status;
    const int64_t I = inputs[0].dim[inputs[0].rank - 1];
    facts->parameter[0].init = COH_INIT_UNIFORM;
    facts->parameter[0].init_std = (float)(1.0 / sqrt(3.0 * (double)I));
    return COH_OK;
}

static coh_status infer_residual(const void *attributes, const coh_shape *inputs,
                                 coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_tensor("residual", &inputs[1], inputs[0].dtype, 0);
    if (status == COH_OK)
        status = coh_check_leading("residual", &inputs[1], "y", &facts->output[0], 0);
    return status;
}

static coh_matmul product_of(const coh_call *call)
{
    const coh_linear_attributes *a = call->attributes;
    const coh_shape *x = &call->input[0].shape;
    const int64_t I = x->dim[x->rank - 1];
    return (coh_matmul){
        .layout = COH_MATMUL_NT,
        .dtype = x->dtype,
        .c_dtype = x->dtype,
        .rows = coh_shape_rows(x),
        .columns = a->outputs,
        .depth = I,
        .a = call->input[0].data,
        .b = call->parameter[0].data,
        .a_stride = I,
        .b_stride = I,
        .c_stride = a->outputs,
        .c = call->output[0].data,
        .bias = call->parameter[1].data,
        .residual = call->input[1].data, /* NULL if there is one input only */
    };
}

/* Returns the address of element `index`, or NULL for an absent tensor. */
static void *element(const void *x, coh_dtype dtype, int64_t index)
{
    return x == NULL
               ? NULL
               : (void *)(uintptr_t)((const char *)x + index * (int64_t)coh_dtype_bytes(dtype));
}

/* Runs one block after the other: columns of y. */
static coh_status run_blocks(const coh_call *call, const coh_matmul *whole)
{
    const int64_t I = whole->depth, O = whole->columns;
    const int64_t block = block_rows(I, O) > 0 ? block_rows(I, O) : O;
    int64_t begin, end;
    coh_call_rows(call, O, &begin, &end);
    for (int64_t o = begin; o < end; o += block) {
        coh_matmul product = *whole;
        product.columns = end - o < block ? end - o : block;
        product.b = element(whole->b, whole->dtype, (o - begin) * I);
        product.c = element(whole->c, whole->c_dtype, o);
        product.bias = element(whole->bias, whole->dtype, o);
        product.residual = element(whole->residual, whole->dtype, o);
        product.activated = element(whole->activated, whole->c_dtype, o);
        coh_kernel_matmul(call->queue, &product);
    }
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    const coh_matmul product = product_of(call);
    return run_blocks(call, &product);
}

/* Columns [o, o + count) of dy, and the corresponding rows of weight and dweight. */
typedef struct dy_block {
    int64_t o, count, N, I, O;
    const void *dy;
    int64_t weight_begin; /* first element of the block's rows in this call's weight */
} dy_block;

static void weight_gradient(const coh_call *call, const dy_block *b)
{
    const coh_dtype dtype = call->input[0].shape.dtype;
    const coh_dtype grad_dtype = call->parameter_grad[0].shape.dtype;
    coh_matmul product = {
        .layout = COH_MATMUL_TN,
        .dtype = dtype,
        .c_dtype = grad_dtype,
        .rows = b->count,
        .columns = b->I,
        .depth = b->N,
        .a = element(b->dy, dtype, b->o),
        .b = call->input[0].data,
        .a_stride = b->O,
        .b_stride = b->I,
        .c_stride = b->I,
        .c = element(call->parameter_grad[0].data, grad_dtype, b->weight_begin),
        .adds = (call->parameter_grad_adds & 1u) != 0,
    };
    coh_kernel_matmul(call->queue, &product);
}

/* Adds the block's part of dx. If `sums` is not NULL, it is added there, and stored to dx after the
 * last block. */
static void input_gradient(const coh_call *call, const dy_block *b, float *sums)
{
    const coh_dtype dtype = call->input_grad[0].shape.dtype;
    const int adds = (call->input_grad_adds & 1u) != 0;
    coh_matmul product = {
        .layout = COH_MATMUL_NN,
        .dtype = dtype,
        .c_dtype = sums != NULL ? COH_DTYPE_F32 : dtype,
        .rows = b->N,
        .columns = b->I,
        .depth = b->count,
        .a = element(b->dy, dtype, b->o),
        .b = element(call->parameter[0].data, dtype, b->weight_begin),
        .a_stride = b->O,
        .b_stride = b->I,
        .c_stride = b->I,
        .c = sums != NULL ? sums : call->input_grad[0].data,
        .adds = b->o > 0 || (sums == NULL && adds),
    };
    coh_kernel_matmul(call->queue, &product);
    if (sums != NULL && b->o + b->count == b->O)
        coh_kernel_round(call->queue, dtype, call->input_grad[0].data, sums, b->N * b->I, adds);
}

/* `dy`: the gradient of the product's result, all of its columns. `workspace`: dx's sums, if it has
 * any. */
static void spread(const coh_call *call, const void *dy, void *workspace)
{
    const coh_shape *shape = &call->output_grad[0].shape;
    const int64_t I = call->parameter[0].shape.dim[1], O = shape->dim[shape->rank - 1];
    const int64_t N = coh_shape_rows(shape);
    const int64_t block = block_rows(I, O) > 0 ? block_rows(I, O) : O;
    int64_t begin, end;
    coh_call_rows(call, O, &begin, &end);
    for (int64_t o = begin; o < end; o += block) {
        const dy_block b = { .o = o,
                             .count = end - o < block ? end - o : block,
                             .N = N,
                             .I = I,
                             .O = O,
                             .dy = dy,
                             .weight_begin = (o - begin) * I };
        if (call->parameter_grad[0].data != NULL)
            weight_gradient(call, &b);
        if (call->input_grad[0].data != NULL)
            input_gradient(call, &b, sums_bytes(shape->dtype, N, I, O) > 0 ? workspace : NULL);
    }
}

/* If the parameters are frozen, x is not given: the shapes follow from dy and the weight. The
 * gradients of bias and residual are made with the first range. */
static coh_status backward(const coh_call *call)
{
    const coh_shape *dy = &call->output_grad[0].shape;
    const int64_t N = coh_shape_rows(dy), O = dy->dim[dy->rank - 1];
    if (call->parameter_grad[1].data != NULL)
        coh_kernel_column_sum(call->queue, dy->dtype, call->parameter_grad[1].data,
                              call->parameter_grad[1].shape.dtype, call->output_grad[0].data, N, O,
                              (call->parameter_grad_adds & 2u) != 0);
    spread(call, call->output_grad[0].data, call->workspace);
    if (call->input_grad[1].data != NULL && call->row_begin == 0)
        coh_kernel_pass(call->queue, dy->dtype, call->input_grad[1].data, call->output_grad[0].data,
                        N * O, (call->input_grad_adds & 2u) != 0);
    return COH_OK;
}

/* Fields that all of them share. The gradients of the inputs and of weight and bias can be added to
 * or skipped. */
#define LINEAR_KIND(inputs_count)                                                                  \
    .struct_bytes = sizeof(coh_op_kind), .abi_version = COH_KIND_ABI,                              \
    .input_count = (inputs_count), .output_count = 1, .parameter_count = 2,                        \
    .reads_for_parameters = { .inputs = 1u },                                                      \
    .can_add_grad = { .inputs = (1u << (inputs_count)) - 1u, .parameters = 3u },                   \
    .can_skip_grad = { .inputs = (1u << (inputs_count)) - 1u, .parameters = 3u },                  \
    .row_split_parameters = 1u, .column_slices = 1, .can_widen_grad = 3u

const coh_op_kind coh_kind_linear = {
    .name = "cohobate.linear",
    .revision = 2,
    .backward_reads = { .inputs = 1u, .parameters = 1u },
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    LINEAR_KIND(1),
    .attribute_bytes = sizeof(coh_linear_attributes),
};

const coh_op_kind coh_kind_linear_uniform = {
    .name = "cohobate.linear_uniform",
    .revision = 1,
    .backward_reads = { .inputs = 1u, .parameters = 1u },
    .infer = infer_uniform,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    LINEAR_KIND(1),
    .attribute_bytes = sizeof(coh_linear_attributes),
};

/* y may share memory with the residual: each tile of y begins with its own part of it. dresidual
 * may share memory with dy: it is dy, and is passed on last. */
const coh_op_kind coh_kind_linear_residual = {
    .name = "cohobate.linear_residual",
    .revision = 2,
    .backward_reads = { .inputs = 1u, .parameters = 1u },
    .forward_in_place = { { 1, 0 } },
    .backward_in_place = { { 0, 1 } },
    .in_place_count = { 1, 1 },
    .infer = infer_residual,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward, .backward = backward } },
    LINEAR_KIND(2),
    .attribute_bytes = sizeof(coh_linear_attributes),
};

/* ---- linear_gelu: saves the sum before the gelu ---- */

static coh_status infer_gelu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status != COH_OK)
        return status;
    const coh_shape *y = &facts->output[0];
    const int64_t O = y->dim[y->rank - 1], N = coh_shape_rows(y);
    facts->saved_bytes = (size_t)(N * O) * coh_dtype_bytes(y->dtype);
    facts->workspace_bytes[COH_PHASE_BACKWARD] +=
        (size_t)coh_kernel_activation_partials(N, O) * sizeof(float) + facts->saved_bytes;
    facts->flops[COH_PHASE_FORWARD] += 30.0 * (double)N * (double)O;
    facts->flops[COH_PHASE_BACKWARD] += 40.0 * (double)N * (double)O;
    return COH_OK;
}

static coh_status forward_gelu(const coh_call *call)
{
    coh_matmul product = product_of(call);
    product.c = call->saved;
    product.activated = call->output[0].data;
    product.activation = COH_ACTIVATION_GELU;
    return run_blocks(call, &product);
}

/* Workspace: partial sums, dx's sums, dh. dh of all columns is made with the first range. */
static coh_status backward_activation(const coh_call *call, coh_activation activation,
                                      const void *of)
{
    const coh_shape *dy = &call->output_grad[0].shape;
    const int64_t I = call->parameter[0].shape.dim[1], N = coh_shape_rows(dy),
                  O = dy->dim[dy->rank - 1];
    float *sums = (float *)call->workspace + coh_kernel_activation_partials(N, O);
    coh_activation_gradient gradient = {
        .activation = activation,
        .dtype = dy->dtype,
        .N = N,
        .O = O,
        .dy = call->output_grad[0].data,
        .of = of,
        .dh = (char *)sums + sums_bytes(dy->dtype, N, I, O),
        .sums = call->parameter_grad[1].data,
        .sums_adds = (call->parameter_grad_adds & 2u) != 0,
        .f32_grads = coh_call_has_f32_grads(call, 1),
        .partials = call->workspace,
    };
    if (call->row_begin == 0)
        coh_kernel_activation_gradient(call->queue, &gradient);
    spread(call, gradient.dh, sums);
    return COH_OK;
}

static coh_status backward_gelu(const coh_call *call)
{
    return backward_activation(call, COH_ACTIVATION_GELU, call->saved);
}

const coh_op_kind coh_kind_linear_gelu = {
    .name = "cohobate.linear_gelu",
    .revision = 1,
    .backward_reads = { .inputs = 1u, .parameters = 1u },
    .infer = infer_gelu,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_gelu, .backward = backward_gelu },
                 [COH_DEVICE_CUDA] = { .forward = forward_gelu, .backward = backward_gelu } },
    LINEAR_KIND(1),
    .attribute_bytes = sizeof(coh_linear_attributes),
};

/* ---- linear_relu: saves nothing; y > 0 tells where its sum was above 0 ---- */

static coh_status infer_relu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status != COH_OK)
        return status;
    const coh_shape *y = &facts->output[0];
    const int64_t O = y->dim[y->rank - 1], N = coh_shape_rows(y);
    facts->workspace_bytes[COH_PHASE_BACKWARD] +=
        (size_t)coh_kernel_activation_partials(N, O) * sizeof(float) +
        (size_t)(N * O) * coh_dtype_bytes(y->dtype);
    facts->flops[COH_PHASE_FORWARD] += (double)N * (double)O;
    facts->flops[COH_PHASE_BACKWARD] += (double)N * (double)O;
    return COH_OK;
}

static coh_status forward_relu(const coh_call *call)
{
    coh_matmul product = product_of(call);
    product.activated = product.c;
    product.activation = COH_ACTIVATION_RELU;
    return run_blocks(call, &product);
}

static coh_status backward_relu(const coh_call *call)
{
    return backward_activation(call, COH_ACTIVATION_RELU, call->output[0].data);
}

const coh_op_kind coh_kind_linear_relu = {
    .name = "cohobate.linear_relu",
    .revision = 1,
    .backward_reads = { .inputs = 1u, .outputs = 1u, .parameters = 1u },
    .infer = infer_relu,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_relu, .backward = backward_relu },
                 [COH_DEVICE_CUDA] = { .forward = forward_relu, .backward = backward_relu } },
    LINEAR_KIND(1),
    .attribute_bytes = sizeof(coh_linear_attributes),
};
