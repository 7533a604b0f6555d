/* pack.cuh - shared by the memory-bound kernels: elements of f32 and bf16 as stored and as floats,
 * and sums over the lanes of a warp.
 *
 * These kernels move 16 bytes per thread and load ("a pack": eight bf16 or four floats). Their
 * loops are written for W elements at a time, W a pack or 1. So one body serves aligned tensors,
 * their tails, and tensors without alignment.
 *
 * bf16 is the upper half of a float. The processor rounds it to nearest, ties to even. The bits are
 * the host's, except that every NaN becomes the processor's one NaN. */
#ifndef COH_KERNELS_CUDA_PACK_CUH
#define COH_KERNELS_CUDA_PACK_CUH

#include "kernels/cuda/load.cuh"

#define COH_DEVICE static __device__ __forceinline__

#define COH_WARP      32
#define COH_ALL_LANES 0xffffffffu

typedef uint16_t coh_half; /* bf16 as it is stored */

/* Types for 8-byte and 16-byte loads and stores of other data. */
typedef struct alignas(8) coh_two {
    uint32_t word[2];
} coh_two;
typedef struct alignas(16) coh_four {
    uint32_t word[4];
} coh_four;

template <typename T> constexpr int coh_pack = 16 / (int)sizeof(T);

/* W elements of T as stored: one, or W sizeof(T) = 8 or 16 bytes. */
template <typename T, int W> struct coh_raw {
    uint32_t word[W == 1 ? 1 : W * (int)sizeof(T) / 4];
};

template <int W> struct coh_floats {
    float x[W];
};

template <typename T, int W> COH_DEVICE coh_raw<T, W> coh_fetch(const T *from)
{
    constexpr int bytes = W * (int)sizeof(T);
    coh_raw<T, W> raw;
    if constexpr (W == 1 && bytes == 2)
        raw.word[0] = *(const uint16_t *)from;
    else if constexpr (W == 1)
        raw.word[0] = *(const uint32_t *)from;
    else if constexpr (bytes == 8)
        coh_load_8(raw.word, from);
    else
        coh_load_16(raw.word, from);
    return raw;
}

/* Likewise through the first-level cache: for weights, which each row reads again. */
template <typename T, int W> COH_DEVICE coh_raw<T, W> coh_fetch_again(const T *from)
{
    if constexpr (W * sizeof(T) == 16) {
        const coh_four four = *(const coh_four *)from;
        return { { four.word[0], four.word[1], four.word[2], four.word[3] } };
    } else {
        return coh_fetch<T, W>(from);
    }
}

template <typename T, int W> COH_DEVICE coh_floats<W> coh_open(const coh_raw<T, W> &raw)
{
    coh_floats<W> out;
#pragma unroll
    for (int i = 0; i < W; i++) {
        if constexpr (sizeof(T) == 4)
            out.x[i] = __uint_as_float(raw.word[i]);
        else
            out.x[i] =
                __uint_as_float(i % 2 == 0 ? raw.word[i / 2] << 16 : raw.word[i / 2] & 0xffff0000u);
    }
    return out;
}

template <typename T, int W> COH_DEVICE coh_floats<W> coh_take(const T *from)
{
    return coh_open<T, W>(coh_fetch<T, W>(from));
}

template <typename T, int W> COH_DEVICE coh_floats<W> coh_take_again(const T *from)
{
    return coh_open<T, W>(coh_fetch_again<T, W>(from));
}

/* Stores, rounding once. */
template <typename T, int W> COH_DEVICE void coh_put(T *to, const coh_floats<W> &from)
{
    constexpr int bytes = W * (int)sizeof(T);
    if constexpr (W == 1 && bytes == 2) {
        *to = coh_bf16_of(from.x[0]);
    } else if constexpr (W == 1) {
        *to = from.x[0];
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < W; i += 4)
            *(coh_four *)(to + i) = { { __float_as_uint(from.x[i]), __float_as_uint(from.x[i + 1]),
                                        __float_as_uint(from.x[i + 2]),
                                        __float_as_uint(from.x[i + 3]) } };
    } else if constexpr (bytes == 8) {
        *(coh_two *)to = { { coh_bf16_pair(from.x[0], from.x[1]),
                             coh_bf16_pair(from.x[2], from.x[3]) } };
    } else {
        *(coh_four *)to = {
            { coh_bf16_pair(from.x[0], from.x[1]), coh_bf16_pair(from.x[2], from.x[3]),
              coh_bf16_pair(from.x[4], from.x[5]), coh_bf16_pair(from.x[6], from.x[7]) }
        };
    }
}

/* Rounds a float's bits to bf16 by a random half (kernels/quantise.h). */
COH_DEVICE uint32_t coh_bf16_at(uint32_t bits, uint32_t half)
{
    const uint32_t infinity = 0x7f800000u, size = bits & 0x7fffffffu;
    uint32_t sum = size + half;
    if (size > infinity)
        return (bits | 0x400000u) >> 16;
    if (size < infinity && sum >= infinity)
        sum = 0x7f7f0000u;
    return (sum | (bits & 0x80000000u)) >> 16;
}

template <typename T, int W> COH_DEVICE void coh_put_raw(T *to, const coh_raw<T, W> &from)
{
    constexpr int bytes = W * (int)sizeof(T);
    if constexpr (W == 1 && bytes == 4)
        *(uint32_t *)to = from.word[0];
    else if constexpr (W == 1)
        *to = (T)from.word[0];
    else if constexpr (bytes == 8)
        *(coh_two *)to = { { from.word[0], from.word[1] } };
    else
        *(coh_four *)to = { { from.word[0], from.word[1], from.word[2], from.word[3] } };
}

template <int W> COH_DEVICE coh_floats<W> coh_sum(coh_floats<W> a, const coh_floats<W> &b)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        a.x[i] += b.x[i];
    return a;
}

/* to = from, or to += from with `adds`. */
template <typename T, int W> COH_DEVICE void coh_give(T *to, coh_floats<W> from, int adds)
{
    if (adds) {
        const coh_floats<W> old = coh_take<T, W>(to);
#pragma unroll
        for (int i = 0; i < W; i++)
            from.x[i] += old.x[i];
    }
    coh_put<T, W>(to, from);
}

/* Likewise to f32, whatever type W is a pack of. */
template <int W> COH_DEVICE void coh_give_wide(float *to, const coh_floats<W> &from, int adds)
{
    constexpr int part = W < 4 ? W : 4;
#pragma unroll
    for (int i = 0; i < W; i += part) {
        coh_floats<part> some;
#pragma unroll
        for (int k = 0; k < part; k++)
            some.x[k] = from.x[i + k];
        coh_give<float, part>(to + i, some, adds);
    }
}

/* ---- parts of rows ----
 *
 * Sums over rows are of packs whatever the alignment, so that alignment changes no order. If a row
 * is not aligned, a pack is assembled from its elements. `rest` elements of the row are left; zeros
 * are used after them. `packed` rows end with a whole pack. */

template <typename T, int W>
COH_DEVICE coh_raw<T, W> coh_fetch_part(const T *from, int64_t rest, int packed)
{
    coh_raw<T, W> raw = {};
    if (packed)
        return rest > 0 ? coh_fetch<T, W>(from) : raw;
#pragma unroll
    for (int i = 0; i < W; i++) {
        if (i >= rest)
            break;
        if constexpr (sizeof(T) == 4)
            raw.word[i] = *(const uint32_t *)(from + i);
        else
            raw.word[i / 2] |= (uint32_t) * (const uint16_t *)(from + i) << 16 * (i % 2);
    }
    return raw;
}

template <typename T, int W>
COH_DEVICE coh_raw<T, W> coh_fetch_part_again(const T *from, int64_t rest, int packed)
{
    if (packed && rest > 0)
        return coh_fetch_again<T, W>(from);
    return coh_fetch_part<T, W>(from, rest, packed);
}

template <typename T, int W>
COH_DEVICE void coh_give_part(T *to, const coh_floats<W> &from, int64_t rest, int packed, int adds)
{
    if (packed) {
        if (rest > 0)
            coh_give<T, W>(to, from, adds);
        return;
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        if (i < rest)
            coh_give<T, 1>(to + i, { { from.x[i] } }, adds);
}

/* Loops over elements [begin, end) in parts of W, with a stride of the whole grid. */
#define COH_EACH(at, begin, end, W)                                                                \
    for (int64_t at = (begin) + ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (W);            \
         at < (end); at += (int64_t)gridDim.x * blockDim.x * (W))

/* e^x to about 2 + |x| units in the last place, in two instructions; results below 2^-126 are
 * zero. */
COH_DEVICE float coh_exp(float x)
{
    return coh_exp2(x * 1.4426950408889634f);
}

/* Sums over the lanes. Every lane gets the same bits, because each level adds the same two numbers
 * on both sides. */
template <typename S> COH_DEVICE S coh_warp_sum(S x)
{
#pragma unroll
    for (int apart = COH_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(COH_ALL_LANES, x, apart);
    return x;
}

COH_DEVICE float coh_warp_largest(float x)
{
#pragma unroll
    for (int apart = COH_WARP / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(COH_ALL_LANES, x, apart));
    return x;
}

/* Defines the two kernels of a function over the element type. */
#define COH_KERNELS(name, arguments, threads, blocks)                                              \
    COH_KERNEL_OF(coh_##name##_f32, threads, blocks, const __grid_constant__ arguments a)          \
    {                                                                                              \
        name<float>(a);                                                                            \
    }                                                                                              \
    COH_KERNEL_OF(coh_##name##_bf16, threads, blocks, const __grid_constant__ arguments a)         \
    {                                                                                              \
        name<coh_half>(a);                                                                         \
    }

/* Defines the two kernels of name<T, W>(a, begin, end), which works on each element by itself:
 * whole packs if the tensors are aligned, then the remaining elements one by one. */
#define COH_MAP_KERNELS(name, arguments, blocks)                                                   \
    template <typename T> COH_DEVICE void name(const arguments &a)                                 \
    {                                                                                              \
        const int64_t whole = a.packed ? a.count - a.count % coh_pack<T> : 0;                      \
        name<T, coh_pack<T>>(a, 0, whole);                                                         \
        name<T, 1>(a, whole, a.count);                                                             \
    }                                                                                              \
    COH_KERNELS(name, arguments, 256, blocks)

#endif
