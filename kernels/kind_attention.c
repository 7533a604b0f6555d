/* The operator kinds of causal attention over one tensor qkv: plain, with atomics, with dropout,
 * and one step of a decoder. Next: kernels.h (coh_attention); kind_attention_grouped.c takes q, k
 * and v separately. */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "kernels/kernels.h"
#include "kernels/kind_devices.h"
#include "kernels/shape_check.h"

/* qkv [B,T,3C] with C a multiple of heads. */
static coh_status check_qkv(const coh_shape *qkv, int64_t heads)
{
    coh_status status = coh_check_float("qkv", qkv, 3);
    if (status == COH_OK)
        status = coh_check_count("heads", heads);
    if (status != COH_OK)
        return status;
    if (qkv->dim[2] % (3 * heads) != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "qkv has %" PRId64 " channels: 3 times a multiple of %" PRId64
                             " heads are needed",
                             qkv->dim[2], heads);
    if (qkv->dim[2] / (3 * heads) > COH_HEAD_WIDTH_MOST)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "heads of %" PRId64 " channels: at most %d are possible",
                             qkv->dim[2] / (3 * heads), COH_HEAD_WIDTH_MOST);
    return COH_OK;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_attention_attributes *a = attributes;
    coh_status status = check_qkv(&inputs[0], a->heads);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0], T = inputs[0].dim[1], C = inputs[0].dim[2] / 3;
    facts->output[0] = coh_shape_make(inputs[0].dtype, 3, B, T, C);
    facts->saved_bytes = (size_t)(B * a->heads * T) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_attention_scratch(B, T, a->heads, a->heads, C / a->heads) *
        sizeof(float);
    /* two products forward, five backward, over half of T x T */
    const double half = (double)B * (double)T * (double)T * (double)C;
    facts->flops[COH_PHASE_FORWARD] = 2.0 * half;
    facts->flops[COH_PHASE_BACKWARD] = 5.0 * half;
    return COH_OK;
}

/* q, k and v lie next to each other in a row. */
static coh_attention attention_of(const coh_call *call)
{
    const coh_attention_attributes *a = call->attributes;
    const int64_t *dim = call->input[0].shape.dim, C = dim[2] / 3;
    const coh_dtype dtype = call->input[0].shape.dtype;
    const char *qkv = call->input[0].data;
    const size_t part_bytes = (size_t)C * coh_dtype_bytes(dtype);
    return (coh_attention){
        .B = dim[0],
        .T = dim[1],
        .H = a->heads,
        .G = a->heads,
        .D = C / a->heads,
        .dtype = dtype,
        .q_stride = 3 * C,
        .kv_stride = 3 * C,
        .q = qkv,
        .k = qkv + part_bytes,
        .v = qkv + 2 * part_bytes,
        .y = call->output[0].data,
        .lse = call->saved,
    };
}

static coh_status forward(const coh_call *call)
{
    coh_attention attention = attention_of(call);
    coh_kernel_attention(call->queue, &attention);
    return COH_OK;
}

static void run_backward(const coh_call *call, coh_attention attention)
{
    const int adds = (call->input_grad_adds & 1u) != 0;
    char *dqkv = call->input_grad[0].data;
    if (dqkv == NULL)
        return;
    attention.dy = call->output_grad[0].data;
    attention.dq = dqkv;
    attention.dk = dqkv + ((const char *)attention.k - (const char *)attention.q);
    attention.dv = dqkv + ((const char *)attention.v - (const char *)attention.q);
    attention.dq_adds = attention.dk_adds = attention.dv_adds = adds;
    attention.scratch = call->workspace;
    coh_kernel_attention_backward(call->queue, &attention);
}

static coh_status backward(const coh_call *call)
{
    run_backward(call, attention_of(call));
    return COH_OK;
}

const coh_op_kind coh_kind_attention = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention",
    .revision = 2,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .inputs = 1u, .outputs = 1u },
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward,
                                       .backward = backward,
                                       .workspace = coh_cuda_workspace_attention } },
    .attribute_bytes = sizeof(coh_attention_attributes),
};

/* ---- with atomics on a GPU ---- */

static coh_status backward_atomic(const coh_call *call)
{
    coh_attention attention = attention_of(call);
    attention.atomics = 1;
    run_backward(call, attention);
    return COH_OK;
}

const coh_op_kind coh_kind_attention_atomic = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_atomic",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .inputs = 1u, .outputs = 1u },
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward_atomic },
                 [COH_DEVICE_CUDA] = { .forward = forward,
                                       .backward = backward_atomic,
                                       .workspace = coh_cuda_workspace_attention_atomic,
                                       .accepts = coh_cuda_accepts_attention_atomic } },
    .atomics = 1,
    .attribute_bytes = sizeof(coh_attention_attributes),
};

/* ---- with dropout: its attributes begin with those of the plain one ---- */

static coh_status infer_dropout(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const coh_attention_dropout_attributes *a = attributes;
    coh_status status = infer(&a->attention, inputs, facts);
    if (status == COH_OK)
        status = coh_check_attention_dropout(inputs[0].dim[0] * a->attention.heads,
                                             inputs[0].dim[1], a->probability, facts);
    return status;
}

static coh_attention dropout_of(const coh_call *call)
{
    const coh_attention_dropout_attributes *a = call->attributes;
    coh_attention attention = attention_of(call);
    attention.drop = coh_drop_of(call, a->probability);
    attention.first_head = call->input[0].origin[0] * attention.H;
    return attention;
}

static coh_status forward_dropout(const coh_call *call)
{
    const coh_attention attention = dropout_of(call);
    coh_kernel_attention(call->queue, &attention);
    return COH_OK;
}

static coh_status backward_dropout(const coh_call *call)
{
    run_backward(call, dropout_of(call));
    return COH_OK;
}

const coh_op_kind coh_kind_attention_dropout = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_dropout",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .backward_reads = { .inputs = 1u, .outputs = 1u },
    .can_add_grad = { .inputs = 1u },
    .can_skip_grad = { .inputs = 1u },
    .split_axes = 1u,
    .draws = 1,
    .infer = infer_dropout,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_dropout, .backward = backward_dropout },
                 [COH_DEVICE_CUDA] = { .forward = forward_dropout,
                                       .backward = backward_dropout,
                                       .workspace = coh_cuda_workspace_attention } },
    .attribute_bytes = sizeof(coh_attention_dropout_attributes),
};

/* ---- one step of a decoder ---- */

static coh_status infer_decode(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_attention_decode_attributes *a = attributes;
    coh_status status = check_qkv(&inputs[0], a->heads);
    if (status == COH_OK)
        status = coh_check_count("positions", a->positions);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[1]);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0], C = inputs[0].dim[2] / 3;
    facts->index_range[1] = (coh_index_range){ .end = a->positions };
    facts->output[0] = coh_shape_make(inputs[0].dtype, 3, B, 1, C);
    for (int state = 0; state < 2; state++) {
        facts->state[state] = coh_shape_make(inputs[0].dtype, 3, B, a->positions, C);
        status = coh_check_float(state == 0 ? "keys" : "values", &facts->state[state], 3);
        if (status != COH_OK)
            return status;
    }
    facts->flops[COH_PHASE_FORWARD] = 4.0 * (double)B * (double)a->positions * (double)C;
    return COH_OK;
}

static coh_status forward_decode(const coh_call *call)
{
    const coh_attention_decode_attributes *a = call->attributes;
    coh_status status = coh_check_position(call, 1, a->positions);
    if (status != COH_OK)
        return status;
    const int64_t C = call->input[0].shape.dim[2] / 3;
    const char *qkv = call->input[0].data;
    const size_t part_bytes = (size_t)C * coh_dtype_bytes(call->input[0].shape.dtype);
    coh_attention_decode decode = {
        .B = call->input[0].shape.dim[0],
        .H = a->heads,
        .G = a->heads,
        .D = C / a->heads,
        .positions = a->positions,
        .position = call->input[1].data,
        .dtype = call->input[0].shape.dtype,
        .q_stride = 3 * C,
        .kv_stride = 3 * C,
        .q = qkv,
        .k = qkv + part_bytes,
        .v = qkv + 2 * part_bytes,
        .keys = call->state[0].data,
        .values = call->state[1].data,
        .y = call->output[0].data,
        .scratch = call->workspace,
    };
    coh_kernel_attention_decode(call->queue, &decode);
    return COH_OK;
}

const coh_op_kind coh_kind_attention_decode = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_decode",
    .revision = 1,
    .input_count = 2,
    .output_count = 1,
    .state_count = 2,
    .infer = infer_decode,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_decode },
                 [COH_DEVICE_CUDA] = { .forward = forward_decode,
                                       .workspace = coh_cuda_workspace_attention_decode } },
    .attribute_bytes = sizeof(coh_attention_decode_attributes),
};
