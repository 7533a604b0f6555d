/* Opens cuBLASLt and binds its functions; no library is linked. Next: cublaslt.h,
 * memory/cuda_library.h; products.c uses it. */
#include "kernels/cuda/cublaslt.h"

#include "base/alloc.h"

coh_status coh_cublaslt_open(coh_cublaslt **out_library)
{
#define FUNCTION_NAME(name) #name,
    static const char *const names[] = { COH_CUBLASLT_FUNCTIONS(FUNCTION_NAME) };
#undef FUNCTION_NAME
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    _Static_assert(sizeof(coh_cublaslt_functions) == COUNT * sizeof(void *), "pointers in a row");
    coh_cublaslt *lt = NULL;
    coh_status status = COH_OK;
    *out_library = NULL;
    COH_TRY(COH_ALLOC(1, &lt));
    COH_TRY_GOTO(status,
                 coh_cuda_library_open("", &coh_cuda_library_cublaslt, &lt->library, lt->path),
                 fail);
    COH_TRY_GOTO(
        status,
        coh_cuda_library_bind(lt->library, &coh_cuda_library_cublaslt, names, COUNT, &lt->call),
        fail);
    *out_library = lt;
    return COH_OK;
fail:
    coh_cublaslt_close(lt);
    return status;
}

/* The library is not unloaded: it has registered functions with the driver and the C library that
 * are called at exit. */
void coh_cublaslt_close(coh_cublaslt *library)
{
    coh_free(library);
}
