/* cuda.h - enqueues a layer of your own on a GPU: the stream of a call, and what it is for.
 *
 *     coh_cuda_call on = { .struct_bytes = sizeof(on) };
 *     coh_status status = coh_cuda_begin(call, 1, &on);
 *     if (status == COH_OK && on.enqueues)
 *         gate<<<blocks, 256, 0, (cudaStream_t)on.stream>>>(...);
 *
 * The functions of devices[COH_DEVICE_CUDA] of a kind (model.h) are called on the host and enqueue
 * kernels. The one idea: the engine calls them for one of three purposes, and coh_cuda_begin
 * reports which.
 *
 *     rehearsal    before the first step: load kernels, make plans, enqueue nothing
 *     recording    the stream is being captured into a CUDA graph; later steps replay it
 *     otherwise    the work runs when the stream reaches it
 *
 * Rules, besides those of coh_kind_device:
 *   - The GPU's primary context is current; leave it so. It is the one of CUDA's runtime, so its
 *     kernels and libraries work on the stream without further calls.
 *   - Enqueue on this stream only. Never wait for it or for the device, never query it: that ends
 *     a recording. The functions are then called in every step.
 *   - The stream is captured in relaxed mode. A module that is loaded during a recording may still
 *     fail: load it in the rehearsal (cudaFuncGetAttributes loads a kernel).
 *   - A recorded kernel keeps its arguments. Pointers of the call stay right; a value that changes
 *     from step to step has to be read on the GPU (loss_factor_cell, random_cell).
 *   - Scratch is call->workspace, of the bytes that the kind names. Allocate nothing. Create
 *     handles of libraries in the rehearsal; give them the stream and the workspace in each call.
 *   - Add in a fixed order. A kind that adds by atomics sets `atomics` (model.h).
 *   - A failure is returned with a text (coh_kind_fail). It ends the recording, or else the step.
 *     After a launch, cudaGetLastError returns what the launch itself found.
 * Threads: the enqueuing thread, inside a call. */
#ifndef COHOBATE_CUDA_H
#define COHOBATE_CUDA_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Facts about one call on a GPU; valid during the call. `struct_bytes` is sizeof(coh_cuda_call). */
typedef struct coh_cuda_call {
    uint32_t struct_bytes;
    /* 0: enqueue nothing and return COH_OK, in a rehearsal and after the end of a run */
    int32_t enqueues;
    int32_t is_rehearsal;         /* 1: load and prepare whatever the first launch would */
    int32_t is_recording;         /* 1: the stream is being captured */
    void *stream;                 /* cudaStream_t and CUstream */
    int32_t device_index;         /* of the GPU, in the driver's order */
    int32_t multiprocessor_count; /* of this GPU, for the size of a grid */
} coh_cuda_call;

/* Begins the enqueuing of at most `command_count` (1 or more) kernels, copies and fills. May wait
 * until the stream has room for them, since the driver would block if its queue were full. A
 * function that enqueues more may call it again.
 * Fails: COH_ERR_ARGUMENT (not a call on a GPU, count below 1). */
COH_API coh_status coh_cuda_begin(const coh_call *call, int32_t command_count,
                                  coh_cuda_call *out_call);

#ifdef __cplusplus
}
#endif
#endif
