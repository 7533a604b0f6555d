/* One step of a decoder: one query of one head a block, over all keys there are. Each warp takes
 * every fourth key with a running maximum and sum of its own, and the warps' parts are put together
 * in their order. Grid: heads of all sequences. */
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_element.cuh"

enum { WARPS = COH_ATTENTION_DECODE_THREADS / 32, WIDEST = 512 };

/* What a warp has of a head: its maximum of scores, and the sums under it. Lane l has channels l,
 * l + 32, ... */
typedef struct part {
    float max, sum, y[WIDEST / 32];
} part;

template <typename E>
static __device__ __forceinline__ void attend(part *mine, const E *q, const E *k, const E *v, int D,
                                              float scale)
{
    const int lane = (int)threadIdx.x % 32;
    float s = 0.0f;
    for (int d = lane; d < D; d += 32)
        s += coh_attention_read(q + d) * coh_attention_read(k + d);
    for (int with = 16; with > 0; with /= 2)
        s += __shfl_xor_sync(0xffffffffu, s, with);
    s *= scale;
    const float max = fmaxf(mine->max, s), factor = expf(mine->max - max), p = expf(s - max);
    mine->max = max;
    mine->sum = mine->sum * factor + p;
#pragma unroll
    for (int m = 0; m < WIDEST / 32; m++)
        if (lane + 32 * m < D)
            mine->y[m] = mine->y[m] * factor + p * coh_attention_read(v + lane + 32 * m);
}

/* y of the warps' parts: those without a key have the weight zero. */
template <typename E> static __device__ __forceinline__ void join(const part &mine, E *y, int D)
{
    __shared__ float max[WARPS], sum[WARPS], sums[WARPS][WIDEST];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    max[warp] = mine.max;
    sum[warp] = mine.sum;
#pragma unroll
    for (int m = 0; m < WIDEST / 32; m++)
        if (lane + 32 * m < D)
            sums[warp][lane + 32 * m] = mine.y[m];
    __syncthreads();
    float most = max[0], total = 0.0f;
    for (int w = 1; w < WARPS; w++)
        most = fmaxf(most, max[w]);
    for (int w = 0; w < WARPS; w++)
        total += expf(max[w] - most) * sum[w];
    for (int d = (int)threadIdx.x; d < D; d += COH_ATTENTION_DECODE_THREADS) {
        float value = 0.0f;
        for (int w = 0; w < WARPS; w++)
            value += expf(max[w] - most) * sums[w][d];
        coh_attention_write(y + d, value / total);
    }
}

/* Row `position` of keys and values is taken from k and v, and put there by the first head of those
 * that share it. */
template <typename E>
static __device__ __forceinline__ void decode(const coh_attention_decode_arguments &a)
{
    const int64_t b = blockIdx.x / a.H, h = blockIdx.x % a.H, shared = a.H / a.G, g = h / shared;
    const int64_t stride = (int64_t)a.G * a.D, cached = b * a.positions * stride + g * a.D;
    const E *q = (const E *)a.q + b * a.q_stride + h * a.D;
    const E *k = (const E *)a.k + b * a.kv_stride + g * a.D;
    const E *v = (const E *)a.v + b * a.kv_stride + g * a.D;
    E *keys = (E *)a.keys + cached, *values = (E *)a.values + cached;
    const int64_t last = *a.position;
    part mine = { -INFINITY, 0.0f, {} };
    for (int64_t j = threadIdx.x / 32; j <= last; j += WARPS)
        attend(&mine, q, j == last ? k : keys + j * stride, j == last ? v : values + j * stride,
               a.D, a.scale);
    if (h % shared == 0)
        for (int d = (int)threadIdx.x; d < a.D; d += COH_ATTENTION_DECODE_THREADS) {
            keys[last * stride + d] = k[d];
            values[last * stride + d] = v[d];
        }
    join(mine, (E *)a.y + blockIdx.x * (int64_t)a.D, a.D);
}

/* One block of a processor is enough: with more in mind, ptxas spills. */
#define DECODE_BOUNDS COH_ATTENTION_DECODE_THREADS, 1

COH_KERNEL(coh_attention_decode_f32, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    decode<float>(a);
}

COH_KERNEL(coh_attention_decode_bf16, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    decode<uint16_t>(a);
}
