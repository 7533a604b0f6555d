/* gate_kind.c - wraps the existing layer: the functions of the CPU by COH_LAYER, those of the GPU
 * in devices[COH_DEVICE_CUDA]. */
#include "gate_kind.h"

#include <cohobate/cuda.h>
#include <cohobate/layer.h>

#include "gate.h"

#define FORWARD(call)                                                                              \
    call->output[0].data, call->input[0].data, call->parameter[0].data, call->parameter[1].data,   \
        rows_of(call), call->input[0].shape.dim[call->input[0].shape.rank - 1]
#define BACKWARD(call)                                                                             \
    call->input_grad[0].data, call->parameter_grad[0].data, call->parameter_grad[1].data,          \
        call->output_grad[0].data, call->input[0].data, call->parameter[0].data,                   \
        call->parameter[1].data, rows_of(call),                                                    \
        call->input[0].shape.dim[call->input[0].shape.rank - 1]

static int64_t rows_of(const coh_call *call)
{
    const coh_shape *shape = &call->input[0].shape;
    return coh_shape_elements(shape) / shape->dim[shape->rank - 1];
}

/* ---- on the CPU ---- */

static coh_status forward(const coh_call *call)
{
    gate_forward(FORWARD(call));
    return COH_OK;
}

static coh_status backward(const coh_call *call)
{
    gate_backward(BACKWARD(call));
    return COH_OK;
}

COH_LAYER(host_gate, "mine.gate", 1, 2, forward, backward,
          .parameter = { { "gate", { -1 }, COH_INIT_ONE }, { "shift", { -1 } } });

/* ---- on a GPU: a rehearsal loads the kernels, every other call launches one ---- */

static coh_status answer(const char *failure)
{
    return failure ? coh_kind_fail(COH_ERR_DEVICE, "gate: %s", failure) : COH_OK;
}

static coh_status forward_cuda(const coh_call *call)
{
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    const coh_status status = coh_cuda_begin(call, 1, &on);
    if (status != COH_OK || !on.enqueues)
        return status == COH_OK && on.is_rehearsal ? answer(gate_load_cuda()) : status;
    return answer(gate_forward_cuda(FORWARD(call), on.stream));
}

static coh_status backward_cuda(const coh_call *call)
{
    coh_cuda_call on = { .struct_bytes = sizeof(on) };
    const coh_status status = coh_cuda_begin(call, 1, &on);
    if (status != COH_OK || !on.enqueues)
        return status;
    return answer(gate_backward_cuda(BACKWARD(call), on.stream));
}

coh_op_kind gate_kind(void)
{
    coh_op_kind kind = host_gate;
    kind.devices[COH_DEVICE_CUDA].forward = forward_cuda;
    kind.devices[COH_DEVICE_CUDA].backward = backward_cuda;
    return kind;
}
