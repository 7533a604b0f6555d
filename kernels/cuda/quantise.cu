/* quantise.cu - f32 to bf16 by stochastic rounding; blocks of signed bytes with a scale each, and
 * back (kernels/quantise.h). Next: philox.cuh; quantise.c launches them.
 *
 * The bits are the host's: contraction is off for this file, divisions are rounded to nearest, the
 * rest is integers. Memory-bound, 6 bytes per element to bf16, 5 to and from bytes; a Philox block
 * of some sixty instructions serves eight elements. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/philox.cuh"

#define GROUP_BLOCKS  16 /* Philox blocks in a group of COH_RANDOM_HALVES halves */
#define INFINITY_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
#define LEVELS        127.0f

COH_DEVICE coh_random stream_of(const coh_cuda_rounding &rounding)
{
    return coh_random_stream(rounding.cell, rounding.operator_index, rounding.microbatch);
}

COH_DEVICE void make_block(const coh_random &stream, uint64_t number, uint32_t words[4])
{
    words[0] = (uint32_t)number;
    words[1] = (uint32_t)(number >> 32);
    words[2] = stream.high[0];
    words[3] = stream.high[1];
    coh_philox_block(words, stream.key[0], stream.key[1]);
}

/* ---- to bf16 ----
 *
 * Half 128 g + 64 h + 16 w + l is half h of word w of block 16 g + l, so a thread makes W
 * neighbouring blocks and rounds eight packs, sixteen elements apart. */

/* Uses half h of word w of each block. */
template <int W>
COH_DEVICE void round_part(const coh_cuda_stochastic_round_arguments &a, int64_t at,
                           uint32_t (*words)[4], int w, int h)
{
    const coh_raw<float, W> x = coh_fetch<float, W>(a.x + at);
    coh_raw<coh_half, W> y = {};
#pragma unroll
    for (int i = 0; i < W; i++)
        y.word[i / 2] |= coh_bf16_at(x.word[i], words[i][w] >> 16 * h & 0xffffu) << 16 * (i % 2);
    coh_put_raw<coh_half, W>(a.y + at, y);
}

template <int W> COH_DEVICE void round_groups(const coh_cuda_stochastic_round_arguments &a)
{
    constexpr int parts = GROUP_BLOCKS / W;
    const uint64_t group = a.first / COH_RANDOM_HALVES;
    const uint64_t last = (a.first + a.count + COH_RANDOM_HALVES - 1) / COH_RANDOM_HALVES;
    const coh_random stream = stream_of(a.rounding);
    COH_EACH(unit, 0, (int64_t)(last - group) * parts, 1)
    {
        const uint64_t g = group + unit / parts;
        const int l = (int)(unit % parts) * W;
        const int64_t begin = (int64_t)(COH_RANDOM_HALVES * g + l - a.first);
        uint32_t words[W][4];
#pragma unroll
        for (int i = 0; i < W; i++)
            make_block(stream, GROUP_BLOCKS * g + l + i, words[i]);
#pragma unroll
        for (int part = 0; part < 8; part++) {
            const int64_t at = begin + 16 * part;
            if (at >= 0 && at + W <= a.count) {
                round_part<W>(a, at, words, part % 4, part / 4);
                continue;
            }
#pragma unroll
            for (int i = 0; i < W; i++)
                if (at + i >= 0 && at + i < a.count)
                    round_part<1>(a, at + i, words + i, part % 4, part / 4);
        }
    }
}

COH_KERNEL_OF(coh_stochastic_round, 256, 3,
              const __grid_constant__ coh_cuda_stochastic_round_arguments a)
{
    if (a.packed)
        round_groups<4>(a);
    else
        round_groups<1>(a);
}

/* ---- to bytes ----
 *
 * One warp takes a block: four elements per lane, 16 bytes. A block's halves come from sixteen
 * Philox blocks, so a warp takes two blocks at a time and each lane computes one Philox block. Its
 * words reach the lanes that need them through shared memory: word j of a group has the halves of
 * elements j and j + 64. */

#define WARPS    (COH_CUDA_QUANTISE_THREADS / COH_WARP)
#define QUANTISE 4 /* elements per lane */

/* Rounds t to an integer: to nearest, ties to even, or up if it is further from the integer below
 * than (half + 1/2) / 2^16. Returns its two's complement. */
COH_DEVICE uint32_t code_of(float t, bool is_random, uint32_t half)
{
    float whole = rintf(t);
    if (is_random) {
        const float below = floorf(t);
        whole = (float)half + 0.5f < (t - below) * 0x1p16f ? below + 1.0f : below;
    }
    return (uint32_t)(int)whole & 0xffu;
}

/* Returns the largest x of the warp, in each lane. */
COH_DEVICE uint32_t warp_most(uint32_t x)
{
#pragma unroll
    for (int apart = COH_WARP / 2; apart > 0; apart /= 2)
        x = max(x, __shfl_xor_sync(COH_ALL_LANES, x, apart));
    return x;
}

COH_DEVICE void put_codes(int8_t *to, uint32_t codes, int64_t rest, int packed)
{
    if (packed && rest >= QUANTISE) {
        *(uint32_t *)to = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < QUANTISE; i++)
        if (i < rest)
            to[i] = (int8_t)(codes >> 8 * i);
}

COH_DEVICE void quantise_block(const coh_cuda_quantise_arguments &a, int64_t block,
                               const uint32_t *words)
{
    const int lane = threadIdx.x % COH_WARP;
    const int64_t at = block * COH_CUDA_QUANTISE_BLOCK + lane * QUANTISE, rest = a.count - at;
    const coh_raw<float, QUANTISE> x =
        coh_fetch_part<float, QUANTISE>(a.x + at, rest, a.packed && rest >= QUANTISE);
    uint32_t most = 0, codes = 0;
#pragma unroll
    for (int i = 0; i < QUANTISE; i++)
        most = max(most, x.word[i] & 0x7fffffffu);
    most = warp_most(most);
    const float scale = __uint_as_float(most < INFINITY_BITS ? most : NAN_BITS);
    const bool is_random = a.rounding.cell != nullptr;
    if (most > 0 && most < INFINITY_BITS) {
#pragma unroll
        for (int i = 0; i < QUANTISE; i++) {
            const float t = __uint_as_float(x.word[i]) / scale * LEVELS;
            uint32_t half = 0;
            if (is_random)
                half = words[lane % 16 * QUANTISE + i] >> (lane / 16 * 16) & 0xffffu;
            codes |= code_of(t, is_random, half) << 8 * i;
        }
    }
    put_codes(a.codes + at, codes, rest, a.packed);
    if (lane == 0)
        a.scales[block] = scale;
}

COH_KERNEL_OF(coh_quantise, COH_CUDA_QUANTISE_THREADS, 4,
              const __grid_constant__ coh_cuda_quantise_arguments a)
{
    __shared__ uint32_t words[WARPS][2 * COH_RANDOM_GROUP];
    uint32_t *own = words[threadIdx.x / COH_WARP];
    const int lane = threadIdx.x % COH_WARP;
    const int64_t blocks = (a.count + COH_CUDA_QUANTISE_BLOCK - 1) / COH_CUDA_QUANTISE_BLOCK;
    coh_random stream = {};
    if (a.rounding.cell != nullptr)
        stream = stream_of(a.rounding);
    for (int64_t block = 2 * ((int64_t)blockIdx.x * WARPS + threadIdx.x / COH_WARP); block < blocks;
         block += 2 * (int64_t)gridDim.x * WARPS) {
        if (a.rounding.cell != nullptr) {
            const uint64_t group = a.first / COH_RANDOM_HALVES + block + lane / GROUP_BLOCKS;
            uint32_t made[4];
            make_block(stream, GROUP_BLOCKS * group + lane % GROUP_BLOCKS, made);
            __syncwarp(); /* the previous words have been read */
#pragma unroll
            for (int w = 0; w < 4; w++)
                own[lane / GROUP_BLOCKS * COH_RANDOM_GROUP + GROUP_BLOCKS * w +
                    lane % GROUP_BLOCKS] = made[w];
            __syncwarp();
        }
        quantise_block(a, block, own);
        if (block + 1 < blocks)
            quantise_block(a, block + 1, own + COH_RANDOM_GROUP);
    }
}

/* ---- and back ---- */

COH_DEVICE float value_of(uint32_t code, float scale)
{
    const float level = (float)(int8_t)code / LEVELS;
    return scale == scale ? level * scale : scale; /* a product would give another NaN */
}

COH_KERNEL_OF(coh_dequantise, 256, 6, const __grid_constant__ coh_cuda_dequantise_arguments a)
{
    const int64_t whole = a.packed ? a.count - a.count % QUANTISE : 0;
    COH_EACH(at, 0, whole, QUANTISE)
    {
        const uint32_t codes = *(const uint32_t *)(a.codes + at);
        const float scale = a.scales[at / COH_CUDA_QUANTISE_BLOCK];
        coh_floats<QUANTISE> y;
#pragma unroll
        for (int i = 0; i < QUANTISE; i++)
            y.x[i] = value_of(codes >> 8 * i & 0xffu, scale);
        coh_put<float, QUANTISE>(a.y + at, y);
    }
    COH_EACH(at, whole, a.count, 1)
    {
        a.y[at] = value_of((uint8_t)a.codes[at], a.scales[at / COH_CUDA_QUANTISE_BLOCK]);
    }
}
