/* The operator kinds of causal attention over separate q, k and v, whose heads of queries may share
 * heads of keys (grouped-query attention). Next: kernels.h (coh_attention), kind_attention.c. */
#include "cohobate/kinds.h"

#include <inttypes.h>

#include "kernels/kernels.h"
#include "kernels/kind_devices.h"
#include "kernels/shape_check.h"

/* q [B,T,H*D], k and v [B,T,G*D]. */
static coh_status check_heads(const coh_shape *inputs, int64_t heads, int64_t kv_heads)
{
    static const char *const ports[] = { "q", "k", "v" };
    coh_status status = coh_check_float("q", &inputs[0], 3);
    for (int port = 1; port < 3 && status == COH_OK; port++) {
        status = coh_check_tensor(ports[port], &inputs[port], inputs[0].dtype, 3);
        if (status == COH_OK)
            status = coh_check_leading(ports[port], &inputs[port], "q", &inputs[0], 1);
    }
    if (status == COH_OK)
        status = coh_check_count("heads", heads);
    if (status == COH_OK)
        status = coh_check_count("kv_heads", kv_heads);
    if (status != COH_OK)
        return status;
    if (heads % kv_heads != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "%" PRId64 " heads cannot share %" PRId64
                             " heads of keys and values evenly: a divisor is needed",
                             heads, kv_heads);
    if (inputs[0].dim[2] % heads != 0)
        return coh_kind_fail(
            COH_ERR_SHAPE, "q has %" PRId64 " channels: a multiple of %" PRId64 " heads is needed",
            inputs[0].dim[2], heads);
    const int64_t D = inputs[0].dim[2] / heads;
    if (D > COH_HEAD_WIDTH_MOST)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "heads of %" PRId64 " channels: at most %d are possible", D,
                             COH_HEAD_WIDTH_MOST);
    for (int port = 1; port < 3; port++)
        if (inputs[port].dim[2] != kv_heads * D)
            return coh_kind_fail(COH_ERR_SHAPE,
                                 "%s has %" PRId64 " channels: %" PRId64 " heads of %" PRId64
                                 " are needed",
                                 ports[port], inputs[port].dim[2], kv_heads, D);
    return COH_OK;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_attention_grouped_attributes *a = attributes;
    coh_status status = check_heads(inputs, a->heads, a->kv_heads);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0], T = inputs[0].dim[1], C = inputs[0].dim[2];
    facts->output[0] = inputs[0];
    facts->saved_bytes = (size_t)(B * a->heads * T) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_attention_scratch(B, T, a->heads, a->kv_heads, C / a->heads) *
        sizeof(float);
    /* two products forward, five backward, over half of T x T */
    const double half = (double)B * (double)T * (double)T * (double)C;
    facts->flops[COH_PHASE_FORWARD] = 2.0 * half;
    facts->flops[COH_PHASE_BACKWARD] = 5.0 * half;
    return COH_OK;
}

static coh_attention attention_of(const coh_call *call)
{
    const coh_attention_grouped_attributes *a = call->attributes;
    const coh_shape *q = &call->input[0].shape;
    const int64_t D = q->dim[2] / a->heads;
    return (coh_attention){
        .B = q->dim[0],
        .T = q->dim[1],
        .H = a->heads,
        .G = a->kv_heads,
        .D = D,
        .dtype = q->dtype,
        .q_stride = a->heads * D,
        .kv_stride = a->kv_heads * D,
        .q = call->input[0].data,
        .k = call->input[1].data,
        .v = call->input[2].data,
        .y = call->output[0].data,
        .lse = call->saved,
    };
}

static coh_status forward(const coh_call *call)
{
    const coh_attention attention = attention_of(call);
    coh_kernel_attention(call->queue, &attention);
    return COH_OK;
}

static void run_backward(const coh_call *call, coh_attention attention)
{
    attention.dy = call->output_grad[0].data;
    attention.dq = call->input_grad[0].data;
    attention.dk = call->input_grad[1].data;
    attention.dv = call->input_grad[2].data;
    attention.dq_adds = (call->input_grad_adds & 1u) != 0;
    attention.dk_adds = (call->input_grad_adds & 2u) != 0;
    attention.dv_adds = (call->input_grad_adds & 4u) != 0;
    attention.scratch = call->workspace;
    if (attention.dq != NULL || attention.dk != NULL || attention.dv != NULL)
        coh_kernel_attention_backward(call->queue, &attention);
}

static coh_status backward(const coh_call *call)
{
    run_backward(call, attention_of(call));
    return COH_OK;
}

/* A block of y is written after its own block of q was read, and dq after all of dy was. */
const coh_op_kind coh_kind_attention_grouped = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_grouped",
    .revision = 1,
    .input_count = 3,
    .output_count = 1,
    .backward_reads = { .inputs = 7u, .outputs = 1u },
    .can_add_grad = { .inputs = 7u },
    .can_skip_grad = { .inputs = 7u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward },
                 [COH_DEVICE_CUDA] = { .forward = forward,
                                       .backward = backward,
                                       .workspace = coh_cuda_workspace_attention_grouped } },
    .attribute_bytes = sizeof(coh_attention_grouped_attributes),
};

/* ---- with atomics on a GPU ---- */

static coh_status backward_atomic(const coh_call *call)
{
    coh_attention attention = attention_of(call);
    attention.atomics = 1;
    run_backward(call, attention);
    return COH_OK;
}

/* dq never takes dy's place: cuDNN would then need a copy of dy. */
const coh_op_kind coh_kind_attention_grouped_atomic = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_grouped_atomic",
    .revision = 1,
    .input_count = 3,
    .output_count = 1,
    .backward_reads = { .inputs = 7u, .outputs = 1u },
    .can_add_grad = { .inputs = 7u },
    .can_skip_grad = { .inputs = 7u },
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .split_axes = 1u,
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward, .backward = backward_atomic },
                 [COH_DEVICE_CUDA] = { .forward = forward,
                                       .backward = backward_atomic,
                                       .workspace = coh_cuda_workspace_attention_grouped_atomic,
                                       .accepts = coh_cuda_accepts_attention_grouped_atomic } },
    .atomics = 1,
    .attribute_bytes = sizeof(coh_attention_grouped_attributes),
};

/* ---- with dropout: its attributes begin with those of the plain one ---- */

static coh_status infer_dropout(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const coh_attention_grouped_dropout_attributes *a = attributes;
    coh_status status = infer(&a->attention, inputs, facts);
    if (status == COH_OK)
        status = coh_check_attention_dropout(inputs[0].dim[0] * a->attention.heads,
                                             inputs[0].dim[1], a->probability, facts);
    return status;
}

static coh_attention dropout_of(const coh_call *call)
{
    const coh_attention_grouped_dropout_attributes *a = call->attributes;
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

const coh_op_kind coh_kind_attention_grouped_dropout = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_grouped_dropout",
    .revision = 1,
    .input_count = 3,
    .output_count = 1,
    .backward_reads = { .inputs = 7u, .outputs = 1u },
    .can_add_grad = { .inputs = 7u },
    .can_skip_grad = { .inputs = 7u },
    .forward_in_place = { { 0, 0 } },
    .backward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 1 },
    .split_axes = 1u,
    .draws = 1,
    .infer = infer_dropout,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_dropout, .backward = backward_dropout },
                 [COH_DEVICE_CUDA] = { .forward = forward_dropout,
                                       .backward = backward_dropout,
                                       .workspace = coh_cuda_workspace_attention_grouped } },
    .attribute_bytes = sizeof(coh_attention_grouped_dropout_attributes),
};

/* ---- one step of a decoder ---- */

static coh_status infer_decode(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_attention_grouped_decode_attributes *a = attributes;
    coh_status status = check_heads(inputs, a->heads, a->kv_heads);
    if (status == COH_OK)
        status = coh_check_count("positions", a->positions);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[3]);
    if (status != COH_OK)
        return status;
    const int64_t B = inputs[0].dim[0];
    facts->index_range[3] = (coh_index_range){ .end = a->positions };
    facts->output[0] = inputs[0];
    for (int state = 0; state < 2; state++) {
        facts->state[state] = coh_shape_make(inputs[0].dtype, 3, B, a->positions, inputs[1].dim[2]);
        status = coh_check_float(state == 0 ? "keys" : "values", &facts->state[state], 3);
        if (status != COH_OK)
            return status;
    }
    facts->flops[COH_PHASE_FORWARD] =
        4.0 * (double)B * (double)a->positions * (double)inputs[0].dim[2];
    return COH_OK;
}

static coh_status forward_decode(const coh_call *call)
{
    const coh_attention_grouped_decode_attributes *a = call->attributes;
    coh_status status = coh_check_position(call, 3, a->positions);
    if (status != COH_OK)
        return status;
    const coh_shape *q = &call->input[0].shape;
    const int64_t D = q->dim[2] / a->heads;
    const coh_attention_decode decode = {
        .B = q->dim[0],
        .H = a->heads,
        .G = a->kv_heads,
        .D = D,
        .positions = a->positions,
        .position = call->input[3].data,
        .dtype = q->dtype,
        .q_stride = a->heads * D,
        .kv_stride = a->kv_heads * D,
        .q = call->input[0].data,
        .k = call->input[1].data,
        .v = call->input[2].data,
        .keys = call->state[0].data,
        .values = call->state[1].data,
        .y = call->output[0].data,
        .scratch = call->workspace,
    };
    coh_kernel_attention_decode(call->queue, &decode);
    return COH_OK;
}

const coh_op_kind coh_kind_attention_grouped_decode = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "cohobate.attention_grouped_decode",
    .revision = 1,
    .input_count = 4,
    .output_count = 1,
    .state_count = 2,
    .infer = infer_decode,
    .devices = { [COH_DEVICE_HOST] = { .forward = forward_decode },
                 [COH_DEVICE_CUDA] = { .forward = forward_decode,
                                       .workspace = coh_cuda_workspace_attention_grouped_decode } },
    .attribute_bytes = sizeof(coh_attention_grouped_decode_attributes),
};
