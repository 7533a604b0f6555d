/* gpu_whole.h - a pass of attention by cuDNN called directly: one plan for the whole shape, with
 * all the workspace that it wants. The reference for coh_attention, which splits the backward pass
 * (kernels/cuda/attention_scratch.h).
 *
 *     COH_TRY(gpu_whole_open(&turns, &call, is_backward, bytes, &whole));
 *     gpu_side side = { gpu_whole_enqueue, &whole };          where whole.plan is not NULL */
#ifndef COH_BENCHMARKS_GPU_WHOLE_H
#define COH_BENCHMARKS_GPU_WHOLE_H

#include "benchmarks/gpu_turns.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/kernels.h"

typedef struct gpu_whole {
    gpu_turns *turns;
    const coh_attention *call;
    size_t scratch_bytes;
    int is_backward;
    coh_cudnn *library;
    cudnnHandle_t handle;
    coh_cudnn_plan *plan; /* NULL: none, for this reason: */
    char refusal[160];
    coh_cudnn_tensors tensors;
} gpu_whole;

/* `call` must outlive the object; its scratch has `scratch_bytes`, part of which are the plan's
 * workspace. Having no plan is not an error. Errors: COH_ERR_DEVICE, COH_ERR_MEMORY;
 * gpu_whole_close frees what was made. */
coh_status gpu_whole_open(gpu_turns *turns, const coh_attention *call, int is_backward,
                          size_t scratch_bytes, gpu_whole *out_whole);
void gpu_whole_close(gpu_whole *whole);

/* Work of a gpu_side; the context is the gpu_whole. A failure is kept in the queue. */
void gpu_whole_enqueue(void *whole, uint64_t number, uint32_t index);

#endif
