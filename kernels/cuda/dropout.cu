/* dropout.cu - y = base + scale x where an element's word keeps it, base where it does not. Next:
 * elementwise.c launches it; philox.cuh.
 *
 * Memory-bound: four words cost some sixty instructions, which the loads hide. Word 64 g + 16 w + l
 * is word w of block 16 g + l (kernels/random.h). So a thread makes W neighbouring blocks and works
 * on four packs, sixteen elements apart: no word is wasted, and the threads of a group read all of
 * its bytes. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/philox.cuh"

#define GROUP_BLOCKS 16 /* blocks of four words in a group of COH_RANDOM_GROUP words */

/* Bit w W + i: word w of block `number` + i keeps its element. */
template <int W>
COH_DEVICE uint32_t kept_by(const coh_random &stream, uint64_t number, uint32_t threshold)
{
    uint32_t kept = 0;
#pragma unroll
    for (int i = 0; i < W; i++) {
        uint32_t words[4] = { (uint32_t)(number + i), (uint32_t)((number + i) >> 32),
                              stream.high[0], stream.high[1] };
        coh_philox_block(words, stream.key[0], stream.key[1]);
#pragma unroll
        for (int w = 0; w < 4; w++)
            kept |= (uint32_t)(words[w] >= threshold) << (w * W + i);
    }
    return kept;
}

template <typename T, int W>
COH_DEVICE void drop_part(const coh_cuda_dropout_arguments &a, int64_t at, uint32_t kept)
{
    coh_floats<W> y = coh_take<T, W>((const T *)a.x + at);
    coh_floats<W> base = {};
    if (a.base != nullptr)
        base = coh_take<T, W>((const T *)a.base + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        y.x[i] = kept >> i & 1 ? __fmul_rn(y.x[i], a.scale) : 0.0f;
        if (a.base != nullptr)
            y.x[i] = __fadd_rn(base.x[i], y.x[i]);
    }
    coh_put<T, W>((T *)a.y + at, y);
}

template <typename T, int W> COH_DEVICE void drop_groups(const coh_cuda_dropout_arguments &a)
{
    constexpr int parts = GROUP_BLOCKS / W;
    const uint64_t group = a.first / 64;
    const int64_t groups = (int64_t)((a.first + a.count + 63) / 64 - group);
    const int drops = a.threshold > 0;
    coh_random stream = {};
    if (drops)
        stream = coh_random_stream(a.cell, a.operator_index, a.microbatch);
    COH_EACH(unit, 0, groups * parts, 1)
    {
        const uint64_t g = group + unit / parts;
        const int l = (int)(unit % parts) * W;
        const uint32_t kept =
            drops ? kept_by<W>(stream, GROUP_BLOCKS * g + l, a.threshold) : 0xffffffffu;
        const int64_t begin = (int64_t)(64 * g + l - a.first);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int64_t at = begin + 16 * w;
            if (at >= 0 && at + W <= a.count)
                drop_part<T, W>(a, at, kept >> w * W);
            else
                for (int i = 0; i < W; i++)
                    if (at + i >= 0 && at + i < a.count)
                        drop_part<T, 1>(a, at + i, kept >> (w * W + i));
        }
    }
}

template <typename T> COH_DEVICE void dropout(const coh_cuda_dropout_arguments &a)
{
    if (a.packed)
        drop_groups<T, coh_pack<T>>(a);
    else
        drop_groups<T, 1>(a);
}
COH_KERNELS(dropout, coh_cuda_dropout_arguments, 256, 3)
