/* gate.cu - the existing layer on a GPU: two kernels and the functions that launch them. Backward
 * adds up each column in one thread, in the order of the rows, so equal inputs give equal bits. */
#include "gate.h"

#include <cuda_runtime.h>

__global__ void forward_kernel(float *y, const float *x, const float *gate, const float *shift,
                               int64_t count, int64_t width)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t c = i % width;
    y[i] = x[i] / (1.0f + expf(-(gate[c] * x[i] + shift[c])));
}

__global__ void backward_kernel(float *dx, float *dgate, float *dshift, const float *dy,
                                const float *x, const float *gate, const float *shift, int64_t rows,
                                int64_t width)
{
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float gate_sum = 0, shift_sum = 0;
    if (c >= width)
        return;
    for (int64_t i = c; i < rows * width; i += width) {
        const float s = 1.0f / (1.0f + expf(-(gate[c] * x[i] + shift[c])));
        const float ds = dy[i] * x[i] * s * (1.0f - s);
        dx[i] = dy[i] * s + ds * gate[c];
        gate_sum += ds * x[i];
        shift_sum += ds;
    }
    dgate[c] = gate_sum;
    dshift[c] = shift_sum;
}

static const char *text_of(cudaError_t error)
{
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

const char *gate_forward_cuda(float *y, const float *x, const float *gate, const float *shift,
                              int64_t rows, int64_t width, void *stream)
{
    const int64_t count = rows * width;
    forward_kernel<<<(unsigned)((count + 255) / 256), 256, 0, (cudaStream_t)stream>>>(
        y, x, gate, shift, count, width);
    return text_of(cudaGetLastError());
}

const char *gate_backward_cuda(float *dx, float *dgate, float *dshift, const float *dy,
                               const float *x, const float *gate, const float *shift, int64_t rows,
                               int64_t width, void *stream)
{
    backward_kernel<<<(unsigned)((width + 127) / 128), 128, 0, (cudaStream_t)stream>>>(
        dx, dgate, dshift, dy, x, gate, shift, rows, width);
    return text_of(cudaGetLastError());
}

const char *gate_load_cuda(void)
{
    cudaFuncAttributes ignored;
    const char *text = text_of(cudaFuncGetAttributes(&ignored, (const void *)forward_kernel));
    return text ? text : text_of(cudaFuncGetAttributes(&ignored, (const void *)backward_kernel));
}
