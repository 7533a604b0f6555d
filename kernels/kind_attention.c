/* The operator kinds of causal attention: plain, with atomics, with dropout, and one step of a
 * decoder. The idea: each exists in two layouts of its inputs, one tensor qkv and separate q, k and
 * v, whose heads of queries may share heads of keys (grouped-query attention). A layout checks the
 * shapes and finds the pointers; all else is the same. Next: kernels.h (coh_attention). */
#include "cohobate/kinds.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"

typedef struct sizes {
    int64_t B, T, H, G, D;
} sizes;

static coh_status check_width(int64_t D)
{
    return D <= COH_HEAD_WIDTH_MOST
               ? COH_OK
               : coh_kind_fail(COH_ERR_SHAPE,
                               "heads of %" PRId64 " channels: at most %d are possible", D,
                               COH_HEAD_WIDTH_MOST);
}

/* ---- one tensor qkv: q, k and v lie next to each other in a row ---- */

/* qkv [B,T,3C] with C a multiple of heads. */
static coh_status packed_sizes(const coh_shape *qkv, int64_t heads, sizes *out)
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
    *out = (sizes){ qkv->dim[0], qkv->dim[1], heads, heads, qkv->dim[2] / (3 * heads) };
    return check_width(out->D);
}

static coh_attention packed(const coh_call *call)
{
    const coh_attention_attributes *a = call->attributes;
    const int64_t *dim = call->input[0].shape.dim, C = dim[2] / 3;
    const coh_dtype dtype = call->input[0].shape.dtype;
    const size_t part_bytes = (size_t)C * coh_dtype_bytes(dtype);
    const char *qkv = call->input[0].data;
    char *dqkv = call->input_grad[0].data;
    const int adds = (call->input_grad_adds & 1u) != 0;
    return (coh_attention){ .B = dim[0],
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
                            .dq = dqkv,
                            .dk = dqkv != NULL ? dqkv + part_bytes : NULL,
                            .dv = dqkv != NULL ? dqkv + 2 * part_bytes : NULL,
                            .dq_adds = adds,
                            .dk_adds = adds,
                            .dv_adds = adds };
}

/* ---- separate q, k and v ---- */

/* q [B,T,H*D], k and v [B,T,G*D]. */
static coh_status grouped_sizes(const coh_shape *inputs, int64_t heads, int64_t kv_heads,
                                sizes *out)
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
    *out = (sizes){ inputs[0].dim[0], inputs[0].dim[1], heads, kv_heads, inputs[0].dim[2] / heads };
    status = check_width(out->D);
    for (int port = 1; port < 3 && status == COH_OK; port++)
        if (inputs[port].dim[2] != kv_heads * out->D)
            status = coh_kind_fail(COH_ERR_SHAPE,
                                   "%s has %" PRId64 " channels: %" PRId64 " heads of %" PRId64
                                   " are needed",
                                   ports[port], inputs[port].dim[2], kv_heads, out->D);
    return status;
}

static coh_attention grouped(const coh_call *call)
{
    const coh_attention_grouped_attributes *a = call->attributes;
    const coh_shape *q = &call->input[0].shape;
    const int64_t D = q->dim[2] / a->heads;
    return (coh_attention){ .B = q->dim[0],
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
                            .dq = call->input_grad[0].data,
                            .dk = call->input_grad[1].data,
                            .dv = call->input_grad[2].data,
                            .dq_adds = (call->input_grad_adds & 1u) != 0,
                            .dk_adds = (call->input_grad_adds & 2u) != 0,
                            .dv_adds = (call->input_grad_adds & 4u) != 0 };
}

static coh_status check_scores(const coh_attention_scores *scores)
{
    if (scores->window < 0)
        return coh_kind_fail(COH_ERR_SHAPE, "a window of %" PRId64 " keys: 0 is none",
                             scores->window);
    if (!(scores->scale >= 0.0f && isfinite(scores->scale)))
        return coh_kind_fail(COH_ERR_SHAPE, "scores are scaled by %g: above 0, or 0 for 1/sqrt(D)",
                             (double)scores->scale);
    return coh_check_cap(scores->cap);
}

static coh_attention with_scores(coh_attention attention, const coh_attention_scores *scores)
{
    attention.window = scores->window < attention.T ? scores->window : 0;
    attention.scale = scores->scale;
    attention.cap = scores->cap;
    return attention;
}

/* ---- facts ---- */

/* The sum over i of smaller(i, window), T T / 2 without one. */
static double pairs_of(int64_t T, int64_t window)
{
    const double keys = (double)(window > 0 && window < T ? window : T);
    return keys * ((double)T - 0.5 * keys);
}

static coh_status infer_facts(const sizes *s, coh_attention_scores scores, const coh_shape *input,
                              coh_op_facts *facts)
{
    facts->output[0] = coh_shape_make(input->dtype, 3, s->B, s->T, s->H * s->D);
    facts->saved_bytes = (size_t)(s->B * s->H * s->T) * sizeof(float);
    facts->workspace_bytes[COH_PHASE_BACKWARD] =
        (size_t)coh_kernel_attention_scratch(s->B, s->T, s->H, s->G, s->D) * sizeof(float);
    /* two products forward, five backward, over the pairs of a query and a key that it sees */
    const double pairs = (double)(s->B * s->H) * pairs_of(s->T, scores.window);
    const double capping = scores.cap > 0 ? COH_CAP_FLOPS * pairs : 0.0;
    facts->flops[COH_PHASE_FORWARD] = 4.0 * pairs * (double)s->D + capping;
    facts->flops[COH_PHASE_BACKWARD] = 10.0 * pairs * (double)s->D + capping;
    return COH_OK;
}

static coh_status packed_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_attention_attributes *a = attributes;
    sizes s;
    const coh_status status = packed_sizes(&inputs[0], a->heads, &s);
    return status == COH_OK ? infer_facts(&s, (coh_attention_scores){ 0 }, &inputs[0], facts)
                            : status;
}

/* `attributes` begin with the heads. */
static coh_status grouped_infer_scores(const coh_attention_grouped_attributes *a,
                                       const coh_attention_scores *scores, const coh_shape *inputs,
                                       coh_op_facts *facts)
{
    sizes s;
    coh_status status = grouped_sizes(inputs, a->heads, a->kv_heads, &s);
    if (status == COH_OK)
        status = check_scores(scores);
    return status == COH_OK ? infer_facts(&s, *scores, &inputs[0], facts) : status;
}

static coh_status grouped_infer(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const coh_attention_grouped_attributes *a = attributes;
    return grouped_infer_scores(a, &a->scores, inputs, facts);
}

static coh_status packed_infer_dropout(const void *attributes, const coh_shape *inputs,
                                       coh_op_facts *facts)
{
    const coh_attention_dropout_attributes *a = attributes;
    const coh_status status = packed_infer(&a->attention, inputs, facts);
    return status == COH_OK ? coh_check_attention_dropout(inputs[0].dim[0] * a->attention.heads,
                                                          inputs[0].dim[1], a->probability, facts)
                            : status;
}

static coh_status grouped_infer_dropout(const void *attributes, const coh_shape *inputs,
                                        coh_op_facts *facts)
{
    const coh_attention_grouped_dropout_attributes *a = attributes;
    const coh_status status = grouped_infer_scores(attributes, &a->scores, inputs, facts);
    return status == COH_OK ? coh_check_attention_dropout(inputs[0].dim[0] * a->heads,
                                                          inputs[0].dim[1], a->probability, facts)
                            : status;
}

/* With documents: as `form` infers it, and positions are the last input. */
#define INFERS_DOCUMENTS(form, port)                                                               \
    static coh_status form##_documents(const void *attributes, const coh_shape *inputs,            \
                                       coh_op_facts *facts)                                        \
    {                                                                                              \
        const coh_status status = form(attributes, inputs, facts);                                 \
        return status == COH_OK ? coh_check_documents(inputs, port, facts) : status;               \
    }

INFERS_DOCUMENTS(packed_infer, 1)
INFERS_DOCUMENTS(packed_infer_dropout, 1)
INFERS_DOCUMENTS(grouped_infer, 3)
INFERS_DOCUMENTS(grouped_infer_dropout, 3)

/* ---- forward and backward, in both layouts ---- */

static coh_attention with_dropout(const coh_call *call, coh_attention attention, double probability)
{
    attention.drop = coh_drop_of(call, probability);
    attention.first_head = call->input[0].origin[0] * attention.H;
    return attention;
}

static coh_attention packed_dropout(const coh_call *call)
{
    const coh_attention_dropout_attributes *a = call->attributes;
    return with_dropout(call, packed(call), a->probability);
}

static coh_attention grouped_dropout(const coh_call *call)
{
    const coh_attention_grouped_dropout_attributes *a = call->attributes;
    return with_dropout(call, with_scores(grouped(call), &a->scores), a->probability);
}

static coh_attention packed_atomic(const coh_call *call)
{
    coh_attention attention = packed(call);
    attention.atomics = 1;
    return attention;
}

static coh_attention grouped_plain(const coh_call *call)
{
    const coh_attention_grouped_attributes *a = call->attributes;
    return with_scores(grouped(call), &a->scores);
}

static coh_attention grouped_atomic(const coh_call *call)
{
    coh_attention attention = grouped_plain(call);
    attention.atomics = 1;
    return attention;
}

/* With documents: as `form` finds it. */
#define FINDS_DOCUMENTS(form, port)                                                                \
    static coh_attention form##_documents(const coh_call *call)                                    \
    {                                                                                              \
        coh_attention attention = form(call);                                                      \
        attention.positions = call->input[port].data;                                              \
        return attention;                                                                          \
    }

FINDS_DOCUMENTS(packed, 1)
FINDS_DOCUMENTS(packed_dropout, 1)
FINDS_DOCUMENTS(grouped_plain, 3)
FINDS_DOCUMENTS(grouped_dropout, 3)

static coh_status run_forward(const coh_call *call, coh_attention attention)
{
    attention.y = call->output[0].data;
    attention.lse = call->saved;
    coh_kernel_attention(call->queue, &attention);
    return COH_OK;
}

static coh_status run_backward(const coh_call *call, coh_attention attention)
{
    attention.y = call->output[0].data;
    attention.lse = call->saved;
    attention.dy = call->output_grad[0].data;
    attention.scratch = call->workspace;
    if (attention.dq != NULL || attention.dk != NULL || attention.dv != NULL)
        coh_kernel_attention_backward(call->queue, &attention);
    return COH_OK;
}

/* Defines the two functions of a kind whose arguments `form` finds. */
#define RUNS(form)                                                                                 \
    static coh_status forward_##form(const coh_call *call)                                         \
    {                                                                                              \
        return run_forward(call, form(call));                                                      \
    }                                                                                              \
    static coh_status backward_##form(const coh_call *call)                                        \
    {                                                                                              \
        return run_backward(call, form(call));                                                     \
    }

RUNS(packed)
RUNS(packed_atomic)
RUNS(packed_dropout)
RUNS(grouped_plain)
RUNS(grouped_atomic)
RUNS(grouped_dropout)
RUNS(packed_documents)
RUNS(packed_dropout_documents)
RUNS(grouped_plain_documents)
RUNS(grouped_dropout_documents)

/* ---- kinds ---- */

#define KIND(kind_name, kind_revision, attributes)                                                 \
    KIND_WITH(kind_name, kind_revision, sizeof(attributes))

/* Attributes that may end before `scores`. */
#define KIND_WITH_SCORES(kind_name, kind_revision, attributes)                                     \
    KIND_WITH(kind_name, kind_revision, offsetof(attributes, scores))

#define KIND_WITH(kind_name, kind_revision, bytes)                                                 \
    COH_KIND(kind_name, kind_revision), .output_count = 1, .attribute_bytes = bytes

/* All that is read by backward can get a gradient, except positions of documents. */
#define INPUTS(count, mask)                                                                        \
    .input_count = count, .backward_reads = { .inputs = (1u << (count)) - 1, .outputs = 1u },      \
    COH_KIND_GRADIENTS(mask, 0u)

#define DEVICES(form, ...) COH_KIND_RUNS_WITH(forward_##form, backward_##form, __VA_ARGS__)

const coh_op_kind coh_kind_attention = {
    KIND("attention", 2, coh_attention_attributes),
    INPUTS(1, 1u),
    .infer = packed_infer,
    DEVICES(packed, .workspace = coh_cuda_workspace_attention),
};

const coh_op_kind coh_kind_attention_atomic = {
    KIND("attention_atomic", 1, coh_attention_attributes),
    INPUTS(1, 1u),
    .infer = packed_infer,
    DEVICES(packed_atomic, .workspace = coh_cuda_workspace_attention_atomic,
            .accepts = coh_cuda_accepts_attention_atomic),
    .atomics = 1,
};

const coh_op_kind coh_kind_attention_dropout = {
    KIND("attention_dropout", 1, coh_attention_dropout_attributes),
    INPUTS(1, 1u),
    .infer = packed_infer_dropout,
    DEVICES(packed_dropout, .workspace = coh_cuda_workspace_attention),
    .draws = 1,
};

/* A block of y is written after its own block of q was read. dq never takes dy's place: cuDNN would
 * then need a copy of dy. */
const coh_op_kind coh_kind_attention_grouped = {
    KIND_WITH_SCORES("attention_grouped", 1, coh_attention_grouped_attributes),
    INPUTS(3, 7u),
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = grouped_infer,
    DEVICES(grouped_plain, .workspace = coh_cuda_workspace_attention_grouped),
};

const coh_op_kind coh_kind_attention_grouped_atomic = {
    KIND_WITH_SCORES("attention_grouped_atomic", 1, coh_attention_grouped_attributes),
    INPUTS(3, 7u),
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = grouped_infer,
    DEVICES(grouped_atomic, .workspace = coh_cuda_workspace_attention_grouped_atomic,
            .accepts = coh_cuda_accepts_attention_grouped_atomic),
    .atomics = 1,
};

const coh_op_kind coh_kind_attention_grouped_dropout = {
    KIND_WITH_SCORES("attention_grouped_dropout", 1, coh_attention_grouped_dropout_attributes),
    INPUTS(3, 7u),
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = grouped_infer_dropout,
    DEVICES(grouped_dropout, .workspace = coh_cuda_workspace_attention_grouped_dropout),
    .draws = 1,
};

/* ---- with documents: positions of their tokens are the last input ---- */

const coh_op_kind coh_kind_attention_documents = {
    KIND("attention_documents", 1, coh_attention_attributes),
    INPUTS(2, 1u),
    .infer = packed_infer_documents,
    DEVICES(packed_documents, .workspace = coh_cuda_workspace_attention_documents),
};

const coh_op_kind coh_kind_attention_documents_dropout = {
    KIND("attention_documents_dropout", 1, coh_attention_dropout_attributes),
    INPUTS(2, 1u),
    .infer = packed_infer_dropout_documents,
    DEVICES(packed_dropout_documents, .workspace = coh_cuda_workspace_attention_documents),
    .draws = 1,
};

const coh_op_kind coh_kind_attention_grouped_documents = {
    KIND_WITH_SCORES("attention_grouped_documents", 1, coh_attention_grouped_attributes),
    INPUTS(4, 7u),
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = grouped_infer_documents,
    DEVICES(grouped_plain_documents, .workspace = coh_cuda_workspace_attention_grouped_documents),
};

const coh_op_kind coh_kind_attention_grouped_documents_dropout = {
    KIND_WITH_SCORES("attention_grouped_documents_dropout", 1,
                     coh_attention_grouped_dropout_attributes),
    INPUTS(4, 7u),
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = grouped_infer_dropout_documents,
    DEVICES(grouped_dropout_documents, .workspace = coh_cuda_workspace_attention_grouped_documents),
    .draws = 1,
};

/* ---- one step of a decoder ---- */

/* `position`: the input that holds the position, after those of attention. */
static coh_status infer_step(const sizes *s, const coh_shape *inputs, int position,
                             int64_t positions, int64_t window, coh_op_facts *facts)
{
    const int64_t seen = window > 0 && window < positions ? window : positions;
    coh_status status = coh_check_count("positions", positions);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[position]);
    facts->index_range[position] = (coh_index_range){ .end = positions };
    facts->output[0] = coh_shape_make(inputs[0].dtype, 3, s->B, s->T, s->H * s->D);
    for (int state = 0; state < 2 && status == COH_OK; state++) {
        facts->state[state] = coh_shape_make(inputs[0].dtype, 3, s->B, positions, s->G * s->D);
        status = coh_check_float(state == 0 ? "keys" : "values", &facts->state[state], 3);
    }
    facts->flops[COH_PHASE_FORWARD] =
        4.0 * (double)(s->B * s->T) * (double)seen * (double)(s->H * s->D);
    return status;
}

static coh_status packed_infer_decode(const void *attributes, const coh_shape *inputs,
                                      coh_op_facts *facts)
{
    const coh_attention_decode_attributes *a = attributes;
    sizes s;
    const coh_status status = packed_sizes(&inputs[0], a->heads, &s);
    return status == COH_OK ? infer_step(&s, inputs, 1, a->positions, 0, facts) : status;
}

static coh_status grouped_infer_decode(const void *attributes, const coh_shape *inputs,
                                       coh_op_facts *facts)
{
    const coh_attention_grouped_decode_attributes *a = attributes;
    sizes s;
    coh_status status = grouped_sizes(inputs, a->heads, a->kv_heads, &s);
    if (status == COH_OK)
        status = check_scores(&a->scores);
    return status == COH_OK ? infer_step(&s, inputs, 3, a->positions, a->scores.window, facts)
                            : status;
}

static coh_status decode(const coh_call *call, const coh_attention *attention, int position,
                         int64_t positions)
{
    const coh_status status = coh_check_position(call, position, positions);
    if (status != COH_OK)
        return status;
    const coh_attention_decode step = { .B = attention->B,
                                        .T = attention->T,
                                        .H = attention->H,
                                        .G = attention->G,
                                        .D = attention->D,
                                        .positions = positions,
                                        .window = attention->window,
                                        .scale = attention->scale,
                                        .cap = attention->cap,
                                        .position = call->input[position].data,
                                        .dtype = attention->dtype,
                                        .q_stride = attention->q_stride,
                                        .kv_stride = attention->kv_stride,
                                        .q = attention->q,
                                        .k = attention->k,
                                        .v = attention->v,
                                        .keys = call->state[0].data,
                                        .values = call->state[1].data,
                                        .y = call->output[0].data,
                                        .scratch = call->workspace };
    coh_kernel_attention_decode(call->queue, &step);
    return COH_OK;
}

/* Attributes of a step begin with the heads of attention. */
static coh_status forward_packed_decode(const coh_call *call)
{
    const coh_attention_decode_attributes *a = call->attributes;
    const coh_attention attention = packed(call);
    return decode(call, &attention, 1, a->positions);
}

static coh_status forward_grouped_decode(const coh_call *call)
{
    const coh_attention_grouped_decode_attributes *a = call->attributes;
    coh_attention attention = with_scores(grouped(call), &a->scores);
    attention.window = a->scores.window;
    return decode(call, &attention, 3, a->positions);
}

const coh_op_kind coh_kind_attention_decode = {
    KIND("attention_decode", 1, coh_attention_decode_attributes),
    .input_count = 2,
    .state_count = 2,
    .infer = packed_infer_decode,
    COH_KIND_RUNS_WITH(forward_packed_decode, NULL,
                       .workspace = coh_cuda_workspace_attention_decode),
};

const coh_op_kind coh_kind_attention_grouped_decode = {
    KIND_WITH_SCORES("attention_grouped_decode", 1, coh_attention_grouped_decode_attributes),
    .input_count = 4,
    .state_count = 2,
    .infer = grouped_infer_decode,
    COH_KIND_RUNS_WITH(forward_grouped_decode, NULL,
                       .workspace = coh_cuda_workspace_attention_grouped_decode),
};
