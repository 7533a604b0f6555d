/* fake_cudnn.h - a cuDNN that runs on the host: it takes any graph for attention of the tensors in
 * it, by the names that cudnn_graph.c gives them, and computes that by plain loops when a plan is
 * executed. So it shows that tensors are described, cut and addressed as they stand in memory, and
 * that scratch is where nothing else is; what operations mean is cuDNN's to say
 * (test_cudnn_graphs.c). */
#ifndef COH_TESTS_CUDA_FAKE_CUDNN_H
#define COH_TESTS_CUDA_FAKE_CUDNN_H

#include "kernels/cuda/cudnn.h"

extern const coh_cudnn_functions fake_cudnn;

/* Plans executed so far. */
extern int fake_cudnn_executed;

#endif
