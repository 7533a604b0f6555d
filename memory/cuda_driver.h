/* cuda_driver.h - the CUDA driver, found at run time.
 *
 * The one idea: nothing of CUDA is linked. cuda.h is read for its types, libcuda.so.1 is opened
 * when a device is asked for, and what is called stands in a table of functions. So the same
 * program runs where there is no driver, and a test brings a table of its own.
 *
 *     driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)      as it is in the manual
 *
 * cuda.h gives many functions the name of their newest version (cuMemAlloc is cuMemAlloc_v2): the
 * list goes through the same macros, so fields, calls and looked-up names agree.
 *
 * Threads: a table does not change once it is open. */
#ifndef COH_MEMORY_CUDA_DRIVER_H
#define COH_MEMORY_CUDA_DRIVER_H

#include <cuda.h>

#include "base/check.h"

/* X(name): all that this library calls. */
#define COH_CUDA_DRIVER_LIST(X)                                                                    \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceTotalMem)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuMemGetInfo)                                                                                \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemAllocHost)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostGetDevicePointer)                                                                   \
    X(cuMemHostRegister)                                                                           \
    X(cuMemHostUnregister)                                                                         \
    X(cuMemcpyAsync)                                                                               \
    X(cuMemsetD8Async)                                                                             \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamQuery)                                                                               \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamWaitValue64)                                                                         \
    X(cuStreamWriteValue64)                                                                        \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuFuncLoad)                                                                                  \
    X(cuFuncSetAttribute)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamEndCapture)                                                                          \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphDestroy)                                                                              \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphUpload)                                                                               \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)

typedef struct coh_cuda_driver {
#define COH_CUDA_DRIVER_FIELD(name) __typeof__(&name) name;
    COH_CUDA_DRIVER_LIST(COH_CUDA_DRIVER_FIELD)
#undef COH_CUDA_DRIVER_FIELD
} coh_cuda_driver;

/* Opens the machine's driver, checks its version and starts it. The caller closes it.
 * Fails: COH_ERR_DEVICE when there is none, it is older than the toolkit of this build, it lacks a
 * function, or finds no GPU; COH_ERR_MEMORY. */
coh_status coh_cuda_driver_open(coh_cuda_driver **out_driver);
void coh_cuda_driver_close(coh_cuda_driver *driver); /* accepts NULL */

/* COH_OK for CUDA_SUCCESS. Else fails with the sentence "<what>: CUDA_ERROR_X (what CUDA says)",
 * COH_ERR_MEMORY where memory ran out, COH_ERR_DEVICE for the rest. `what` begins with the function
 * that was called. An error that leaves the process without the GPU says so. */
coh_status coh_cuda_check(const coh_cuda_driver *driver, CUresult result, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

#endif
