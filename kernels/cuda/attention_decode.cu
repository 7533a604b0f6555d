/* One step of a decoder: each block handles one query of one head and one part of the keys. If a
 * cache has room for more than one part, a second kernel joins a head's parts in order. Each warp
 * takes every fourth group of four keys of its part and keeps a running maximum and sum. Grid:
 * heads of all queries; parts. The shape alone determines the parts. A part without a key does
 * nothing, and its results are not read. Blocks read the step's own rows from k and v, because
 * other blocks store them at the same time. Next: attention_scratch.h, attention.c. */
#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_element.cuh"

enum { WARPS = COH_ATTENTION_DECODE_THREADS / 32, WIDEST = 512, GROUP = 4 };

/* A warp's state for a head: its maximum of scores, and the sums relative to it. Lane l has
 * channels l, l + 32, ... */
typedef struct part {
    float max, sum, y[WIDEST / 32];
} part;

/* Takes GROUP keys at a time, so that their loads overlap. The first `count` of them are keys; the
 * others are any row that may be read. */
template <typename E>
static __device__ __forceinline__ void attend(part *mine, const E *q, const E *const *k,
                                              const E *const *v, int count,
                                              const coh_attention_decode_arguments &a)
{
    const int lane = (int)threadIdx.x % 32, D = a.D;
    float s[GROUP] = {}, max = mine->max;
    for (int d = lane; d < D; d += 32) {
        const float query = coh_attention_read(q + d);
#pragma unroll
        for (int u = 0; u < GROUP; u++)
            s[u] += query * coh_attention_read(k[u] + d);
    }
#pragma unroll
    for (int u = 0; u < GROUP; u++) {
        for (int with = 16; with > 0; with /= 2)
            s[u] += __shfl_xor_sync(0xffffffffu, s[u], with);
        s[u] *= a.scale;
        if (a.cap != 0.0f)
            s[u] = a.cap * tanhf(s[u] / a.cap);
        s[u] = u < count ? s[u] : -INFINITY;
        max = fmaxf(max, s[u]);
    }
    const float factor = expf(mine->max - max);
    mine->max = max;
    mine->sum *= factor;
#pragma unroll
    for (int u = 0; u < GROUP; u++) {
        s[u] = expf(s[u] - max);
        mine->sum += s[u];
    }
#pragma unroll
    for (int m = 0; m < WIDEST / 32; m++)
        if (lane + 32 * m < D) {
            float y = mine->y[m] * factor;
#pragma unroll
            for (int u = 0; u < GROUP; u++)
                y += s[u] * coh_attention_read(v[u] + lane + 32 * m);
            mine->y[m] = y;
        }
}

/* For `count` parts that are `stride` floats apart, in order: returns the largest maximum and the
 * total of all sums relative to it. */
static __device__ __forceinline__ float2 largest_and_sum(const float *max, const float *sum,
                                                         int stride, int count)
{
    float2 of = { max[0], 0.0f };
    for (int p = 1; p < count; p++)
        of.x = fmaxf(of.x, max[p * stride]);
    for (int p = 0; p < count; p++)
        of.y += expf(max[p * stride] - of.x) * sum[p * stride];
    return of;
}

/* Joins the warps' parts, with weight zero for those without a key. Writes y, or the block's place
 * in the scratch. */
template <typename E>
static __device__ __forceinline__ void join_warps(const coh_attention_decode_arguments &a,
                                                  const part &mine)
{
    __shared__ float max[WARPS], sum[WARPS], sums[WARPS][WIDEST];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t place = blockIdx.x * a.parts + blockIdx.y;
    max[warp] = mine.max;
    sum[warp] = mine.sum;
#pragma unroll
    for (int m = 0; m < WIDEST / 32; m++)
        if (lane + 32 * m < a.D)
            sums[warp][lane + 32 * m] = mine.y[m];
    __syncthreads();
    const float2 of = largest_and_sum(max, sum, 1, WARPS);
    for (int d = (int)threadIdx.x; d < a.D; d += COH_ATTENTION_DECODE_THREADS) {
        float value = 0.0f;
        for (int w = 0; w < WARPS; w++)
            value += expf(max[w] - of.x) * sums[w][d];
        if (a.parts == 1)
            coh_attention_write((E *)a.y + blockIdx.x * (int64_t)a.D + d, value / of.y);
        else
            a.sums[place * a.D + d] = value;
    }
    if (a.parts > 1 && threadIdx.x == 0) {
        a.facts[2 * place] = of.x;
        a.facts[2 * place + 1] = of.y;
    }
}

/* Returns the last row that the block's query sees: its own, or of padding the cache's last. */
static __device__ __forceinline__ int64_t last_row(const coh_attention_decode_arguments &a)
{
    const int64_t own = *a.position + blockIdx.x / a.H % a.T;
    return own < a.positions ? own : a.positions - 1;
}

/* Returns the first row that the query at row `last` sees. */
static __device__ __forceinline__ int64_t first_row(const coh_attention_decode_arguments &a,
                                                    int64_t last)
{
    return last < a.window ? 0 : last + 1 - a.window;
}

/* Uses k and v for the rows from `position` on; the first of the heads that share a row also stores
 * it in keys and values. */
template <typename E>
static __device__ __forceinline__ void decode(const coh_attention_decode_arguments &a)
{
    const int64_t n = blockIdx.x / a.H, b = n / a.T, t = n % a.T, position = *a.position;
    const int64_t h = blockIdx.x % a.H, shared = a.H / a.G, g = h / shared;
    const int64_t stride = (int64_t)a.G * a.D, cached = b * a.positions * stride + g * a.D;
    const E *q = (const E *)a.q + n * a.q_stride + h * a.D;
    const E *k = (const E *)a.k + b * a.T * a.kv_stride + g * a.D;
    const E *v = (const E *)a.v + b * a.T * a.kv_stride + g * a.D;
    E *keys = (E *)a.keys + cached, *values = (E *)a.values + cached;
    const int64_t last = last_row(a), first = first_row(a, last), from = blockIdx.y * a.part_keys;
    const int64_t begin = from > first ? from : first;
    const int64_t end = last < from + a.part_keys ? last + 1 : from + a.part_keys;
    part mine = { -INFINITY, 0.0f, {} };
    for (int64_t j = begin + threadIdx.x / 32 * GROUP; j < end; j += WARPS * GROUP) {
        const E *ks[GROUP], *vs[GROUP];
#pragma unroll
        for (int u = 0; u < GROUP; u++) {
            const int64_t row = j + u < end ? j + u : end - 1;
            const int64_t own = (row - position) * a.kv_stride;
            ks[u] = row >= position ? k + own : keys + row * stride;
            vs[u] = row >= position ? v + own : values + row * stride;
        }
        attend(&mine, q, ks, vs, (int)(end - j), a);
    }
    if (end <= begin)
        return;
    if (h % shared == 0 && end == last + 1 && last == position + t)
        for (int d = (int)threadIdx.x; d < a.D; d += COH_ATTENTION_DECODE_THREADS) {
            keys[last * stride + d] = k[t * a.kv_stride + d];
            values[last * stride + d] = v[t * a.kv_stride + d];
        }
    join_warps<E>(a, mine);
}

/* Computes y from a head's parts. */
template <typename E>
static __device__ __forceinline__ void join_parts(const coh_attention_decode_arguments &a)
{
    const int64_t last = last_row(a), first = first_row(a, last) / a.part_keys;
    const int count = (int)(last / a.part_keys - first) + 1;
    const float *facts = a.facts + 2 * (blockIdx.x * a.parts + first);
    const float *sums = a.sums + (blockIdx.x * a.parts + first) * a.D;
    const float2 of = largest_and_sum(facts, facts + 1, 2, count);
    for (int d = (int)threadIdx.x; d < a.D; d += COH_ATTENTION_DECODE_THREADS) {
        float value = 0.0f;
        for (int p = 0; p < count; p++)
            value += expf(facts[2 * p] - of.x) * sums[p * a.D + d];
        coh_attention_write((E *)a.y + blockIdx.x * (int64_t)a.D + d, value / of.y);
    }
}

/* Asks for only one block per multiprocessor: for more, ptxas would spill. */
#define DECODE_BOUNDS COH_ATTENTION_DECODE_THREADS, 1

COH_KERNEL(coh_attention_decode_f32, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    decode<float>(a);
}

COH_KERNEL(coh_attention_decode_bf16, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    decode<uint16_t>(a);
}

COH_KERNEL(coh_attention_decode_join_f32, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    join_parts<float>(a);
}

COH_KERNEL(coh_attention_decode_join_bf16, DECODE_BOUNDS, const coh_attention_decode_arguments a)
{
    join_parts<uint16_t>(a);
}
