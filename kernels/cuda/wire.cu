/* wire.cu - adds contributions in the order of a fold shape (kernels/fold.h), and packs elements
 * for the way between ranks (kernels/wire.h).
 *
 * The bits are the host's: contraction is off for this file, divisions are rounded to nearest, and
 * sums start with the first contribution. Memory-bound. Next: pack.cuh; wire.c launches them. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"

#define FOUR          4 /* elements of a thread */
#define INFINITY_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
/* Added to a small float, it rounds it to an integer, ties to even, in the sum's lowest bits. */
#define WHOLE_SHIFT 0x1.8p23f

/* ---- fold ---- */

template <int W> COH_DEVICE void add(coh_floats<W> &sum, const coh_floats<W> &x, bool is_first)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        sum.x[i] = is_first ? x.x[i] : sum.x[i] + x.x[i];
}

template <typename T, int W>
COH_DEVICE coh_floats<W> fold_at(const coh_cuda_fold_arguments &a, int64_t at)
{
    coh_floats<W> all = {}, middle = {}, inner = {};
    int next = 0;
    for (int k = 0; k < a.factors[2]; k++) {
        for (int j = 0; j < a.factors[1]; j++) {
            for (int i = 0; i < a.factors[0]; i++)
                add<W>(inner, coh_take<T, W>((const T *)a.from[next++] + at), i == 0);
            add<W>(middle, inner, j == 0);
        }
        add<W>(all, middle, k == 0);
    }
    return all;
}

template <typename T, int W>
COH_DEVICE void fold_part(const coh_cuda_fold_arguments &a, int64_t begin, int64_t end)
{
    COH_EACH(at, begin, end, W)
    {
        const coh_floats<W> sum = fold_at<T, W>(a, at);
        if (a.bf16_y)
            coh_put<coh_half, W>((coh_half *)a.y + at, sum);
        else
            coh_put<float, W>((float *)a.y + at, sum);
    }
}

template <typename T> COH_DEVICE void fold(const coh_cuda_fold_arguments &a)
{
    const int64_t whole = a.packed ? a.count - a.count % FOUR : 0;
    fold_part<T, FOUR>(a, 0, whole);
    fold_part<T, 1>(a, whole, a.count);
}

COH_KERNELS(fold, coh_cuda_fold_arguments, 256, 2)

/* ---- pack ----
 *
 * A warp takes a block, each lane four neighbouring elements. On the int4 wire element 64 + i
 * shares a byte with element i, so the upper sixteen lanes give their codes to the lower. */

#define EACH_BLOCK(block, a)                                                                       \
    for (int64_t block = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / COH_WARP;              \
         block * COH_CUDA_WIRE_BLOCK < a.count;                                                    \
         block += (int64_t)gridDim.x * blockDim.x / COH_WARP)

COH_DEVICE uint32_t largest_bits(const coh_floats<FOUR> &x)
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < FOUR; i++)
        most = max(most, __float_as_uint(x.x[i]) & 0x7fffffffu);
#pragma unroll
    for (int apart = COH_WARP / 2; apart > 0; apart /= 2)
        most = max(most, __shfl_xor_sync(COH_ALL_LANES, most, apart));
    return most;
}

COH_DEVICE void put_codes8(const coh_cuda_wire_arguments &a, int64_t at, const uint32_t codes[FOUR])
{
#pragma unroll
    for (int i = 0; i < FOUR; i++)
        if (at + i < a.count)
            a.codes[at + i] = (uint8_t)codes[i];
}

COH_DEVICE void put_codes4(const coh_cuda_wire_arguments &a, int64_t block,
                           const uint32_t codes[FOUR])
{
    const int lane = threadIdx.x % COH_WARP;
#pragma unroll
    for (int i = 0; i < FOUR; i++) {
        const uint32_t upper = __shfl_xor_sync(COH_ALL_LANES, codes[i], COH_WARP / 2);
        if (lane < COH_WARP / 2)
            a.codes[block * (COH_CUDA_WIRE_BLOCK / 2) + lane * FOUR + i] =
                (uint8_t)(codes[i] | upper << 4);
    }
}

COH_DEVICE void pack_codes(const coh_cuda_wire_arguments &a, int64_t block, int64_t at,
                           const coh_floats<FOUR> &x)
{
    const uint32_t most = largest_bits(x);
    const float scale = __uint_as_float(most < INFINITY_BITS ? most : NAN_BITS);
    const bool has_codes = most > 0 && most < INFINITY_BITS;
    uint32_t codes[FOUR] = {};
#pragma unroll
    for (int i = 0; i < FOUR; i++)
        if (has_codes && a.levels == 7)
            codes[i] = __float_as_uint(x.x[i] / scale * 7.0f + WHOLE_SHIFT) & 15u;
        else if (has_codes)
            codes[i] = (uint32_t)(int)rintf(x.x[i] / scale * 127.0f) & 0xffu;
    if (a.levels == 7)
        put_codes4(a, block, codes);
    else
        put_codes8(a, at, codes);
    if (threadIdx.x % COH_WARP == 0)
        a.scales[block] = scale;
}

template <typename T> COH_DEVICE void wire_pack(const coh_cuda_wire_arguments &a)
{
    const T *elements = (const T *)a.elements;
    EACH_BLOCK(block, a)
    {
        const int64_t at = block * COH_CUDA_WIRE_BLOCK + threadIdx.x % COH_WARP * FOUR;
        const int64_t rest = a.count - at;
        const coh_floats<FOUR> x = coh_open<T, FOUR>(
            coh_fetch_part<T, FOUR>(elements + at, rest, a.packed && rest >= FOUR));
        if (a.levels == 0)
            coh_give_part<coh_half, FOUR>((coh_half *)a.codes + at, x, rest, 0, 0);
        else
            pack_codes(a, block, at, x);
    }
}

COH_KERNELS(wire_pack, coh_cuda_wire_arguments, 256, 4)

/* ---- unpack ---- */

COH_DEVICE float value8(const coh_cuda_wire_arguments &a, int64_t at, float scale)
{
    const float level = (float)(int8_t)a.codes[at] / 127.0f;
    return scale == scale ? level * scale : scale; /* a product would give another NaN */
}

COH_DEVICE float value4(const coh_cuda_wire_arguments &a, int64_t at, float scale)
{
    const int64_t block = at / COH_CUDA_WIRE_BLOCK, in = at % COH_CUDA_WIRE_BLOCK;
    const int half = COH_CUDA_WIRE_BLOCK / 2;
    const uint32_t byte = a.codes[block * half + in % half];
    const int code = (int)((in < half ? byte & 15u : byte >> 4) ^ 8u) - 8;
    const float level = (float)code / 7.0f;
    return scale == scale ? level * scale : scale;
}

COH_DEVICE float value_at(const coh_cuda_wire_arguments &a, int64_t at)
{
    if (a.levels == 0)
        return coh_float_of(((const coh_half *)a.codes)[at]);
    const float scale = a.scales[at / COH_CUDA_WIRE_BLOCK];
    return a.levels == 7 ? value4(a, at, scale) : value8(a, at, scale);
}

template <typename T> COH_DEVICE void wire_unpack(const coh_cuda_wire_arguments &a)
{
    EACH_BLOCK(block, a)
    {
        const int64_t at = block * COH_CUDA_WIRE_BLOCK + threadIdx.x % COH_WARP * FOUR;
        const int64_t rest = a.count - at;
        coh_floats<FOUR> x = {};
#pragma unroll
        for (int i = 0; i < FOUR; i++)
            if (i < rest)
                x.x[i] = value_at(a, at + i);
        coh_give_part<T, FOUR>((T *)a.elements + at, x, rest, a.packed && rest >= FOUR, 0);
    }
}

COH_KERNELS(wire_unpack, coh_cuda_wire_arguments, 256, 4)
