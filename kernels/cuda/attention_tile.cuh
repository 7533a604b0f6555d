/* attention_tile.cuh - shared by attention's tile kernels: tiles in shared memory, the two
 * products, and the words of dropout.
 *
 * A block of four warps owns a tile of 64 rows and passes over tiles of other rows: queries over
 * keys, or keys over queries. A warp has sixteen of the block's own rows, W columns wide:
 *
 *    own [16, W]  x  other [N, W]^T  ->  [16, N] scores     (coh_tile_scores)
 *    weights [16, N]  x  other [N, W]  ->  [16, W] a sum    (coh_tile_add_weighted)
 *
 * In shared memory a row is eight elements longer than W, a multiple of sixteen. So the eight rows
 * that ldmatrix reads at once lie in different banks. Columns from D on and rows from T on are
 * zero. Sums are f32; weights are rounded to bf16 when they become operands. */
#ifndef COH_KERNELS_CUDA_ATTENTION_TILE_CUH
#define COH_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/philox.cuh"

#define COH_LOG2E 1.4426950408889634f
#define COH_LN2   0.6931471805599453f

/* A maximum below every score: finite, so that a query may see no key of its block's first tile. */
#define COH_MAX_BEFORE -0x1p100f

/* Returns the first token of the document of token i of sequence b; of the last one for i >= T. */
static __device__ __forceinline__ int coh_document(const coh_attention_arguments &a, int b, int i)
{
    i = min(i, a.T - 1);
    return i - a.positions[(int64_t)b * a.T + i];
}

/* Returns the first key that query i of sequence b sees. */
static __device__ __forceinline__ int coh_first_key(const coh_attention_arguments &a, int b, int i)
{
    const int first = max(i + 1 - a.window, 0);
    return a.positions == NULL ? first : max(first, coh_document(a, b, i));
}

/* Returns the begin of the first block of `rows` keys that query i sees. */
static __device__ __forceinline__ int coh_first_keys(const coh_attention_arguments &a, int b, int i,
                                                     int rows)
{
    return coh_first_key(a, b, i) / rows * rows;
}

/* Returns the end of the queries of sequence b that see key j; documents are searched by halves. */
static __device__ __forceinline__ int coh_end_query(const coh_attention_arguments &a, int b, int j)
{
    int low = j + 1, high = (int)min((int64_t)a.T, (int64_t)j + a.window);
    if (a.positions == NULL)
        return high;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (coh_document(a, b, middle) > j)
            high = middle;
        else
            low = middle + 1;
    }
    return min(low, a.T);
}

/* Replaces a product q k by the one whose score is capped: cap tanh u, u = scale q k / cap, tanh
 * u = 1 - 2 / (1 + e^2u). Returns the slope of the cap. */
static __device__ __forceinline__ float coh_cap(float &product, const coh_attention_arguments &a)
{
    const float power = coh_exp2(product * (2.0f * COH_LOG2E * a.to_cap));
    const float tangent = 1.0f - coh_quotient(2.0f, 1.0f + power);
    product = tangent * a.product_cap;
    return 1.0f - tangent * tangent;
}

/* Returns whether query i, which sees keys from `first` on, sees key j. */
static __device__ __forceinline__ bool coh_sees(int i, int j, int first)
{
    return j <= i && j >= first;
}

/* Returns whether key j, not above i, is before the first key of query i. Tile kernels with dropout
 * take no documents and need no `first`, since their registers would spill. */
template <bool DROPS>
static __device__ __forceinline__ bool coh_is_before(const coh_attention_arguments &a, int i, int j,
                                                     int first)
{
    return DROPS ? i - j >= a.window : j < first;
}

template <bool DROPS>
static __device__ __forceinline__ bool coh_tile_sees(const coh_attention_arguments &a, int i, int j,
                                                     int first)
{
    return j <= i && !coh_is_before<DROPS>(a, i, j, first);
}

static __device__ __forceinline__ int coh_lane(void)
{
    return (int)(threadIdx.x % 32);
}

static __device__ __forceinline__ int coh_warp(void)
{
    return (int)(threadIdx.x / 32);
}

/* Begins to copy rows [begin, begin + ROWS) of a head, whose row 0 is `from`. */
template <int ROWS, int W>
static __device__ __forceinline__ void coh_tile_copy(uint16_t *tile, const uint16_t *from,
                                                     int64_t stride, int begin, int T, int D)
{
    for (int piece = (int)threadIdx.x; piece < ROWS * (W / 8); piece += COH_ATTENTION_THREADS) {
        const int row = piece / (W / 8), column = piece % (W / 8) * 8;
        const bool is_there = begin + row < T && column < D;
        coh_copy_16(tile + row * (W + COH_ATTENTION_PAD) + column,
                    is_there ? from + (begin + row) * stride + column : from, is_there);
    }
}

/* Loads columns [16 k, 16 k + 16) of the sixteen rows from `rows` on, as operand a of a product. */
template <int W>
static __device__ __forceinline__ void coh_tile_fragment(uint32_t a[4], const uint16_t *rows, int k)
{
    coh_ldmatrix(a,
                 rows + coh_lane() % 16 * (W + COH_ATTENTION_PAD) + 16 * k + coh_lane() / 16 * 8);
}

/* scores += the product of one fragment and sixteen columns of every row of `other`. */
template <int N, int W>
static __device__ __forceinline__ void
coh_tile_add_scores(float scores[N / 8][4], const uint32_t a[4], const uint16_t *other, int k)
{
    const int lane = coh_lane();
    const uint16_t *at =
        other + (lane % 8 + lane / 16 * 8) * (W + COH_ATTENTION_PAD) + 16 * k + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        uint32_t b[4];
        coh_ldmatrix(b, at + n * (W + COH_ATTENTION_PAD));
        coh_mma(scores[n / 8], a, b[0], b[1]);
        coh_mma(scores[n / 8 + 1], a, b[2], b[3]);
    }
}

/* scores = the product of a warp's rows in shared memory and those of `other`. */
template <int N, int W>
static __device__ __forceinline__ void coh_tile_scores(float scores[N / 8][4], const uint16_t *rows,
                                                       const uint16_t *other)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            scores[n][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < W / 16; k++) {
        uint32_t a[4];
        coh_tile_fragment<W>(a, rows, k);
        coh_tile_add_scores<N, W>(scores, a, other, k);
    }
}

/* sum += weights x other */
template <int N, int W>
static __device__ __forceinline__ void
coh_tile_add_weighted(float sum[W / 8][4], const float weights[N / 8][4], const uint16_t *other)
{
    const uint16_t *at = other + coh_lane() % 16 * (W + COH_ATTENTION_PAD) + coh_lane() / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / 8; k += 2) {
        const uint32_t a[4] = { coh_bf16_pair(weights[k][0], weights[k][1]),
                                coh_bf16_pair(weights[k][2], weights[k][3]),
                                coh_bf16_pair(weights[k + 1][0], weights[k + 1][1]),
                                coh_bf16_pair(weights[k + 1][2], weights[k + 1][3]) };
#pragma unroll
        for (int n = 0; n < W; n += 16) {
            uint32_t b[4];
            coh_ldmatrix_transposed(b, at + 8 * k * (W + COH_ATTENTION_PAD) + n);
            coh_mma(sum[n / 8], a, b[0], b[1]);
            coh_mma(sum[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/* Stores a warp's sum to rows [begin, begin + 16) of a head, times a factor per row; `to` is its
 * row 0. */
template <int W>
static __device__ __forceinline__ void coh_tile_store(uint16_t *to, int64_t stride, int begin,
                                                      int T, int D, const float sum[W / 8][4],
                                                      const float factor[2], int adds)
{
    const int lane = coh_lane();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = begin + lane / 4 + 8 * half;
        if (row >= T)
            continue;
#pragma unroll
        for (int n = 0; n < W / 8; n++) {
            if (8 * n >= D)
                continue;
            uint32_t *at = (uint32_t *)(to + row * stride + 8 * n + lane % 4 * 2);
            float low = sum[n][2 * half] * factor[half];
            float high = sum[n][2 * half + 1] * factor[half];
            if (adds) {
                low += coh_float_of((uint16_t)*at);
                high += coh_float_of((uint16_t)(*at >> 16));
            }
            *at = coh_bf16_pair(low, high);
        }
    }
}

/* ---- dropout ---- */

/* The dropout of one head's weights. */
typedef struct coh_attention_drop {
    coh_random random;
    uint32_t threshold, row; /* row: of the head's first four keys */
    float scale;
} coh_attention_drop;

static __device__ __forceinline__ coh_attention_drop
coh_attention_drop_of(const coh_attention_arguments &a, int64_t head)
{
    coh_attention_drop drop;
    drop.random = coh_random_stream(a.random_cell, a.operator_index, a.microbatch);
    drop.threshold = a.drop_threshold;
    drop.scale = a.drop_scale;
    drop.row = (uint32_t)((a.first_head + head) * ((a.T + 3) / 4));
    return drop;
}

/* Computes the words of query i and keys j..j + 3, j a multiple of four. */
static __device__ __forceinline__ void coh_drop_words(uint32_t x[4], const coh_attention_drop &drop,
                                                      int i, int j)
{
    x[0] = (uint32_t)i;
    x[1] = drop.row + (uint32_t)j / 4;
    x[2] = drop.random.high[0];
    x[3] = drop.random.high[1];
    coh_philox_block<0>(x, drop.random.key[0], drop.random.key[1]);
}

static __device__ __forceinline__ float coh_drop_factor(const coh_attention_drop &drop,
                                                        uint32_t word)
{
    return word < drop.threshold ? 0.0f : drop.scale;
}

/* Factors of a [queries, keys] piece of sixteen by eight that begins at i and j. Two neighbouring
 * lanes each hold two of a block's four keys, for queries g and g + 8. Each lane computes the block
 * of one of the two queries, and they exchange halves. */
static __device__ __forceinline__ void
coh_drop_by_query(float factor[4], const coh_attention_drop &drop, int i, int j)
{
    const int lane = coh_lane(), odd = lane % 2;
    uint32_t x[4];
    coh_drop_words(x, drop, i + lane / 4 + 8 * odd, j + lane % 4 / 2 * 4);
    const uint32_t first = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[2], 1);
    const uint32_t second = __shfl_xor_sync(0xffffffffu, odd ? x[1] : x[3], 1);
    factor[0] = coh_drop_factor(drop, odd ? first : x[0]);
    factor[1] = coh_drop_factor(drop, odd ? second : x[1]);
    factor[2] = coh_drop_factor(drop, odd ? x[2] : first);
    factor[3] = coh_drop_factor(drop, odd ? x[3] : second);
}

static __device__ __forceinline__ uint32_t coh_pick(const uint32_t x[4], int index)
{
    const uint32_t low = index & 1 ? x[1] : x[0], high = index & 1 ? x[3] : x[2];
    return index & 2 ? high : low;
}

/* Factors of a [keys, queries] piece of sixteen by eight that begins at j and i. Four lanes each
 * hold one of a block's four keys, in four blocks (two queries, keys g and g + 8). Each lane
 * computes the block that all four need for one of their elements, and they exchange words. */
static __device__ __forceinline__ void coh_drop_by_key(float factor[4],
                                                       const coh_attention_drop &drop, int i, int j)
{
    const int lane = coh_lane(), mine = lane / 4 % 4;
    uint32_t x[4], got[4];
    coh_drop_words(x, drop, i + lane % 4 * 2 + mine % 2, j + lane / 16 * 4 + mine / 2 * 8);
#pragma unroll
    for (int with = 0; with < 4; with++)
        got[with] = __shfl_xor_sync(0xffffffffu, coh_pick(x, mine ^ with), with * 4);
#pragma unroll
    for (int e = 0; e < 4; e++)
        factor[e] = coh_drop_factor(drop, coh_pick(got, mine ^ e));
}

#endif
