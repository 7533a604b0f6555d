/* libcudnn.so.9 for the GPU that emulated_gpu.c plays: the fake, under the library's names, with
 * the handles that it lacks.
 *
 * Like played_cublaslt.c it computes at once when work is enqueued. */
#include "tests/cuda/fake_cudnn.h"

#define EXPORT(name)                                                                               \
    __attribute__((used)) static __typeof__(&name) resolve_##name(void)                            \
    {                                                                                              \
        return fake_cudnn.name;                                                                    \
    }                                                                                              \
    __typeof__(name) name __attribute__((ifunc("resolve_" #name)));
EXPORT(cudnnGetVersion)
EXPORT(cudnnGetErrorString)
EXPORT(cudnnBackendCreateDescriptor)
EXPORT(cudnnBackendDestroyDescriptor)
EXPORT(cudnnBackendSetAttribute)
EXPORT(cudnnBackendGetAttribute)
EXPORT(cudnnBackendFinalize)
EXPORT(cudnnBackendExecute)

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    static int made;
    *handle = (cudnnHandle_t)(void *)&made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUDNN_STATUS_SUCCESS;
}
