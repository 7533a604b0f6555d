/* stray.h - a scaled copy whose forward writes where a test says, from its workspace on. */
#ifndef COH_TESTS_ENGINE_STRAY_H
#define COH_TESTS_ENGINE_STRAY_H

#include <string.h>

#include "cohobate/model.h"

enum { STRAY_ITEMS = 91, STRAY_SCRATCH = 64 };

/* `bytes` at `from` of the workspace, which has STRAY_SCRATCH. */
static struct {
    int64_t from, bytes;
} stray;

static coh_status stray_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){ .name = "w",
                                                 .shape = { COH_DTYPE_F32, 1, { 1 } },
                                                 .init = COH_INIT_ONE };
    facts->workspace_bytes[COH_PHASE_FORWARD] = STRAY_SCRATCH;
    return COH_OK;
}

static coh_status stray_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    for (int i = 0; i < STRAY_ITEMS; i++)
        ((float *)call->output[0].data)[i] = x[i] * w[0];
    memset((char *)call->workspace + stray.from, 0x11, (size_t)stray.bytes);
    return COH_OK;
}

static coh_status stray_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, sum = 0;
    for (int i = 0; i < STRAY_ITEMS; i++) {
        sum += x[i] * dy[i];
        if (dx != NULL)
            dx[i] = w[0] * dy[i];
    }
    *(float *)call->parameter_grad[0].data = sum;
    return COH_OK;
}

static const coh_op_kind stray_kind = { .struct_bytes = sizeof(coh_op_kind),
                                        .abi_version = COH_KIND_ABI,
                                        .name = "test.stray",
                                        .revision = 1,
                                        .input_count = 1,
                                        .output_count = 1,
                                        .parameter_count = 1,
                                        .can_skip_grad = { .inputs = 1 },
                                        .backward_reads = { .inputs = 1, .parameters = 1 },
                                        .infer = stray_infer,
                                        .devices = { [COH_DEVICE_HOST] = { stray_forward,
                                                                           stray_backward } } };

#endif
