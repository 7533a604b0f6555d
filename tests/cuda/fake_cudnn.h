/* fake_cudnn.h - a cuDNN that runs on the host. It treats any graph as attention over its tensors,
 * identified by the names of cudnn_graph.c, and computes that in plain loops when a plan is
 * executed.
 *
 * It shows that tensors are described, cut and addressed as they are stored, and that scratch
 * overlaps nothing else. It does not show the meaning of operations; cuDNN defines that
 * (test_cudnn_graphs.c). */
#ifndef COH_TESTS_CUDA_FAKE_CUDNN_H
#define COH_TESTS_CUDA_FAKE_CUDNN_H

#include "kernels/cuda/cudnn.h"

extern const coh_cudnn_functions fake_cudnn;

enum { FAKE_CUDNN_STATUSES = 8 };

typedef struct fake_cudnn_state {
    size_t version;
    int executed;              /* number of plans */
    int live;                  /* number of descriptors */
    int calls;                 /* number of fallible calls */
    int fail_nth;              /* the n-th of them since the reset fails; 0: none */
    cudnnStatus_t fail_with;   /* the status that it returns */
    int candidates, finalized; /* engines that the heuristics name; plans that were finalized */
    cudnnStatus_t finalize_with[FAKE_CUDNN_STATUSES]; /* status of the first finalized plans */
} fake_cudnn_state;
extern fake_cudnn_state fake_dnn;

/* Resets to the oldest supported version, one candidate, no failure. */
void fake_cudnn_reset(void);

#endif
