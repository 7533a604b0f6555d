/* libraries.h - the NVIDIA libraries of a CUDA queue: objects that belong to its stream. NULL: the
 * library is not installed, or not used. */
#ifndef COH_KERNELS_CUDA_LIBRARIES_H
#define COH_KERNELS_CUDA_LIBRARIES_H

typedef struct coh_cuda_libraries {
    struct coh_cuda_products *products;    /* products.h */
    struct coh_attention_plans *attention; /* attention_cudnn.h */
} coh_cuda_libraries;

#endif
