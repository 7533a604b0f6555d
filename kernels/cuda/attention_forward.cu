/* Causal attention of bf16 heads up to 256 wide, one block of queries at a time: scores, weights
 * and sums never leave the registers (Dao et al. 2022, "FlashAttention", alg. 1; with the running
 * maximum and sum of Milakov and Gimelshein 2018). Grid: heads of all sequences, blocks of 64
 * queries, the longest first. Next: attention_tile.cuh, attention.c. */
#include "kernels/cuda/attention_tile.cuh"

/* If the queries fit into registers, the second tile of keys uses the memory of their tile. */
template <int W> struct forward_shape {
    enum {
        HELD = COH_ATTENTION_HOLDS(W),
        KEYS = COH_ATTENTION_FORWARD_KEYS(W),
        TILE = KEYS * (W + COH_ATTENTION_PAD), /* elements */
    };
};

/* A row's running maximum of scores times log2(e), and this lane's part of the sum. */
typedef struct softmax_row {
    float max, sum;
} softmax_row;

template <int KEYS>
static __device__ __forceinline__ void cap(float s[KEYS / 8][4], const coh_attention_arguments &a)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            (void)coh_cap(s[n][e], a);
}

/* Turns scores into weights, in place; `factor` is the factor of earlier sums. `i` and `j` are the
 * first query of the warp and the first key; `first` are the first keys of this lane's queries. */
template <int KEYS, bool DROPS>
static __device__ __forceinline__ void weigh(float s[KEYS / 8][4], softmax_row row[2],
                                             float factor[2], const coh_attention_arguments &a,
                                             const int first[2], int i, int j)
{
    const int lane = coh_lane();
    const float scale = a.scale * COH_LOG2E;
    const bool is_cut = j + KEYS - 1 > i || coh_is_before<DROPS>(a, i + 15, j, first[1]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = i + lane / 4 + 8 * half;
        float max = row[half].max;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[n][e] *= scale;
                if (is_cut &&
                    !coh_tile_sees<DROPS>(a, query, j + 8 * n + lane % 4 * 2 + e % 2, first[half]))
                    s[n][e] = -INFINITY;
                max = fmaxf(max, s[n][e]);
            }
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        factor[half] = coh_exp2(row[half].max - max);
        row[half].max = max;
        float sum = row[half].sum * factor[half];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++)
                sum += s[n][e] = coh_exp2(s[n][e] - max);
        row[half].sum = sum;
    }
}

/* Stores the block's rows of y and of the log-sum-exp. */
template <int W>
static __device__ __forceinline__ void finish(const coh_attention_arguments &a, float sum[W / 8][4],
                                              const softmax_row row[2], int head, int i)
{
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float total = row[half].sum;
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        factor[half] = 1.0f / total;
        const int query = i + coh_lane() / 4 + 8 * half;
        if (coh_lane() % 4 == 0 && query < a.T)
            a.lse[(int64_t)head * a.T + query] = row[half].max * COH_LN2 + logf(total);
    }
    const int64_t stride = (int64_t)a.H * a.D;
    uint16_t *y = (uint16_t *)a.y + head / a.H * (int64_t)a.T * stride + head % a.H * a.D;
    coh_tile_store<W>(y, stride, i, a.T, a.D, sum, factor, 0);
}

/* Multiplies a block of keys; `queries` are the warp's own rows, unless they are held in
 * registers. */
template <int W>
static __device__ __forceinline__ void score(float s[forward_shape<W>::KEYS / 8][4],
                                             const uint32_t held[][4], const uint16_t *queries,
                                             const uint16_t *keys)
{
    enum { KEYS = forward_shape<W>::KEYS };
    if constexpr (!forward_shape<W>::HELD) {
        coh_tile_scores<KEYS, W>(s, queries, keys);
    } else {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = 0.0f;
#pragma unroll
        for (int c = 0; c < W / 16; c++)
            coh_tile_add_scores<KEYS, W>(s, held[c], keys, c);
    }
}

template <int W, bool DROPS>
static __device__ __forceinline__ void
accumulate(float sum[W / 8][4], float s[forward_shape<W>::KEYS / 8][4], const float factor[2],
           const uint16_t *values, const coh_attention_drop &drop, int i, int j)
{
    enum { KEYS = forward_shape<W>::KEYS };
#pragma unroll
    for (int n = 0; n < W / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[n][e] *= factor[e / 2];
    if (DROPS) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            float kept[4];
            coh_drop_by_query(kept, drop, i, j + 8 * n);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] *= kept[e];
        }
    }
    coh_tile_add_weighted<KEYS, W>(sum, s, values);
}

template <int W, bool DROPS>
static __device__ __forceinline__ void forward(const coh_attention_arguments &a)
{
    typedef forward_shape<W> shape;
    enum { KEYS = shape::KEYS, TILE = shape::TILE };
    const int head = (int)blockIdx.x, i0 = (int)(gridDim.y - 1 - blockIdx.y) * COH_ATTENTION_ROWS;
    const int i = i0 + 16 * coh_warp(), last = min(i0 + COH_ATTENTION_ROWS, a.T);
    const int b = head / a.H;
    const int64_t row0 = b * (int64_t)a.T, h = head % a.H;
    const uint16_t *q = (const uint16_t *)a.q + row0 * a.q_stride + h * a.D;
    const int64_t kv = row0 * a.kv_stride + h / (a.H / a.G) * a.D;
    const uint16_t *k = (const uint16_t *)a.k + kv, *v = (const uint16_t *)a.v + kv;
    uint16_t *tiles = (uint16_t *)coh_shared(); /* keys and values, twice */
    uint16_t *queries = tiles + (shape::HELD ? 2 : 4) * TILE;

    coh_tile_copy<COH_ATTENTION_ROWS, W>(queries, q, a.q_stride, i0, a.T, a.D);
    coh_copy_commit();
    const int begin =
        DROPS ? max(i0 + 1 - a.window, 0) / KEYS * KEYS : coh_first_keys(a, b, i0, KEYS);
    coh_tile_copy<KEYS, W>(tiles, k, a.kv_stride, begin, a.T, a.D);
    coh_tile_copy<KEYS, W>(tiles + TILE, v, a.kv_stride, begin, a.T, a.D);
    coh_copy_commit();
    coh_copy_wait<1>();
    __syncthreads();
    queries += 16 * coh_warp() * (W + COH_ATTENTION_PAD);
    uint32_t held[shape::HELD ? W / 16 : 1][4];
    if constexpr (shape::HELD) {
#pragma unroll
        for (int c = 0; c < W / 16; c++)
            coh_tile_fragment<W>(held[c], queries, c);
        __syncthreads();
    }

    coh_attention_drop drop = {};
    if (DROPS)
        drop = coh_attention_drop_of(a, head);
    const int first[2] = { DROPS ? 0 : coh_first_key(a, b, i + coh_lane() / 4),
                           DROPS ? 0 : coh_first_key(a, b, i + coh_lane() / 4 + 8) };
    softmax_row row[2] = { { COH_MAX_BEFORE, 0.0f }, { COH_MAX_BEFORE, 0.0f } };
    float sum[W / 8][4] = {};
    for (int j = begin, side = 0; j < last; j += KEYS, side ^= 1) {
        const uint16_t *keys = tiles + side * 2 * TILE;
        if (j + KEYS < last) {
            uint16_t *next = tiles + (side ^ 1) * 2 * TILE;
            coh_tile_copy<KEYS, W>(next, k, a.kv_stride, j + KEYS, a.T, a.D);
            coh_tile_copy<KEYS, W>(next + TILE, v, a.kv_stride, j + KEYS, a.T, a.D);
        }
        coh_copy_commit();
        coh_copy_wait<1>();
        __syncthreads();
        float s[KEYS / 8][4], factor[2];
        score<W>(s, held, queries, keys);
        if (!DROPS && a.cap != 0.0f)
            cap<KEYS>(s, a);
        weigh<KEYS, DROPS>(s, row, factor, a, first, i, j);
        accumulate<W, DROPS>(sum, s, factor, keys + TILE, drop, i, j);
        __syncthreads();
    }
    finish<W>(a, sum, row, head, i);
}

#define COH_FORWARD(W)                                                                             \
    COH_KERNEL(coh_attention_forward_##W, COH_ATTENTION_THREADS, const coh_attention_arguments a)  \
    {                                                                                              \
        forward<W, false>(a);                                                                      \
    }                                                                                              \
    COH_KERNEL(coh_attention_forward_##W##_drop, COH_ATTENTION_THREADS,                            \
               const coh_attention_arguments a)                                                    \
    {                                                                                              \
        forward<W, true>(a);                                                                       \
    }

COH_FORWARD(32)
COH_FORWARD(64)
COH_FORWARD(80)
COH_FORWARD(96)
COH_FORWARD(128)
COH_FORWARD(256)
