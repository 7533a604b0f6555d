/* elementwise.cu - functions of single elements, copies of tensors and of blocks, additions. Next:
 * pack.cuh; elementwise.c launches them.
 *
 * Memory-bound: each operand is moved once. 16 bytes per thread and operand are in flight. With all
 * of a multiprocessor's 2048 threads that is 32 KiB and more, which DRAM's latency times its rate
 * requires. So kernels that read one operand are limited to 32 registers, those that read two or
 * three to 40 and 64. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/nf4.h"

template <typename T, int W>
COH_DEVICE void gelu(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        coh_floats<W> y = coh_take<T, W>((const T *)a.x + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            y.x[i] = coh_gelu(y.x[i]);
        coh_put<T, W>((T *)a.y + at, y);
    }
}
COH_MAP_KERNELS(gelu, coh_cuda_map_arguments, 8)

template <typename T, int W>
COH_DEVICE void gelu_backward(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const coh_floats<W> x = coh_take<T, W>((const T *)a.x + at);
        coh_floats<W> dx = coh_take<T, W>((const T *)a.dy + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            dx.x[i] *= coh_gelu_slope(x.x[i]);
        coh_give<T, W>((T *)a.y + at, dx, a.adds);
    }
}
COH_MAP_KERNELS(gelu_backward, coh_cuda_map_arguments, 6)

template <typename T, int W>
COH_DEVICE void relu(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        coh_floats<W> y = coh_take<T, W>((const T *)a.x + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            y.x[i] = coh_relu(y.x[i]);
        coh_put<T, W>((T *)a.y + at, y);
    }
}
COH_MAP_KERNELS(relu, coh_cuda_map_arguments, 8)

template <typename T, int W>
COH_DEVICE void relu_backward(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const coh_floats<W> y = coh_take<T, W>((const T *)a.x + at);
        coh_floats<W> dx = coh_take<T, W>((const T *)a.dy + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            dx.x[i] = y.x[i] > 0.0f ? dx.x[i] : 0.0f;
        coh_give<T, W>((T *)a.y + at, dx, a.adds);
    }
}
COH_MAP_KERNELS(relu_backward, coh_cuda_map_arguments, 6)

/* y (= or +=) factor x. A copy is a scale by 1, except for the bits of a NaN. */
template <typename T, int W>
COH_DEVICE void scale(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        coh_floats<W> y = coh_take<T, W>((const T *)a.x + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            y.x[i] *= a.factor;
        coh_give<T, W>((T *)a.y + at, y, a.adds);
    }
}
COH_MAP_KERNELS(scale, coh_cuda_map_arguments, 8)

/* y = cap tanh(x / cap), in f32; `factor` is the cap. */
COH_KERNEL_OF(coh_soft_cap_rows, 256, 8, const __grid_constant__ coh_cuda_map_arguments a)
{
    COH_EACH(at, 0, a.count, 1)
    ((float *)a.y)[at] = coh_soft_cap(((const float *)a.x)[at], a.factor);
}

/* y += x */
template <typename T, int W>
COH_DEVICE void add(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    coh_give<T, W>((T *)a.y + at, coh_take<T, W>((const T *)a.x + at), 1);
}
COH_MAP_KERNELS(add, coh_cuda_map_arguments, 8)

/* y (= or +=) x, which is f32 whatever y is: four elements per thread. */
template <typename T, int W>
COH_DEVICE void round_part(const coh_cuda_map_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    coh_give<T, W>((T *)a.y + at, coh_take<float, W>((const float *)a.x + at), a.adds);
}

template <typename T> COH_DEVICE void round(const coh_cuda_map_arguments &a)
{
    const int64_t whole = a.packed ? a.count - a.count % 4 : 0;
    round_part<T, 4>(a, 0, whole);
    round_part<T, 1>(a, whole, a.count);
}
COH_KERNELS(round, coh_cuda_map_arguments, 256, 8)

/* y = x, byte by byte; x NULL: zeros. `count` is in bytes. */
COH_KERNEL_OF(coh_copy, 256, 8, const __grid_constant__ coh_cuda_map_arguments a)
{
    const int64_t whole = a.packed ? a.count / 16 * 16 : 0;
    COH_EACH(at, 0, whole, 16)
    *(coh_four *)((char *)a.y + at) =
        a.x == nullptr ? coh_four{} : *(const coh_four *)((const char *)a.x + at);
    COH_EACH(at, whole, a.count, 1)
    ((char *)a.y)[at] = a.x == nullptr ? 0 : ((const char *)a.x)[at];
}

/* ---- blocks, and repeated blocks ----
 *
 * y is written in order; the place in x takes a division of 64 bits per pack. */

template <typename T, int W>
COH_DEVICE void blocks(const coh_cuda_blocks_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const int64_t row = at / a.columns, column = at % a.columns;
        T *y = (T *)a.y + row * a.y_stride + column;
        coh_raw<T, W> x = {};
        if (column >= a.first && column < a.last)
            x = coh_fetch<T, W>((const T *)a.x + row * a.x_stride + column - a.first);
        if (a.adds)
            coh_give<T, W>(y, coh_open<T, W>(x), 1);
        else
            coh_put_raw<T, W>(y, x); /* also the bits of a NaN */
    }
}
COH_MAP_KERNELS(blocks, coh_cuda_blocks_arguments, 6)

template <typename T, int W>
COH_DEVICE void spread(const coh_cuda_spread_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const int64_t row = at / (a.repeats * a.inner);
        coh_floats<W> x;
        if (a.inner > 1) {
            x = coh_take<T, W>((const T *)a.x + row * a.inner + at % a.inner);
        } else {
            const float one = coh_take<T, 1>((const T *)a.x + row).x[0];
#pragma unroll
            for (int i = 0; i < W; i++)
                x.x[i] = one;
        }
#pragma unroll
        for (int i = 0; i < W; i++)
            x.x[i] *= a.factor;
        coh_give<T, W>((T *)a.y + at, x, a.adds);
    }
}
COH_MAP_KERNELS(spread, coh_cuda_spread_arguments, 6)

/* Where gate's element of y's element `at` is: rows of gate are 2 columns apart, if they are parts
 * of wider rows. */
COH_DEVICE int64_t gate_place(const coh_cuda_swiglu_arguments &a, int64_t at)
{
    return a.columns > 0 ? at + at / a.columns * a.columns : at;
}

template <typename T, int W, coh_swish GATE(float)>
COH_DEVICE void gated(const coh_cuda_swiglu_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const int64_t place = gate_place(a, at);
        coh_floats<W> y = coh_take<T, W>((const T *)a.gate + place);
        const coh_floats<W> up = coh_take<T, W>((const T *)a.up + place);
#pragma unroll
        for (int i = 0; i < W; i++)
            y.x[i] = y.x[i] * GATE(y.x[i]).gate * up.x[i];
        coh_put<T, W>((T *)a.y + at, y);
    }
}

template <typename T, int W, coh_swish GATE(float)>
COH_DEVICE void gated_backward(const coh_cuda_swiglu_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const int64_t place = gate_place(a, at);
        const coh_floats<W> dy = coh_take<T, W>((const T *)a.dy + at);
        const coh_floats<W> gate = coh_take<T, W>((const T *)a.gate + place);
        const coh_floats<W> up = coh_take<T, W>((const T *)a.up + place);
        coh_floats<W> dgate, dup;
#pragma unroll
        for (int i = 0; i < W; i++) {
            const coh_swish s = GATE(gate.x[i]);
            dgate.x[i] = dy.x[i] * up.x[i] * s.slope;
            dup.x[i] = dy.x[i] * (gate.x[i] * s.gate);
        }
        if (a.dgate != nullptr)
            coh_give<T, W>((T *)a.dgate + place, dgate, a.dgate_adds);
        if (a.dup != nullptr)
            coh_give<T, W>((T *)a.dup + place, dup, a.dup_adds);
    }
}

/* A gated activation: y = x gate(x) up, of the swish gate or gelu's. */
#define COH_GATED(name, gate)                                                                      \
    template <typename T, int W>                                                                   \
    COH_DEVICE void name(const coh_cuda_swiglu_arguments &a, int64_t begin, int64_t end)           \
    {                                                                                              \
        gated<T, W, gate>(a, begin, end);                                                          \
    }                                                                                              \
    template <typename T, int W>                                                                   \
    COH_DEVICE void name##_backward(const coh_cuda_swiglu_arguments &a, int64_t begin,             \
                                    int64_t end)                                                   \
    {                                                                                              \
        gated_backward<T, W, gate>(a, begin, end);                                                 \
    }                                                                                              \
    COH_MAP_KERNELS(name, coh_cuda_swiglu_arguments, 6)                                            \
    COH_MAP_KERNELS(name##_backward, coh_cuda_swiglu_arguments, 4)
COH_GATED(swiglu, coh_swish_of)
COH_GATED(geglu, coh_gelu_gate_of)

/* ---- 4-bit weights ----
 *
 * Memory-bound: a thread opens the eight codes of four bytes, 16 bytes of bf16. The bits are the
 * host's: a product, and a rounding to bf16. */

__device__ const float nf4_values[COH_NF4_CODES] = COH_NF4_VALUES;

template <typename T> COH_DEVICE void nf4(const coh_cuda_nf4_arguments &a)
{
    constexpr int codes = 8, parts = COH_NF4_BLOCK / codes;
    __shared__ float values[COH_NF4_CODES];
    if (threadIdx.x < COH_NF4_CODES)
        values[threadIdx.x] = nf4_values[threadIdx.x];
    __syncthreads();
    COH_EACH(at, 0, a.count, codes)
    {
        const uint16_t *block =
            (const uint16_t *)a.packed + at / COH_NF4_BLOCK * (COH_NF4_BLOCK_BYTES / 2);
        const uint16_t *of = block + 1 + at / codes % parts * 2;
        const uint32_t packed = of[0] | (uint32_t)of[1] << 16;
        const float scale = __uint_as_float((uint32_t)block[0] << 16);
        coh_floats<codes> y;
#pragma unroll
        for (int i = 0; i < codes; i++)
            y.x[i] = __uint_as_float(
                (uint32_t)coh_bf16_of(__fmul_rn(values[packed >> 4 * i & 15u], scale)) << 16);
        coh_put<T, codes>((T *)a.y + at, y);
    }
}
COH_KERNELS(nf4, coh_cuda_nf4_arguments, 256, 8)
