/* attention_cudnn.h - attention by cuDNN's plans, where the library is there and takes the shape:
 * bf16 heads that stand on 16 bytes, of more than one token, without dropout; backward, all three
 * gradients are wanted and none adds. The rest is the own kernels' (attention.c). A shape that
 * cuDNN has no engine for is theirs too, and said; whatever else it fails with is an error.
 *
 * Its fastest backward adds up dq by atomics, in another order each time. It is used where
 * coh_attention's `atomics` says so and dq does not stand in dy's place; else a run makes the same
 * bits each time, by the one without them, which is cut as attention_scratch.h says.
 *
 * Threads: the one that enqueues. A shape that is new is planned, which allocates: make all of them
 * at start, by a rehearsal (memory/cuda_queue.h). */
#ifndef COH_KERNELS_CUDA_ATTENTION_CUDNN_H
#define COH_KERNELS_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/cudnn.h"
#include "kernels/kernels.h"

typedef struct coh_attention_plans coh_attention_plans;

typedef struct coh_attention_plans_config {
    const coh_cudnn_functions *call; /* must outlive the plans */
    cudnnHandle_t handle;            /* its stream is the queue's */
    /* Memory of the device for forward plans, on a boundary of 256 bytes: no other stream's. 256
     * bytes are what they have been seen to want. */
    void *workspace;
    size_t workspace_bytes;
    /* Gets a sentence for each shape that cuDNN refuses, once; may be NULL. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
} coh_attention_plans_config;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_attention_plans_create(const coh_attention_plans_config *config,
                                      coh_attention_plans **out_plans);
void coh_attention_plans_destroy(coh_attention_plans *plans); /* accepts NULL */

/* Passes of shapes that were asked for and cuDNN has a plan of. */
int64_t coh_attention_plans_count(const coh_attention_plans *plans);

/* Enqueues the pass on a coh_cuda_queue and returns 1; 0, and nothing is enqueued, where it is not
 * cuDNN's. In a rehearsal it makes the pass's plan, and runs one that is new. A failure is kept in
 * the queue. Backward's scratch: attention_scratch.h. */
int coh_cudnn_attention(void *queue, const coh_attention *attention);
int coh_cudnn_attention_backward(void *queue, const coh_attention *attention);

#endif
