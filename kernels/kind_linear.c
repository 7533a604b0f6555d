/* The operator kinds of linear layers, y = x weight^T + bias, with a residual or an activation in
 * the same product. Next: kernels.h (coh_matmul), cohobate/kinds.h. */
#include "cohobate/kinds.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"
#include "kernels/nf4.h"

/* linear, linear_uniform, linear_residual, linear_gelu, linear_relu: input 1 is the residual, if
 * the kind has one.
 *
 * A large weight is multiplied in blocks of its rows, which are columns of y. Each block is a
 * product by itself, and dx is the sum over blocks, in order, in f32. So the weight may come in
 * ranges of whole blocks, and the number of blocks per call changes no bit. The blocks depend only
 * on the weight's shape and the kind of device: a GPU takes COH_GPU_ROW_BLOCKS of them as one.
 *
 * A weight in NF4 is opened block by block, into the begin of the workspace. */

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

/* Returns the columns of y that a product computes if `times` blocks are one. */
static int64_t block_columns(int64_t I, int64_t O, int64_t times)
{
    const int64_t block = block_rows(I, O);
    return block > 0 && block <= (O - 1) / times ? block * times : O;
}

/* Returns the bytes of dx's f32 sums over the blocks, if dx itself is narrower. */
static size_t sums_bytes(coh_dtype dtype, int64_t N, int64_t I, int64_t O, int64_t times)
{
    return dtype != COH_DTYPE_F32 && block_columns(I, O, times) < O
               ? (size_t)(N * I) * sizeof(float)
               : 0;
}

/* Returns the bytes of a block of a weight in NF4 once it is opened; 0: the weight is as x. */
static size_t opened_bytes(const coh_linear_attributes *a, const coh_shape *x, int64_t times)
{
    const int64_t I = x->dim[x->rank - 1];
    return a->stored == COH_DTYPE_NF4
               ? (size_t)(block_columns(I, a->outputs, times) * I) * coh_dtype_bytes(x->dtype)
               : 0;
}

static coh_status check_stored(const coh_linear_attributes *a, int64_t I)
{
    const int32_t stored = a->stored;
    if (a->reserved != 0)
        return coh_kind_fail(COH_ERR_SHAPE, "reserved is %d: it must be 0", a->reserved);
    if (stored != 0 && stored != COH_DTYPE_NF4)
        return coh_kind_fail(COH_ERR_SHAPE, "a weight stored as dtype %d: 0, or %d for nf4", stored,
                             COH_DTYPE_NF4);
    if (stored != 0 && I % COH_NF4_ROW_UNIT != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "a weight in nf4 has rows of %" PRId64
                             " elements: a multiple of %d is needed",
                             I, COH_NF4_ROW_UNIT);
    return COH_OK;
}

/* Sets the memory traffic with a weight in NF4: that of the ports with a plain weight, which is the
 * opened one as it is read, and what opening adds: packed it is read, opened it is written. The
 * planner prices opening by itself (planner/price.h). */
static void set_bytes(coh_dtype dtype, int64_t N, int64_t I, int64_t O, coh_op_facts *facts)
{
    const double element = (double)coh_dtype_bytes(dtype), weight = (double)I * (double)O;
    const double packed = weight / COH_NF4_BLOCK * COH_NF4_BLOCK_BYTES;
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
        facts->bytes[phase] = packed + (2 * weight + (double)N * (double)(I + O)) * element;
    facts->bytes[COH_PHASE_FORWARD] += (double)O * element; /* bias */
    facts->bytes[COH_PHASE_BACKWARD] += (double)sums_bytes(dtype, N, I, O, 1);
}

/* Adds traffic, if it is not the sum of the ports. */
static void add_bytes(coh_op_facts *facts, coh_phase phase, double bytes)
{
    if (facts->bytes[phase] > 0)
        facts->bytes[phase] += bytes;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_linear_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 0);
    if (status == COH_OK)
        status = coh_check_count("outputs", a->outputs);
    if (status == COH_OK)
        status = check_stored(a, inputs[0].dim[inputs[0].rank - 1]);
    if (status != COH_OK)
        return status;
    const int64_t I = inputs[0].dim[inputs[0].rank - 1], N = coh_shape_rows(&inputs[0]);
    const size_t opened = opened_bytes(a, &inputs[0], 1);
    facts->output[0] = inputs[0];
    facts->output[0].dim[inputs[0].rank - 1] = a->outputs;
    status = coh_check_float("y", &facts->output[0], 0);
    if (status != COH_OK)
        return status;
    facts->parameter[0] = (coh_parameter_facts){
        .name = "weight",
        .shape =
            coh_shape_make(a->stored != 0 ? COH_DTYPE_NF4 : inputs[0].dtype, 2, a->outputs, I, 0),
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
    facts->workspace_bytes[COH_PHASE_FORWARD] = opened;
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        opened + sums_bytes(inputs[0].dtype, N, I, a->outputs, 1);
    facts->flops[COH_PHASE_FORWARD] = 2.0 * (double)N * (double)I * (double)a->outputs;
    facts->flops[COH_PHASE_BACKWARD] = 2.0 * facts->flops[COH_PHASE_FORWARD];
    if (a->stored != 0)
        set_bytes(inputs[0].dtype, N, I, a->outputs, facts);
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
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++)
        add_bytes(facts, (coh_phase)phase,
                  (double)coh_shape_elements(&facts->output[0]) *
                      (double)coh_dtype_bytes(inputs[0].dtype));
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

/* Returns the weight's block of `count` elements from element `at` of the call's range on, opened
 * if it is in NF4. */
static const void *weight_block(const coh_call *call, coh_dtype dtype, int64_t at, int64_t count)
{
    const coh_view *weight = &call->parameter[0];
    if (weight->shape.dtype != COH_DTYPE_NF4)
        return element(weight->data, dtype, at);
    const coh_nf4_weight packed = {
        .dtype = dtype,
        .count = count,
        .packed = (const char *)weight->data + coh_dtype_array_bytes(COH_DTYPE_NF4, (uint64_t)at),
        .y = call->workspace,
    };
    coh_kernel_nf4(call->queue, &packed);
    return packed.y;
}

/* Returns the part of backward's workspace behind an opened block. */
static void *behind_opened(const coh_call *call)
{
    const coh_linear_attributes *a = call->attributes;
    const coh_shape *dy = &call->output_grad[0].shape;
    const coh_shape x = { .dtype = dy->dtype,
                          .rank = 1,
                          .dim = { call->parameter[0].shape.dim[1] } };
    const size_t opened = opened_bytes(a, &x, coh_kernel_row_blocks(call->queue));
    return call->workspace == NULL ? NULL : (char *)call->workspace + opened;
}

/* Runs one block after the other: columns of y. */
static coh_status run_blocks(const coh_call *call, const coh_matmul *whole)
{
    const int64_t I = whole->depth, O = whole->columns;
    const int64_t block = block_columns(I, O, coh_kernel_row_blocks(call->queue));
    int64_t begin, end;
    coh_call_rows(call, O, &begin, &end);
    for (int64_t o = begin; o < end; o += block) {
        coh_matmul product = *whole;
        product.columns = end - o < block ? end - o : block;
        product.b = weight_block(call, whole->dtype, (o - begin) * I, product.columns * I);
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

/* Computes dweight and dx of each block: columns [o, o + count) of dy, and the corresponding rows
 * of the weight. dx is the sum over the blocks: if it is narrower than f32, it is summed in
 * `workspace` and stored after the last block. `dy`: the gradient of the product's result, all of
 * its columns. */
static void spread(const coh_call *call, const void *dy, void *workspace)
{
    const coh_shape *shape = &call->output_grad[0].shape;
    const coh_view *dx = &call->input_grad[0], *dweight = &call->parameter_grad[0];
    const coh_dtype dtype = shape->dtype;
    const int64_t I = call->parameter[0].shape.dim[1], O = shape->dim[shape->rank - 1];
    const int64_t N = coh_shape_rows(shape);
    const int64_t times = coh_kernel_row_blocks(call->queue), block = block_columns(I, O, times);
    const int has_sums = sums_bytes(dtype, N, I, O, times) > 0;
    const int dx_adds = (call->input_grad_adds & 1u) != 0;
    int64_t begin, end;
    coh_call_rows(call, O, &begin, &end);
    for (int64_t o = begin; o < end; o += block) {
        const int64_t count = end - o < block ? end - o : block, at = (o - begin) * I;
        coh_matmul product = { .dtype = dtype,
                               .columns = I,
                               .a = element(dy, dtype, o),
                               .a_stride = O,
                               .b_stride = I,
                               .c_stride = I };
        if (dweight->data != NULL) {
            product.layout = COH_MATMUL_TN;
            product.rows = count;
            product.depth = N;
            product.b = call->input[0].data;
            product.c_dtype = dweight->shape.dtype;
            product.c = element(dweight->data, product.c_dtype, at);
            product.adds = (call->parameter_grad_adds & 1u) != 0;
            coh_kernel_matmul(call->queue, &product);
        }
        if (dx->data != NULL) {
            product.layout = COH_MATMUL_NN;
            product.rows = N;
            product.depth = count;
            product.b = weight_block(call, dtype, at, count * I);
            product.c_dtype = has_sums ? COH_DTYPE_F32 : dtype;
            product.c = has_sums ? workspace : dx->data;
            product.adds = o > 0 || (!has_sums && dx_adds);
            coh_kernel_matmul(call->queue, &product);
        }
        if (dx->data != NULL && has_sums && o + count == O)
            coh_kernel_round(call->queue, dtype, dx->data, workspace, N * I, dx_adds);
    }
}

/* If the parameters are frozen, x is not given: the shapes follow from dy and the weight. The
 * gradients of bias and residual are made with the first range. */
static coh_status backward(const coh_call *call)
{
    const coh_shape *dy = &call->output_grad[0].shape;
    void *scratch = behind_opened(call);
    const int64_t N = coh_shape_rows(dy), O = dy->dim[dy->rank - 1];
    const coh_column_sum sum = { .dtype = dy->dtype,
                                 .sums_dtype = call->parameter_grad[1].shape.dtype,
                                 .sums = call->parameter_grad[1].data,
                                 .x = call->output_grad[0].data,
                                 .rows = N,
                                 .columns = O,
                                 .adds = (call->parameter_grad_adds & 2u) != 0,
                                 .partials = scratch }; /* before the sums of dx */
    if (sum.sums != NULL)
        coh_kernel_column_sum(call->queue, &sum);
    spread(call, call->output_grad[0].data, scratch);
    if (call->input_grad[1].data != NULL && call->row_begin == 0)
        coh_kernel_pass(call->queue, dy->dtype, call->input_grad[1].data, call->output_grad[0].data,
                        N * O, (call->input_grad_adds & 2u) != 0);
    return COH_OK;
}

/* Returns the bytes of dx's sums on a GPU. */
static size_t gpu_sums_bytes(const coh_linear_attributes *a, const coh_shape *x)
{
    return sums_bytes(x->dtype, coh_shape_rows(x), x->dim[x->rank - 1], a->outputs,
                      COH_GPU_ROW_BLOCKS);
}

/* Returns the scratch bytes of a call on a GPU: the partial sums of the bias are folded before
 * those of dx begin. */
static size_t gpu_workspace(const void *attributes, const coh_shape *inputs, coh_phase phase)
{
    const coh_linear_attributes *a = attributes;
    const size_t sums = gpu_sums_bytes(a, &inputs[0]);
    const size_t partials =
        a->has_bias
            ? (size_t)coh_kernel_column_sum_partials(coh_shape_rows(&inputs[0]), a->outputs) *
                  sizeof(float)
            : 0;
    return opened_bytes(a, &inputs[0], COH_GPU_ROW_BLOCKS) + (phase != COH_PHASE_BACKWARD ? 0
                                                              : sums > partials           ? sums
                                                                                : partials);
}

/* Fields that all of them share. `outputs_read`: the mask of outputs that backward reads. */
#define LINEAR_KIND(kind_name, kind_revision, input_ports, outputs_read)                           \
    COH_KIND(kind_name, kind_revision), COH_KIND_GRADIENTS((1u << (input_ports)) - 1u, 3u),        \
        .input_count = input_ports, .output_count = 1, .parameter_count = 2,                       \
        .backward_reads = { .inputs = 1u, .outputs = outputs_read, .parameters = 1u },             \
        .reads_for_parameters = { .inputs = 1u }, .row_split_parameters = 1u, .column_slices = 1,  \
        .attribute_bytes = offsetof(coh_linear_attributes, stored)

const coh_op_kind coh_kind_linear = {
    LINEAR_KIND("linear", 2, 1, 0u),
    COH_KIND_RUNS_WITH(forward, backward, .workspace = gpu_workspace),
    .infer = infer,
};

const coh_op_kind coh_kind_linear_uniform = {
    LINEAR_KIND("linear_uniform", 1, 1, 0u),
    COH_KIND_RUNS_WITH(forward, backward, .workspace = gpu_workspace),
    .infer = infer_uniform,
};

/* y may share memory with the residual: each tile of y begins with its own part of it. dresidual
 * may share memory with dy: it is dy, and is passed on last. */
const coh_op_kind coh_kind_linear_residual = {
    LINEAR_KIND("linear_residual", 2, 2, 0u),
    COH_KIND_RUNS_WITH(forward, backward, .workspace = gpu_workspace),
    .infer = infer_residual,
    .forward_in_place = { { 1, 0 } },
    .backward_in_place = { { 0, 1 } },
    .in_place_count = { 1, 1 },
};

/* ---- with an activation ---- */

/* Returns the bytes of partial sums. */
static size_t partials_bytes(int64_t N, int64_t O)
{
    return (size_t)coh_kernel_activation_partials(N, O) * sizeof(float);
}

static size_t gpu_workspace_activated(const void *attributes, const coh_shape *inputs,
                                      coh_phase phase)
{
    const coh_linear_attributes *a = attributes;
    const size_t opened = opened_bytes(a, &inputs[0], COH_GPU_ROW_BLOCKS);
    return phase == COH_PHASE_BACKWARD ? opened + gpu_sums_bytes(a, &inputs[0]) +
                                             partials_bytes(coh_shape_rows(&inputs[0]), a->outputs)
                                       : opened;
}

/* `saves`: forward saves the sums before the activation. */
static coh_status infer_activated(const void *attributes, const coh_shape *inputs, int saves,
                                  double forward_flops, double backward_flops, coh_op_facts *facts)
{
    const coh_status status = infer(attributes, inputs, facts);
    if (status != COH_OK)
        return status;
    const coh_shape *y = &facts->output[0];
    const int64_t O = y->dim[y->rank - 1], N = coh_shape_rows(y);
    const size_t y_bytes = (size_t)(N * O) * coh_dtype_bytes(y->dtype);
    facts->saved_bytes = saves ? y_bytes : 0;
    add_bytes(facts, COH_PHASE_FORWARD, (double)facts->saved_bytes);
    /* dy is overwritten; the sums before the activation, or y, are read */
    add_bytes(facts, COH_PHASE_BACKWARD, 2.0 * (double)y_bytes + (double)partials_bytes(N, O));
    facts->workspace_bytes[COH_PHASE_BACKWARD] += partials_bytes(N, O);
    facts->flops[COH_PHASE_FORWARD] += forward_flops * (double)N * (double)O;
    facts->flops[COH_PHASE_BACKWARD] += backward_flops * (double)N * (double)O;
    return COH_OK;
}

/* Workspace: an opened block, partial sums, dx's sums. The first range overwrites dy with dh, of
 * all columns. */
static coh_status backward_activation(const coh_call *call, coh_activation activation,
                                      const void *of)
{
    const coh_shape *dy = &call->output_grad[0].shape;
    const int64_t N = coh_shape_rows(dy), O = dy->dim[dy->rank - 1];
    char *scratch = behind_opened(call);
    coh_activation_gradient gradient = {
        .activation = activation,
        .dtype = dy->dtype,
        .N = N,
        .O = O,
        .dy = call->output_grad[0].data,
        .of = of,
        .dh = call->output_grad[0].data,
        .sums = call->parameter_grad[1].data,
        .sums_adds = (call->parameter_grad_adds & 2u) != 0,
        .f32_grads = coh_call_has_f32_grads(call, 1),
        .partials = (float *)(void *)scratch,
    };
    if (call->row_begin == 0)
        coh_kernel_activation_gradient(call->queue, &gradient);
    spread(call, gradient.dh, scratch + partials_bytes(N, O));
    return COH_OK;
}

/* ---- linear_gelu: saves the sum before the gelu ---- */

static coh_status infer_gelu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    return infer_activated(attributes, inputs, 1, 30.0, 40.0, facts);
}

static coh_status forward_gelu(const coh_call *call)
{
    coh_matmul product = product_of(call);
    product.c = call->saved;
    product.activated = call->output[0].data;
    product.activation = COH_ACTIVATION_GELU;
    return run_blocks(call, &product);
}

static coh_status backward_gelu(const coh_call *call)
{
    return backward_activation(call, COH_ACTIVATION_GELU, call->saved);
}

const coh_op_kind coh_kind_linear_gelu = {
    LINEAR_KIND("linear_gelu", 1, 1, 0u),
    COH_KIND_RUNS_WITH(forward_gelu, backward_gelu, .workspace = gpu_workspace_activated),
    .overwrites_output_grads = 1u,
    .infer = infer_gelu,
};

/* ---- linear_relu: saves nothing; y > 0 tells where its sum was above 0 ---- */

static coh_status infer_relu(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    return infer_activated(attributes, inputs, 0, 1.0, 1.0, facts);
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
    LINEAR_KIND("linear_relu", 1, 1, 1u),
    COH_KIND_RUNS_WITH(forward_relu, backward_relu, .workspace = gpu_workspace_activated),
    .overwrites_output_grads = 1u,
    .infer = infer_relu,
};
