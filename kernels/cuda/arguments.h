/* arguments.h - what a kernel is told: one struct each, passed by value, the same bytes in C and in
 * CUDA. All pointers are the device's.
 *
 * What changes from step to step is not in here but behind a pointer to a cell in the device's
 * memory: a launch that was captured into a graph keeps its arguments for good. */
#ifndef COH_KERNELS_CUDA_ARGUMENTS_H
#define COH_KERNELS_CUDA_ARGUMENTS_H

#include <stdint.h>

/* y (= or +=) factor x: coh_scale of kernels.h. */
typedef struct coh_cuda_scale_arguments {
    const void *x;
    void *y;
    int64_t count;
    float factor;
    int32_t adds;
} coh_cuda_scale_arguments;

#endif
