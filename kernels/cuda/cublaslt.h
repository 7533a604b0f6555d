/* cublaslt.h - cuBLASLt as a table of functions, loaded when a device is made.
 *
 *    coh_cublaslt *lt;
 *    COH_TRY(coh_cublaslt_open(&lt));
 *    lt->call.cublasLtCreate(&handle) ...
 *
 * cublasLt.h is included only for its types; no library is linked. A test passes a table of
 * fakes. */
#ifndef COH_KERNELS_CUDA_CUBLASLT_H
#define COH_KERNELS_CUDA_CUBLASLT_H

#include <cublasLt.h>

#include "base/check.h"
#include "memory/cuda_library.h"

#define COH_CUBLASLT_FUNCTIONS(X)                                                                  \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmul)

/* Function pointers, each with its function's name and type. */
typedef struct coh_cublaslt_functions {
#define COH_CUBLASLT_POINTER(name) __typeof__(name) *name;
    COH_CUBLASLT_FUNCTIONS(COH_CUBLASLT_POINTER)
#undef COH_CUBLASLT_POINTER
} coh_cublaslt_functions;

typedef struct coh_cublaslt {
    coh_cublaslt_functions call;
    void *library;
    char path[COH_CUDA_LIBRARY_PATH_BYTES];
} coh_cublaslt;

/* Finds and opens the library (memory/cuda_library.h says where). This needs no device, but making
 * a handle does. Fails: COH_ERR_DEVICE if it is not installed, with the package to install;
 * COH_ERR_IO and COH_ERR_CORRUPT if it cannot be used; COH_ERR_MEMORY. */
coh_status coh_cublaslt_open(coh_cublaslt **out_library);
void coh_cublaslt_close(coh_cublaslt *library); /* accepts NULL; destroy its handles first */

#endif
