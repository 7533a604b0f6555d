/* fake_cudnn.h - a cuDNN that runs on the host: it takes any graph for attention of the tensors in
 * it, by the names that cudnn_graph.c gives them, and computes that by plain loops when a plan is
 * executed. So it shows that tensors are described, cut and addressed as they stand in memory, and
 * that scratch is where nothing else is; what operations mean is cuDNN's to say
 * (test_cudnn_graphs.c). */
#ifndef COH_TESTS_CUDA_FAKE_CUDNN_H
#define COH_TESTS_CUDA_FAKE_CUDNN_H

#include "kernels/cuda/cudnn.h"

extern const coh_cudnn_functions fake_cudnn;

enum { FAKE_CUDNN_STATUSES = 8 };

typedef struct fake_cudnn_state {
    size_t version;
    int executed;              /* plans */
    int live;                  /* descriptors */
    int calls;                 /* that may fail */
    int fail_nth;              /* of them, from the reset on; 0: none */
    cudnnStatus_t fail_with;   /* what that one returns */
    int candidates, finalized; /* engines that the heuristics name; plans that were asked for */
    cudnnStatus_t finalize_with[FAKE_CUDNN_STATUSES]; /* what the first of those asked for return */
} fake_cudnn_state;
extern fake_cudnn_state fake_dnn;

/* The oldest version that is used, one candidate, nothing fails. */
void fake_cudnn_reset(void);

#endif
