/* attention_element.cuh - converts one element of a tensor between its stored type and float. */
#ifndef COH_KERNELS_CUDA_ATTENTION_ELEMENT_CUH
#define COH_KERNELS_CUDA_ATTENTION_ELEMENT_CUH

#include "kernels/cuda/device.cuh"

static __device__ __forceinline__ float coh_attention_read(const float *at)
{
    return *at;
}

static __device__ __forceinline__ float coh_attention_read(const uint16_t *at)
{
    return coh_float_of(*at);
}

static __device__ __forceinline__ void coh_attention_write(float *at, float value)
{
    *at = value;
}

static __device__ __forceinline__ void coh_attention_write(uint16_t *at, float value)
{
    *at = coh_bf16_of(value);
}

#endif
