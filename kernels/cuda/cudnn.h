/* cudnn.h - cuDNN as a table of functions, loaded when a device is made, and attention as graphs of
 * its C backend API, each planned once.
 *
 *    a shape --graph--> operations --heuristics--> an engine --finalize--> a plan --execute--> y
 *
 * cudnn_graph.h is included only for its types; no library is linked. attention_cudnn.h decides
 * which shapes go to cuDNN and how they are cut. Planning takes milliseconds to seconds and
 * allocates; executing does neither, except the first time with each set of addresses. */
#ifndef COH_KERNELS_CUDA_CUDNN_H
#define COH_KERNELS_CUDA_CUDNN_H

#include <cudnn_graph.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "memory/cuda_library.h"

#define COH_CUDNN_FUNCTIONS(X)                                                                     \
    X(cudnnGetVersion)                                                                             \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

/* Function pointers, each with its function's name and type. */
typedef struct coh_cudnn_functions {
#define COH_CUDNN_POINTER(name) __typeof__(name) *name;
    COH_CUDNN_FUNCTIONS(COH_CUDNN_POINTER)
#undef COH_CUDNN_POINTER
} coh_cudnn_functions;

typedef struct coh_cudnn {
    coh_cudnn_functions call;
    void *library;
    char path[COH_CUDA_LIBRARY_PATH_BYTES];
} coh_cudnn;

/* Finds and opens the library (memory/cuda_library.h says where). This needs no device, but making
 * a handle does. Fails: COH_ERR_DEVICE if it is not installed, with the package to install;
 * COH_ERR_IO and COH_ERR_CORRUPT if it cannot be used; COH_ERR_MEMORY. */
coh_status coh_cudnn_open(coh_cudnn **out_library);
void coh_cudnn_close(coh_cudnn *library); /* accepts NULL; destroy its handles first */

/* The key of a plan: attention of this many sequences and heads (coh_attention's letters and
 * strides; y and dy rows are y_stride elements apart). */
typedef struct coh_cudnn_shape {
    int64_t B, T, H, G, D, q_stride, kv_stride, y_stride;
    /* 64 bits like the rest: shapes are compared as bytes */
    int64_t is_backward;
    int64_t atomics; /* 1: backward adds up dq by atomics; bits vary */
} coh_cudnn_shape;

/* The device of a plan: a handle of the device that it will run on, or a description of a device
 * (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finalized). One of the two is NULL. */
typedef struct coh_cudnn_target {
    const coh_cudnn_functions *call;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
} coh_cudnn_target;

/* Addresses of a plan's tensors; those of the other phase are NULL. */
typedef struct coh_cudnn_tensors {
    const void *q, *k, *v, *dy;
    void *y, *dq, *dk, *dv;
    float *statistics; /* [B,H,T] log-sum-exp */
    float *delta;      /* [B,H,T] scratch */
    float *dq_sum;     /* [B,H,T,D] scratch for atomics, cleared by cuDNN; else NULL */
    void *workspace;
} coh_cudnn_tensors;

typedef struct coh_cudnn_plan coh_cudnn_plan;

/* Makes a plan. *out_plan is NULL if no engine takes the shape; *out_refusal is then cuDNN's
 * message (in cuDNN's memory). Fails: COH_ERR_MEMORY; COH_ERR_DEVICE for any other problem. The
 * caller must not fall back to other kernels then, because the bits would change. */
coh_status coh_cudnn_plan_create(const coh_cudnn_target *target, const coh_cudnn_shape *shape,
                                 coh_cudnn_plan **out_plan, const char **out_refusal);
void coh_cudnn_plan_destroy(coh_cudnn_plan *plan); /* accepts NULL */
size_t coh_cudnn_plan_workspace(const coh_cudnn_plan *plan);

/* Returns 1 if the plan was executed before, so that its kernels are on the device; the first time
 * loads them. */
int coh_cudnn_plan_has_run(const coh_cudnn_plan *plan);

/* Prepares an execution with these addresses; new addresses allocate. */
cudnnStatus_t coh_cudnn_plan_prepare(coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors);

/* Enqueues the plan on the handle's stream, prepared or not; returns cuDNN's status. */
cudnnStatus_t coh_cudnn_plan_execute(coh_cudnn_plan *plan, const coh_cudnn_tensors *tensors);

#endif
