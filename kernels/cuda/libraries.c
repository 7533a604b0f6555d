/* Opens cuBLASLt and cuDNN and binds their functions; no library is linked. Next: cublaslt.h,
 * cudnn.h, memory/cuda_library.h; products.c and cudnn_graph.c use them. */
#include "base/alloc.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cudnn.h"

#define FUNCTION_NAME(name) #name,
#define COUNT(names)        (sizeof(names) / sizeof((names)[0]))

/* Opens a library. `names` are those of the pointers in `out_functions`. */
static coh_status open_library(const coh_cuda_library_name *one, const char *const *names,
                               size_t count, void **out_library, char *out_path,
                               void *out_functions)
{
    COH_TRY(coh_cuda_library_open("", one, out_library, out_path));
    return coh_cuda_library_bind(*out_library, one, names, count, out_functions);
}

coh_status coh_cublaslt_open(coh_cublaslt **out_library)
{
    static const char *const names[] = { COH_CUBLASLT_FUNCTIONS(FUNCTION_NAME) };
    _Static_assert(sizeof(coh_cublaslt_functions) == sizeof(names), "pointers in a row");
    coh_cublaslt *lt = NULL;
    *out_library = NULL;
    COH_TRY(COH_ALLOC(1, &lt));
    const coh_status status = open_library(&coh_cuda_library_cublaslt, names, COUNT(names),
                                           &lt->library, lt->path, &lt->call);
    if (status == COH_OK)
        *out_library = lt;
    else
        coh_cublaslt_close(lt);
    return status;
}

/* A library is not unloaded: it has registered functions with the driver and the C library that are
 * called at exit. */
void coh_cublaslt_close(coh_cublaslt *library)
{
    coh_free(library);
}

coh_status coh_cudnn_open(coh_cudnn **out_library)
{
    static const char *const names[] = { COH_CUDNN_FUNCTIONS(FUNCTION_NAME) };
    _Static_assert(sizeof(coh_cudnn_functions) == sizeof(names), "pointers in a row");
    coh_cudnn *dnn = NULL;
    *out_library = NULL;
    COH_TRY(COH_ALLOC(1, &dnn));
    const coh_status status = open_library(&coh_cuda_library_cudnn, names, COUNT(names),
                                           &dnn->library, dnn->path, &dnn->call);
    if (status == COH_OK)
        *out_library = dnn;
    else
        coh_cudnn_close(dnn);
    return status;
}

void coh_cudnn_close(coh_cudnn *library)
{
    coh_free(library);
}
