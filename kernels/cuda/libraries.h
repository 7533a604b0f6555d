/* libraries.h - what a queue of CUDA has of NVIDIA's libraries: objects of that queue's stream.
 * NULL: the library is not there, or not asked. */
#ifndef COH_KERNELS_CUDA_LIBRARIES_H
#define COH_KERNELS_CUDA_LIBRARIES_H

typedef struct coh_cuda_libraries {
    struct coh_cuda_products *products;    /* products.h */
    struct coh_attention_plans *attention; /* attention_cudnn.h */
} coh_cuda_libraries;

#endif
