/* The operator kinds of RoPE, of one tensor or of the parts of qkv, for whole sequences and for one
 * step of a decoder, and the scalings of its frequencies. Next: kernels.h (coh_rope),
 * cohobate/kinds.h for the attributes. */
#include "cohobate/kinds.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"
#include "kernels/plain.h"

#define TURN       6.283185307179586 /* 2 pi */
#define ANGLE_MOST 0x1p31
/* Bytes of coh_rope_attributes before YaRN. */
#define ROPE_BYTES offsetof(coh_rope_attributes, magnitude)

static coh_status check_yarn(const coh_rope_attributes *a)
{
    if (!(a->theta > 1.0))
        return coh_kind_fail(COH_ERR_SHAPE, "theta is %g: above 1 is needed with YaRN", a->theta);
    if (!(a->magnitude > 0.0f))
        return coh_kind_fail(COH_ERR_SHAPE, "magnitude is %g: above 0 is needed",
                             (double)a->magnitude);
    return COH_OK;
}

static coh_status check_scaling(const coh_rope_attributes *a)
{
    if (a->scaling < COH_ROPE_UNSCALED || a->scaling > COH_ROPE_YARN)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "scaling %" PRId32
                             " is unknown: none, linear, llama3 and yarn are possible",
                             a->scaling);
    if (!isfinite(a->factor) || !isfinite(a->low_frequency) || !isfinite(a->high_frequency) ||
        !isfinite(a->magnitude))
        return coh_kind_fail(
            COH_ERR_SHAPE,
            "factor %g, low_frequency %g, high_frequency %g or magnitude %g is not "
            "finite",
            (double)a->factor, (double)a->low_frequency, (double)a->high_frequency,
            (double)a->magnitude);
    if (a->scaling == COH_ROPE_UNSCALED)
        return COH_OK;
    if (!(a->factor > 0.0f && isfinite(a->factor)))
        return coh_kind_fail(COH_ERR_SHAPE, "the factor of the scaling is %g: above 0 is needed",
                             (double)a->factor);
    if (a->scaling == COH_ROPE_LINEAR)
        return COH_OK;
    if (!(a->low_frequency > 0.0f && a->high_frequency > a->low_frequency &&
          isfinite(a->high_frequency)))
        return coh_kind_fail(COH_ERR_SHAPE,
                             "low_frequency is %g and high_frequency %g: above 0, and the second "
                             "above the first is needed",
                             (double)a->low_frequency, (double)a->high_frequency);
    if (a->scaling == COH_ROPE_YARN && check_yarn(a) != COH_OK)
        return COH_ERR_SHAPE;
    return coh_check_count("original_positions", a->original_positions);
}

/* Returns how many positions have angles below 2^31, the limit of the kernel's cosines. No pair
 * rotates faster than 1 per position, except with a factor below 1. */
static int64_t positions_most(const coh_rope_attributes *a)
{
    const double factor = a->scaling == COH_ROPE_UNSCALED ? 1.0 : (double)a->factor;
    return (int64_t)(factor < 1.0 ? factor * ANGLE_MOST : ANGLE_MOST);
}

/* Checks a [B,T,heads*D] tensor called `port`. */
static coh_status check_turns(const coh_rope_attributes *a, const char *port, const coh_shape *x,
                              int64_t heads)
{
    if (x->dim[2] % (2 * heads) != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "%s has %" PRId64 " channels: %" PRId64
                             " heads of an even number each are needed",
                             port, x->dim[2], heads);
    if (x->dim[2] / heads > COH_HEAD_WIDTH_MOST)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "heads of %" PRId64 " channels: at most %d are possible",
                             x->dim[2] / heads, COH_HEAD_WIDTH_MOST);
    if (!(a->theta >= 1.0 && a->theta <= COH_ROPE_THETA_MOST))
        return coh_kind_fail(COH_ERR_SHAPE, "theta is %g: 1 to 2^100 is possible", a->theta);
    const coh_status status = check_scaling(a);
    if (status == COH_OK && x->dim[1] > positions_most(a))
        return coh_kind_fail(COH_ERR_SHAPE,
                             "a sequence of %" PRId64 " tokens, with turns scaled by %g: up to "
                             "%" PRId64 " are possible",
                             x->dim[1], (double)a->factor, positions_most(a));
    return status;
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_rope_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 3);
    if (status == COH_OK)
        status = coh_check_count("heads", a->heads);
    if (status == COH_OK)
        status = check_turns(a, "x", &inputs[0], a->heads);
    if (status != COH_OK)
        return status;
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = 3.0 * elements;
    facts->flops[COH_PHASE_BACKWARD] = 3.0 * elements;
    return COH_OK;
}

/* The channel, not rounded, whose pair rotates `turns` times within the original context. */
static double channel_of(const coh_rope_attributes *a, double turns, int64_t D)
{
    return (double)D * log((double)a->original_positions / (turns * TURN)) / (2.0 * log(a->theta));
}

/* The part of channel c that YaRN interpolates: kinds.h has the formula. */
static double yarn_part(const coh_rope_attributes *a, int64_t c, int64_t D)
{
    const double first = fmax(floor(channel_of(a, (double)a->high_frequency, D)), 0.0);
    double last = fmin(ceil(channel_of(a, (double)a->low_frequency, D)), (double)(D - 1));
    if (last == first)
        last += 0.001;
    return fmin(fmax(((double)c - first) / (last - first), 0.0), 1.0);
}

/* With f the unscaled frequency, original_positions f / (2 pi) is how often a pair rotates within
 * the model's original context length. */
static double scaled(const coh_rope_attributes *a, double frequency, int64_t c, int64_t D)
{
    const double low = (double)a->low_frequency, high = (double)a->high_frequency;
    const double turns = (double)a->original_positions * frequency / TURN;
    double kept = (turns - low) / (high - low);
    if (a->scaling == COH_ROPE_YARN)
        kept = 1.0 - yarn_part(a, c, D);
    else if (a->scaling == COH_ROPE_UNSCALED || (a->scaling == COH_ROPE_LLAMA3 && turns > high))
        return frequency;
    else if (a->scaling == COH_ROPE_LINEAR || turns < low)
        return frequency / (double)a->factor;
    return (1.0 - kept) * frequency / (double)a->factor + kept * frequency;
}

/* Rounds to float where the models' own code does: the exponent, the power, the scaled value. */
static void make_frequencies(const coh_rope_attributes *a, float *frequencies, int64_t D)
{
    for (int64_t c = 0; c < D / 2; c++) {
        const float exponent = (float)(2 * c) / (float)D;
        const float frequency = 1.0f / (float)pow(a->theta, (double)exponent);
        frequencies[c] = (float)scaled(a, (double)frequency, c, D);
    }
}

/* Computes y from x: tensors, or parts of their rows. */
static void turn(const coh_call *call, const coh_rope_attributes *a, coh_rope rope)
{
    float frequencies[COH_HEAD_WIDTH_MOST / 2];
    make_frequencies(a, frequencies, rope.D);
    rope.frequencies = frequencies;
    rope.magnitude = a->scaling == COH_ROPE_YARN ? a->magnitude : 1.0f;
    coh_kernel_rope(call->queue, &rope);
}

static coh_status turn_tensor(const coh_call *call, const coh_view *x, const coh_view *y,
                              coh_rope rope)
{
    const coh_rope_attributes *a = call->attributes;
    const int64_t C = x->shape.dim[2];
    rope.B = x->shape.dim[0];
    rope.T = x->shape.dim[1];
    rope.H = a->heads;
    rope.D = C / a->heads;
    rope.x_stride = rope.y_stride = C;
    rope.dtype = x->shape.dtype;
    rope.x = x->data;
    rope.y = y->data;
    turn(call, a, rope);
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    return turn_tensor(call, &call->input[0], &call->output[0], (coh_rope){ 0 });
}

static coh_status backward(const coh_call *call)
{
    const coh_rope back = { .turns_back = 1, .adds = (call->input_grad_adds & 1u) != 0 };
    if (call->input_grad[0].data == NULL)
        return COH_OK;
    return turn_tensor(call, &call->output_grad[0], &call->input_grad[0], back);
}

const coh_op_kind coh_kind_rope = {
    COH_KIND("rope", 1),
    .input_count = 1,
    .output_count = 1,
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_IN_PLACE,
    .infer = infer,
    COH_KIND_RUNS(forward, backward),
    .attribute_bytes = ROPE_BYTES,
};

/* ---- one step of a decoder ---- */

static coh_status infer_at(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    coh_status status = infer(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[1]);
    if (status == COH_OK)
        facts->index_range[1] = (coh_index_range){ .end = positions_most(attributes) };
    return status;
}

static coh_status forward_at(const coh_call *call)
{
    coh_status status = coh_check_position(call, 1, positions_most(call->attributes));
    if (status != COH_OK)
        return status;
    const coh_rope at = { .position = call->input[1].data };
    return turn_tensor(call, &call->input[0], &call->output[0], at);
}

const coh_op_kind coh_kind_rope_at = {
    COH_KIND("rope_at", 1),
    .input_count = 2,
    .output_count = 1,
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = infer_at,
    COH_KIND_RUNS(forward_at, NULL),
    .attribute_bytes = ROPE_BYTES,
};

/* ---- q, k and v of one tensor ---- */

/* qkv [B,T,(H+2G)*D] */
static coh_status infer_split(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_rope_split_attributes *a = attributes;
    const int64_t H = a->rope.heads, G = a->kv_heads;
    coh_status status = coh_check_float("qkv", &inputs[0], 3);
    if (status == COH_OK)
        status = coh_check_count("heads", H);
    if (status == COH_OK)
        status = coh_check_count("kv_heads", G);
    if (status == COH_OK && H % G != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "%" PRId64 " heads cannot share %" PRId64
                             " heads of keys and values evenly: a divisor is needed",
                             H, G);
    if (status == COH_OK)
        status = check_turns(&a->rope, "qkv", &inputs[0], H + 2 * G);
    if (status != COH_OK)
        return status;
    const int64_t D = inputs[0].dim[2] / (H + 2 * G);
    for (int part = 0; part < 3; part++) {
        facts->output[part] = inputs[0];
        facts->output[part].dim[2] = (part == 0 ? H : G) * D;
    }
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = 3.0 * elements;
    facts->flops[COH_PHASE_BACKWARD] = 3.0 * elements;
    return COH_OK;
}

/* A part of a row of qkv: q, k or v. */
static coh_rope part_of(const coh_rope_split_attributes *a, const coh_shape *qkv, int part,
                        size_t *out_begin_bytes)
{
    const int64_t H = a->rope.heads, G = a->kv_heads, D = qkv->dim[2] / (H + 2 * G);
    const int64_t before = part == 0 ? 0 : H + (part - 1) * G;
    *out_begin_bytes = (size_t)(before * D) * coh_dtype_bytes(qkv->dtype);
    return (coh_rope){
        .B = qkv->dim[0], .T = qkv->dim[1], .H = part == 0 ? H : G, .D = D, .dtype = qkv->dtype
    };
}

/* Moves a part; v by a rotation of 0, which is a copy. */
static void turn_part(const coh_call *call, int part, const coh_rope *rope)
{
    static const float still[COH_HEAD_WIDTH_MOST / 2];
    const coh_rope_split_attributes *a = call->attributes;
    coh_rope copy = *rope;
    copy.frequencies = still;
    copy.magnitude = 1.0f;
    if (part < 2)
        turn(call, &a->rope, *rope);
    else
        coh_kernel_rope(call->queue, &copy);
}

static coh_status take_apart(const coh_call *call, const int32_t *position)
{
    for (int part = 0; part < 3; part++) {
        size_t begin_bytes;
        coh_rope rope = part_of(call->attributes, &call->input[0].shape, part, &begin_bytes);
        rope.position = position;
        rope.x = (const char *)call->input[0].data + begin_bytes;
        rope.x_stride = call->input[0].shape.dim[2];
        rope.y = call->output[part].data;
        rope.y_stride = rope.H * rope.D;
        turn_part(call, part, &rope);
    }
    return COH_OK;
}

static coh_status forward_split(const coh_call *call)
{
    return take_apart(call, NULL);
}

/* Writes zeros where a part that nothing uses has no gradient. */
static void clear_unused(const coh_call *call)
{
    const coh_view *dx = &call->input_grad[0];
    const int64_t C = dx->shape.dim[2];
    const coh_blocks nothing = { .dtype = dx->shape.dtype,
                                 .outer = coh_shape_elements(&dx->shape) / C,
                                 .wide = C,
                                 .part_in = dx->data,
                                 .whole_out = dx->data,
                                 .clears = 1 };
    int unused = 0;
    for (int part = 0; part < 3; part++)
        unused += call->output_grad[part].data == NULL;
    if (unused > 0 && (call->input_grad_adds & 1u) == 0)
        coh_kernel_put_blocks(call->queue, &nothing);
}

static coh_status backward_split(const coh_call *call)
{
    if (call->input_grad[0].data == NULL)
        return COH_OK;
    clear_unused(call);
    for (int part = 0; part < 3; part++) {
        size_t begin_bytes;
        if (call->output_grad[part].data == NULL)
            continue;
        coh_rope rope = part_of(call->attributes, &call->input_grad[0].shape, part, &begin_bytes);
        rope.turns_back = 1;
        rope.adds = (call->input_grad_adds & 1u) != 0;
        rope.x = call->output_grad[part].data;
        rope.x_stride = rope.H * rope.D;
        rope.y = (char *)call->input_grad[0].data + begin_bytes;
        rope.y_stride = call->input_grad[0].shape.dim[2];
        turn_part(call, part, &rope);
    }
    return COH_OK;
}

const coh_op_kind coh_kind_rope_split = {
    COH_KIND("rope_split", 1),
    .input_count = 1,
    .output_count = 3,
    COH_KIND_GRADIENTS(1u, 0u),
    .infer = infer_split,
    COH_KIND_RUNS(forward_split, backward_split),
    .attribute_bytes = sizeof(coh_rope_split_attributes),
};

static coh_status infer_split_at(const void *attributes, const coh_shape *inputs,
                                 coh_op_facts *facts)
{
    const coh_rope_split_attributes *a = attributes;
    coh_status status = infer_split(attributes, inputs, facts);
    if (status == COH_OK)
        status = coh_check_step(&inputs[0], &inputs[1]);
    if (status == COH_OK)
        facts->index_range[1] = (coh_index_range){ .end = positions_most(&a->rope) };
    return status;
}

static coh_status forward_split_at(const coh_call *call)
{
    const coh_rope_split_attributes *a = call->attributes;
    const coh_status status = coh_check_position(call, 1, positions_most(&a->rope));
    return status == COH_OK ? take_apart(call, call->input[1].data) : status;
}

const coh_op_kind coh_kind_rope_split_at = {
    COH_KIND("rope_split_at", 1),
    .input_count = 2,
    .output_count = 3,
    .infer = infer_split_at,
    COH_KIND_RUNS(forward_split_at, NULL),
    .attribute_bytes = sizeof(coh_rope_split_attributes),
};
