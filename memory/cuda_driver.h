/* cuda_driver.h - the CUDA driver, loaded at run time.
 *
 * The one idea: nothing of CUDA is linked. The build needs cuda.h only for types; libcuda.so.1 is
 * opened when a device is requested, and its functions are called through a table. So the same
 * binary runs without a driver, and a test can supply its own table.
 *
 *     driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)      as in CUDA's manual
 *
 * cuda.h renames many functions to their newest version (cuMemAlloc is cuMemAlloc_v2). The list
 * below goes through the same macros, so fields, calls and looked-up names agree.
 *
 * Threads: any; an open table does not change. */
#ifndef COH_MEMORY_CUDA_DRIVER_H
#define COH_MEMORY_CUDA_DRIVER_H

#include <cuda.h>

#include "base/check.h"

/* X(name): all functions that this library calls. */
#define COH_CUDA_DRIVER_LIST(X)                                                                    \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetPCIBusId)                                                                         \
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
    X(cuEventQuery)                                                                                \
    X(cuEventElapsedTime)                                                                          \
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

/* Opens the machine's driver, checks its version and initialises it. The caller closes it.
 * Fails: COH_ERR_DEVICE if there is no driver, it is older than the toolkit of this build, lacks a
 * function, or finds no GPU; COH_ERR_MEMORY. */
coh_status coh_cuda_driver_open(coh_cuda_driver **out_driver);
void coh_cuda_driver_close(coh_cuda_driver *driver); /* accepts NULL */

/* Returns COH_OK for CUDA_SUCCESS. Else fails with the text "<what>: CUDA_ERROR_X (CUDA's
 * description)": COH_ERR_MEMORY if memory ran out, COH_ERR_DEVICE otherwise. `what` begins with the
 * name of the called function. If the error makes the GPU unusable for this process, the text says
 * so. */
coh_status coh_cuda_check(const coh_cuda_driver *driver, CUresult result, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

#endif
