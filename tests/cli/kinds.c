/* A shared library of kinds, as a user makes one, for cohobate check-kind: a right one, one with
 * attributes, one with a wrong sign, one that crashes, and one that hangs. */
#include <cohobate/cohobate.h>

#include <unistd.h>

typedef struct power_attributes {
    float factor;
} power_attributes;
COH_API const power_attributes twice = { 2.0f }, broken = { -1.0f };

/* y = w x², by channel */
static coh_status square_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        ((float *)call->output[0].data)[i] = w[i % width] * x[i] * x[i];
    return COH_OK;
}

static coh_status back(const coh_call *call, float sign)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dw = call->parameter_grad[0].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    for (int64_t c = 0; c < width; c++)
        dw[c] = 0;
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        dx[i] = sign * 2.0f * w[i % width] * x[i] * dy[i];
        dw[i % width] += x[i] * x[i] * dy[i];
    }
    return COH_OK;
}

static coh_status square_backward(const coh_call *call)
{
    return back(call, 1.0f);
}

static coh_status wrong_backward(const coh_call *call)
{
    return back(call, -1.0f);
}

static coh_status crash(const coh_call *call)
{
    *(volatile float *)call->parameter_grad[0].data = 1.0f;
    return COH_OK;
}

/* Says that it was called, and never returns. */
static coh_status hang(const coh_call *call)
{
    (void)call;
    (void)!write(STDERR_FILENO, "hangs\n", 6);
    while (pause() == -1) /* as it always does */
        continue;
    return COH_OK;
}

#define WEIGHT .parameter = { { "w", { -1 }, COH_INIT_ONE } }
COH_LAYER(square, "test.square", 1, 1, square_forward, square_backward, WEIGHT);
COH_LAYER(wrong, "test.wrong", 1, 1, square_forward, wrong_backward, WEIGHT);
COH_LAYER(hanging, "test.hanging", 1, 1, hang, square_backward, WEIGHT);
COH_LAYER(crashing, "test.crashing", 1, 1, crash, square_backward, WEIGHT);

static coh_status scaled_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    const power_attributes *a = attributes;
    facts->output[0] = inputs[0];
    return a->factor > 0 ? COH_OK
                         : coh_kind_fail(COH_ERR_SHAPE, "a factor of %g", (double)a->factor);
}

static coh_status scaled_forward(const coh_call *call)
{
    const power_attributes *a = call->attributes;
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        ((float *)call->output[0].data)[i] = a->factor * ((const float *)call->input[0].data)[i];
    return COH_OK;
}

static coh_status scaled_backward(const coh_call *call)
{
    const power_attributes *a = call->attributes;
    for (int64_t i = 0; i < coh_shape_elements(&call->output_grad[0].shape); i++)
        ((float *)call->input_grad[0].data)[i] =
            a->factor * ((const float *)call->output_grad[0].data)[i];
    return COH_OK;
}

COH_API const coh_op_kind scaled = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.scaled",
    .input_count = 1,
    .output_count = 1,
    .infer = scaled_infer,
    .attribute_bytes = sizeof(power_attributes),
    .devices = { [COH_DEVICE_HOST] = { .forward = scaled_forward, .backward = scaled_backward } },
};
