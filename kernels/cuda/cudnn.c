/* Opens cuDNN and binds its functions; no library is linked. Next: cudnn.h, memory/cuda_library.h;
 * cudnn_graph.c uses it. */
#include "kernels/cuda/cudnn.h"

#include "base/alloc.h"

coh_status coh_cudnn_open(coh_cudnn **out_library)
{
#define FUNCTION_NAME(name) #name,
    static const char *const names[] = { COH_CUDNN_FUNCTIONS(FUNCTION_NAME) };
#undef FUNCTION_NAME
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    _Static_assert(sizeof(coh_cudnn_functions) == COUNT * sizeof(void *), "pointers in a row");
    coh_cudnn *dnn = NULL;
    coh_status status = COH_OK;
    *out_library = NULL;
    COH_TRY(COH_ALLOC(1, &dnn));
    COH_TRY_GOTO(
        status, coh_cuda_library_open("", &coh_cuda_library_cudnn, &dnn->library, dnn->path), fail);
    COH_TRY_GOTO(
        status,
        coh_cuda_library_bind(dnn->library, &coh_cuda_library_cudnn, names, COUNT, &dnn->call),
        fail);
    *out_library = dnn;
    return COH_OK;
fail:
    coh_cudnn_close(dnn);
    return status;
}

/* The library is not unloaded: it has registered functions with the driver and the C library that
 * are called at exit. */
void coh_cudnn_close(coh_cudnn *library)
{
    coh_free(library);
}
