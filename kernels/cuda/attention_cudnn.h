/* attention_cudnn.h - attention by cuDNN's plans, if the library is installed and takes the shape:
 * bf16 heads on 16-byte boundaries, more than one token, no dropout, no window, no cap, scores
 * scaled by 1 / sqrt(D); for backward, all three gradients are wanted and none adds. Our own
 * kernels (attention.c) run all other cases. They also run shapes for which cuDNN has no engine,
 * which is logged. Any other failure of cuDNN is an error.
 *
 * Its fastest backward adds up dq by atomics, in another order each time. It is used if
 * coh_attention's `atomics` allows it and dq does not share memory with dy. Otherwise the backward
 * without atomics runs, which gives the same bits in each run and is cut as attention_scratch.h
 * says.
 *
 * Threads: the one that enqueues. A new shape must be planned, which allocates: plan all shapes at
 * start, by a rehearsal (memory/cuda_queue.h). */
#ifndef COH_KERNELS_CUDA_ATTENTION_CUDNN_H
#define COH_KERNELS_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/cudnn.h"
#include "kernels/kernels.h"

typedef struct coh_attention_plans coh_attention_plans;

typedef struct coh_attention_plans_config {
    const coh_cudnn_functions *call; /* must outlive the plans */
    cudnnHandle_t handle;            /* its stream is the queue's */
    /* Device memory for forward plans, 256-byte aligned, not shared with another stream. Plans have
     * been seen to want 256 bytes. */
    void *workspace;
    size_t workspace_bytes;
    /* Receives one sentence for each shape that cuDNN refuses; may be NULL. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
} coh_attention_plans_config;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_attention_plans_create(const coh_attention_plans_config *config,
                                      coh_attention_plans **out_plans);
void coh_attention_plans_destroy(coh_attention_plans *plans); /* accepts NULL */

/* Returns the number of passes and shapes that cuDNN has a plan for. */
int64_t coh_attention_plans_count(const coh_attention_plans *plans);

/* Enqueues the pass on a coh_cuda_queue and returns 1. Returns 0 and enqueues nothing if cuDNN does
 * not take it. In a rehearsal it makes the pass's plan, and runs a new one. A failure is kept in
 * the queue. Backward's scratch: attention_scratch.h. */
int coh_cudnn_attention(void *queue, const coh_attention *attention);
int coh_cudnn_attention_backward(void *queue, const coh_attention *attention);

#endif
