/* The operator kinds of RoPE, for whole sequences and for one step of a decoder, and the scalings
 * of its frequencies. Next: kernels.h (coh_rope), cohobate/kinds.h for the attributes. */
#include "cohobate/kinds.h"

#include <inttypes.h>
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/kind.h"

#define TURN       6.283185307179586 /* 2 pi */
#define ANGLE_MOST 0x1p31

static coh_status check_scaling(const coh_rope_attributes *a)
{
    if (a->scaling < COH_ROPE_UNSCALED || a->scaling > COH_ROPE_LLAMA3)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "scaling %" PRId32 " is unknown: none, linear and llama3 are possible",
                             a->scaling);
    if (!isfinite(a->factor) || !isfinite(a->low_frequency) || !isfinite(a->high_frequency))
        return coh_kind_fail(
            COH_ERR_SHAPE, "factor %g, low_frequency %g or high_frequency %g is not finite",
            (double)a->factor, (double)a->low_frequency, (double)a->high_frequency);
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
    return coh_check_count("original_positions", a->original_positions);
}

/* Returns how many positions have angles below 2^31, the limit of the kernel's cosines. No pair
 * rotates faster than 1 per position, except with a factor below 1. */
static int64_t positions_most(const coh_rope_attributes *a)
{
    const double factor = a->scaling == COH_ROPE_UNSCALED ? 1.0 : (double)a->factor;
    return (int64_t)(factor < 1.0 ? factor * ANGLE_MOST : ANGLE_MOST);
}

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const coh_rope_attributes *a = attributes;
    coh_status status = coh_check_float("x", &inputs[0], 3);
    if (status == COH_OK)
        status = coh_check_count("heads", a->heads);
    if (status != COH_OK)
        return status;
    if (inputs[0].dim[2] % (2 * a->heads) != 0)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "x has %" PRId64 " channels: %" PRId64
                             " heads of an even number each are needed",
                             inputs[0].dim[2], a->heads);
    if (inputs[0].dim[2] / a->heads > COH_HEAD_WIDTH_MOST)
        return coh_kind_fail(COH_ERR_SHAPE,
                             "heads of %" PRId64 " channels: at most %d are possible",
                             inputs[0].dim[2] / a->heads, COH_HEAD_WIDTH_MOST);
    if (!(a->theta >= 1.0 && a->theta <= COH_ROPE_THETA_MOST))
        return coh_kind_fail(COH_ERR_SHAPE, "theta is %g: 1 to 2^100 is possible", a->theta);
    status = check_scaling(a);
    if (status != COH_OK)
        return status;
    if (inputs[0].dim[1] > positions_most(a))
        return coh_kind_fail(COH_ERR_SHAPE,
                             "a sequence of %" PRId64 " tokens, with turns scaled by %g: up to "
                             "%" PRId64 " are possible",
                             inputs[0].dim[1], (double)a->factor, positions_most(a));
    facts->output[0] = inputs[0];
    const double elements = (double)coh_shape_elements(&inputs[0]);
    facts->flops[COH_PHASE_FORWARD] = 3.0 * elements;
    facts->flops[COH_PHASE_BACKWARD] = 3.0 * elements;
    return COH_OK;
}

/* With f the unscaled frequency, original_positions f / (2 pi) is how often a pair rotates within
 * the model's original context length. */
static double scaled(const coh_rope_attributes *a, double frequency)
{
    const double low = (double)a->low_frequency, high = (double)a->high_frequency;
    const double turns = (double)a->original_positions * frequency / TURN;
    if (a->scaling == COH_ROPE_UNSCALED || (a->scaling == COH_ROPE_LLAMA3 && turns > high))
        return frequency;
    if (a->scaling == COH_ROPE_LINEAR || turns < low)
        return frequency / (double)a->factor;
    const double kept = (turns - low) / (high - low);
    return (1.0 - kept) * frequency / (double)a->factor + kept * frequency;
}

/* Rounds to float where the models' own code does: the exponent, the power, the scaled value. */
static void make_frequencies(const coh_rope_attributes *a, float *frequencies, int64_t D)
{
    for (int64_t c = 0; c < D / 2; c++) {
        const float exponent = (float)(2 * c) / (float)D;
        const float frequency = 1.0f / (float)pow(a->theta, (double)exponent);
        frequencies[c] = (float)scaled(a, (double)frequency);
    }
}

static coh_status turn(const coh_call *call, const coh_view *x, const coh_view *y, coh_rope rope)
{
    const coh_rope_attributes *a = call->attributes;
    float frequencies[COH_HEAD_WIDTH_MOST / 2];
    rope.B = x->shape.dim[0];
    rope.T = x->shape.dim[1];
    rope.H = a->heads;
    rope.D = x->shape.dim[2] / a->heads;
    rope.dtype = x->shape.dtype;
    rope.frequencies = frequencies;
    rope.x = x->data;
    rope.y = y->data;
    make_frequencies(a, frequencies, rope.D);
    coh_kernel_rope(call->queue, &rope);
    return COH_OK;
}

static coh_status forward(const coh_call *call)
{
    return turn(call, &call->input[0], &call->output[0], (coh_rope){ 0 });
}

static coh_status backward(const coh_call *call)
{
    const coh_rope back = { .turns_back = 1, .adds = (call->input_grad_adds & 1u) != 0 };
    if (call->input_grad[0].data == NULL)
        return COH_OK;
    return turn(call, &call->output_grad[0], &call->input_grad[0], back);
}

const coh_op_kind coh_kind_rope = {
    COH_KIND("rope", 1),
    .input_count = 1,
    .output_count = 1,
    COH_KIND_GRADIENTS(1u, 0u),
    COH_KIND_IN_PLACE,
    .split_axes = 1u,
    .infer = infer,
    COH_KIND_RUNS(forward, backward),
    .attribute_bytes = sizeof(coh_rope_attributes),
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
    return turn(call, &call->input[0], &call->output[0], at);
}

const coh_op_kind coh_kind_rope_at = {
    COH_KIND("rope_at", 1),
    .input_count = 2,
    .output_count = 1,
    .forward_in_place = { { 0, 0 } },
    .in_place_count = { 1, 0 },
    .infer = infer_at,
    COH_KIND_RUNS(forward_at, NULL),
    .attribute_bytes = sizeof(coh_rope_attributes),
};
