/* Element-wise kernels. Every element is read once and written once, so the memory's rate is the
 * bound. A thread takes every n-th element, n the threads of the grid: neighbours read
 * neighbours. */
#include <cuda_bf16.h>

#include "kernels/cuda/arguments.h"

static __device__ float widen(float x)
{
    return x;
}

static __device__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ void store(float *to, float x)
{
    *to = x;
}

static __device__ void store(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

static __device__ int64_t first_element()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ int64_t thread_count()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* y (= or +=) factor x */
template <typename element> static __device__ void scale(const coh_cuda_scale_arguments &a)
{
    const element *x = (const element *)a.x;
    element *y = (element *)a.y;
    for (int64_t i = first_element(); i < a.count; i += thread_count()) {
        const float scaled = __fmul_rn(a.factor, widen(x[i]));
        store(y + i, a.adds ? __fadd_rn(widen(y[i]), scaled) : scaled);
    }
}

extern "C" __global__ void coh_scale_f32(coh_cuda_scale_arguments a)
{
    scale<float>(a);
}

extern "C" __global__ void coh_scale_bf16(coh_cuda_scale_arguments a)
{
    scale<__nv_bfloat16>(a);
}
