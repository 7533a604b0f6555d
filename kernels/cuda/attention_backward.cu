/* Gradients of causal attention of bf16 heads up to 256 wide, without atomics and without scratch
 * of T x T: weights are computed again from the log-sum-exp (Dao 2023, "FlashAttention-2", alg. 2,
 * but twice). One kernel's blocks own 64 keys and pass over the queries of every head that shares
 * them; the other's own 64 queries and pass over keys. So each gradient is summed in one place, in
 * one order. Next: attention_tile.cuh, attention.c.
 *
 *    p = e^(s - lse)   ds = p (keep dp - delta)   delta = sum(dy y)
 *    dv = (keep p)^T dy    dk = scale ds^T q    dq = scale ds k
 *
 * With a cap, s = cap t, t = tanh(scale q k / cap), and ds has the factor 1 - t^2.
 *
 * Grid: heads, then blocks, the longest first. */
#include "kernels/cuda/attention_tile.cuh"

/* Rows of a block that is passed over: as many as leave room in the registers and in 99 KiB of
 * shared memory for two such blocks, or for one at the widest heads. */
template <int W> struct backward_shape {
    enum {
        ROWS = W <= 64    ? 64
               : W <= 128 ? 32
                          : 16,
        SIDES = COH_ATTENTION_BACKWARD_SIDES(W),
        OWN = COH_ATTENTION_ROWS * (W + COH_ATTENTION_PAD), /* elements of a tile */
        TILE = ROWS * (W + COH_ATTENTION_PAD),
    };
};

/* The gradients of one launch: with both, the sums of the widest heads do not fit. */
enum { GRADIENT_V = 1, GRADIENT_K = 2 };

template <int N> static __device__ __forceinline__ void clear(float values[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            values[n][e] = 0.0f;
}

/* ---- dk and dv ---- */

/* One head's block of queries, over which the owners of keys pass. */
typedef struct query_block {
    const uint16_t *q, *dy; /* row 0 of the head */
    int64_t statistics;     /* where the head's lse and delta begin */
    int b, i;
} query_block;

/* Returns the index-th of `blocks` blocks from the diagonal on, head after head of those that
 * share the keys. */
static __device__ __forceinline__ query_block query_block_of(const coh_attention_arguments &a,
                                                             int first, int blocks, int rows,
                                                             int index)
{
    const int64_t shared = a.H / a.G, b = blockIdx.x / a.G;
    const int64_t h = blockIdx.x % a.G * shared + index / blocks, row = b * a.T;
    query_block one;
    one.q = (const uint16_t *)a.q + row * a.q_stride + h * a.D;
    one.dy = (const uint16_t *)a.dy + (row * a.H + h) * a.D;
    one.statistics = (b * a.H + h) * a.T;
    one.b = (int)b;
    one.i = (first + index % blocks) * rows;
    return one;
}

/* Begins to load a block of queries; rows from T on get no weight. */
template <int W, bool DROPS>
static __device__ __forceinline__ void bring_queries(const coh_attention_arguments &a,
                                                     const query_block &one, uint16_t *tiles,
                                                     float *statistics)
{
    enum { ROWS = backward_shape<W>::ROWS };
    coh_tile_copy<ROWS, W>(tiles, one.q, a.q_stride, one.i, a.T, a.D);
    coh_tile_copy<ROWS, W>(tiles + backward_shape<W>::TILE, one.dy, (int64_t)a.H * a.D, one.i, a.T,
                           a.D);
    for (int row = (int)threadIdx.x; row < ROWS; row += COH_ATTENTION_THREADS) {
        const bool is_there = one.i + row < a.T;
        const int64_t at = one.statistics + one.i + row;
        statistics[row] = is_there ? a.lse[at] * COH_LOG2E : INFINITY;
        statistics[ROWS + row] = is_there ? a.delta[at] : 0.0f;
        if (!DROPS)
            statistics[2 * ROWS + row] =
                __uint_as_float((uint32_t)coh_first_key(a, one.b, one.i + row));
    }
}

/* Returns dp so that dp - delta has the factor `slope`. */
static __device__ __forceinline__ float sloped(float dp, float delta, float slope)
{
    return (dp - delta) * slope + delta;
}

/* Caps scores [16 keys, ROWS queries], and dp with them. */
template <int ROWS, int WHAT>
static __device__ __forceinline__ void cap_keys(float s[ROWS / 8][4], float dp[ROWS / 8][4],
                                                const float *statistics,
                                                const coh_attention_arguments &a)
{
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float slope = coh_cap(s[n][e], a);
            const int query = 8 * n + coh_lane() % 4 * 2 + e % 2;
            if (WHAT & GRADIENT_K)
                dp[n][e] = sloped(dp[n][e], statistics[ROWS + query], slope);
        }
}

/* Turns scores [16 keys, ROWS queries] into weights and, if dp holds dp, that into ds. */
template <int ROWS, bool DROPS, int WHAT>
static __device__ __forceinline__ void
weigh_keys(float s[ROWS / 8][4], float dp[ROWS / 8][4], const float *statistics,
           const coh_attention_drop &drop, const coh_attention_arguments &a, int i, int j)
{
    const int lane = coh_lane();
    const float scale = a.scale * COH_LOG2E;
    const bool is_cut =
        i < j + 15 ||
        coh_is_before<DROPS>(a, i + ROWS - 1, j, (int)__float_as_uint(statistics[3 * ROWS - 1]));
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        float kept[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
        if (DROPS)
            coh_drop_by_key(kept, drop, i + 8 * n, j);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int query = 8 * n + lane % 4 * 2 + e % 2;
            float p = coh_exp2(s[n][e] * scale - statistics[query]);
            if (is_cut && !coh_tile_sees<DROPS>(a, i + query, j + lane / 4 + e / 2 * 8,
                                                (int)__float_as_uint(statistics[2 * ROWS + query])))
                p = 0.0f;
            if (WHAT & GRADIENT_K)
                dp[n][e] = p * (kept[e] * dp[n][e] - statistics[ROWS + query]);
            s[n][e] = kept[e] * p;
        }
    }
}

/* Returns the end of the queries that see the block of keys from j0 on. */
template <bool DROPS>
static __device__ __forceinline__ int end_of_keys(const coh_attention_arguments &a, int j0)
{
    return DROPS ? min(a.T, j0 + COH_ATTENTION_ROWS - 1 + a.window)
                 : coh_end_query(a, (int)blockIdx.x / a.G, min(j0 + COH_ATTENTION_ROWS, a.T) - 1);
}

template <int W, bool DROPS, int WHAT>
static __device__ __forceinline__ void backward_keys(const coh_attention_arguments &a)
{
    typedef backward_shape<W> shape;
    enum { ROWS = shape::ROWS, SIDES = shape::SIDES, STRIDE = 16 * (W + COH_ATTENTION_PAD) };
    const int j0 = (int)blockIdx.y * COH_ATTENTION_ROWS, j = j0 + 16 * coh_warp();
    const int first = j0 / ROWS; /* to the last query that sees a key of the block */
    const int blocks = (end_of_keys<DROPS>(a, j0) + ROWS - 1) / ROWS - first;
    const int count = a.H / a.G * blocks, group = (int)(blockIdx.x % a.G);
    const int64_t b = blockIdx.x / a.G, kv = b * a.T * a.kv_stride + (int64_t)group * a.D;
    uint16_t *keys = (uint16_t *)coh_shared(), *values = keys + shape::OWN;
    uint16_t *tiles = values + shape::OWN; /* queries and dy, for each buffer */
    float *statistics = (float *)(tiles + SIDES * 2 * shape::TILE); /* of the queries */
    float dk[WHAT & GRADIENT_K ? W / 8 : 1][4] = {}, dv[WHAT & GRADIENT_V ? W / 8 : 1][4] = {};

    coh_tile_copy<COH_ATTENTION_ROWS, W>(keys, (const uint16_t *)a.k + kv, a.kv_stride, j0, a.T,
                                         a.D);
    coh_tile_copy<COH_ATTENTION_ROWS, W>(values, (const uint16_t *)a.v + kv, a.kv_stride, j0, a.T,
                                         a.D);
    if (SIDES == 2)
        bring_queries<W, DROPS>(a, query_block_of(a, first, blocks, ROWS, 0), tiles, statistics);
    coh_copy_commit();
    for (int index = 0; index < count; index++) {
        const int side = SIDES == 2 ? index & 1 : 0, ahead = index + SIDES - 1;
        if (ahead < count)
            bring_queries<W, DROPS>(a, query_block_of(a, first, blocks, ROWS, ahead),
                                    tiles + ahead % SIDES * 2 * shape::TILE,
                                    statistics + ahead % SIDES * 3 * ROWS);
        coh_copy_commit();
        coh_copy_wait<SIDES - 1>();
        __syncthreads();
        const query_block one = query_block_of(a, first, blocks, ROWS, index);
        const uint16_t *queries = tiles + side * 2 * shape::TILE, *dy = queries + shape::TILE;
        coh_attention_drop drop = {};
        if (DROPS)
            drop = coh_attention_drop_of(a, one.statistics / a.T);
        float s[ROWS / 8][4], dp[ROWS / 8][4];
        coh_tile_scores<ROWS, W>(s, keys + coh_warp() * STRIDE, queries);
        if (WHAT & GRADIENT_K)
            coh_tile_scores<ROWS, W>(dp, values + coh_warp() * STRIDE, dy);
        if (!DROPS && a.cap != 0.0f)
            cap_keys<ROWS, WHAT>(s, dp, statistics + side * 3 * ROWS, a);
        weigh_keys<ROWS, DROPS, WHAT>(s, dp, statistics + side * 3 * ROWS, drop, a, one.i, j);
        if constexpr ((WHAT & GRADIENT_V) != 0)
            coh_tile_add_weighted<ROWS, W>(dv, s, dy);
        if constexpr ((WHAT & GRADIENT_K) != 0)
            coh_tile_add_weighted<ROWS, W>(dk, dp, queries);
        __syncthreads();
    }
    const float by_one[2] = { 1.0f, 1.0f }, by_scale[2] = { a.scale, a.scale };
    if constexpr ((WHAT & GRADIENT_V) != 0)
        if (a.dv != NULL)
            coh_tile_store<W>((uint16_t *)a.dv + kv, a.kv_stride, j, a.T, a.D, dv, by_one,
                              a.dv_adds);
    if constexpr ((WHAT & GRADIENT_K) != 0)
        if (a.dk != NULL)
            coh_tile_store<W>((uint16_t *)a.dk + kv, a.kv_stride, j, a.T, a.D, dk, by_scale,
                              a.dk_adds);
}

/* ---- dq ---- */

/* Caps scores [16 queries, ROWS keys], and dp with them. */
template <int ROWS>
static __device__ __forceinline__ void cap_queries(float s[ROWS / 8][4], float dp[ROWS / 8][4],
                                                   const float delta[2],
                                                   const coh_attention_arguments &a)
{
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dp[n][e] = sloped(dp[n][e], delta[e / 2], coh_cap(s[n][e], a));
}

/* Turns scores [16 queries, ROWS keys] and dp into ds, in dp; `first` are the first keys of this
 * lane's queries. */
template <int ROWS, bool DROPS>
static __device__ __forceinline__ void
weigh_queries(const float s[ROWS / 8][4], float dp[ROWS / 8][4], const float lse[2],
              const float delta[2], const coh_attention_drop &drop,
              const coh_attention_arguments &a, const int first[2], int i, int j)
{
    const int lane = coh_lane();
    const float scale = a.scale * COH_LOG2E;
    const bool is_cut = j + ROWS - 1 > i || coh_is_before<DROPS>(a, i + 15, j, first[1]);
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        float kept[4] = { 1.0f, 1.0f, 1.0f, 1.0f };
        if (DROPS)
            coh_drop_by_query(kept, drop, i, j + 8 * n);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float p = coh_exp2(s[n][e] * scale - lse[e / 2]);
            if (is_cut && !coh_tile_sees<DROPS>(a, i + lane / 4 + e / 2 * 8,
                                                j + 8 * n + lane % 4 * 2 + e % 2, first[e / 2]))
                p = 0.0f;
            dp[n][e] = p * (kept[e] * dp[n][e] - delta[e / 2]);
        }
    }
}

template <int W, bool DROPS>
static __device__ __forceinline__ void backward_queries(const coh_attention_arguments &a)
{
    typedef backward_shape<W> shape;
    enum { ROWS = shape::ROWS, SIDES = shape::SIDES, STRIDE = 16 * (W + COH_ATTENTION_PAD) };
    const int head = (int)blockIdx.x, i0 = (int)(gridDim.y - 1 - blockIdx.y) * COH_ATTENTION_ROWS;
    const int i = i0 + 16 * coh_warp(), last = min(i0 + COH_ATTENTION_ROWS, a.T);
    const int64_t row = head / a.H * (int64_t)a.T, h = head % a.H, y_stride = (int64_t)a.H * a.D;
    const int64_t q = row * a.q_stride + h * a.D, kv = row * a.kv_stride + h / (a.H / a.G) * a.D;
    const uint16_t *k = (const uint16_t *)a.k + kv, *v = (const uint16_t *)a.v + kv;
    uint16_t *queries = (uint16_t *)coh_shared(), *dy = queries + shape::OWN;
    uint16_t *tiles = dy + shape::OWN; /* keys and values, for each buffer */

    coh_tile_copy<COH_ATTENTION_ROWS, W>(queries, (const uint16_t *)a.q + q, a.q_stride, i0, a.T,
                                         a.D);
    coh_tile_copy<COH_ATTENTION_ROWS, W>(dy, (const uint16_t *)a.dy + row * y_stride + h * a.D,
                                         y_stride, i0, a.T, a.D);
    const int begin = coh_first_keys(a, head / a.H, i0, ROWS);
    if (SIDES == 2) {
        coh_tile_copy<ROWS, W>(tiles, k, a.kv_stride, begin, a.T, a.D);
        coh_tile_copy<ROWS, W>(tiles + shape::TILE, v, a.kv_stride, begin, a.T, a.D);
    }
    coh_copy_commit();
    float lse[2], delta[2], dq[W / 8][4] = {};
    int first[2];
    for (int half = 0; half < 2; half++) {
        const int query = i + coh_lane() / 4 + 8 * half;
        first[half] = DROPS ? 0 : coh_first_key(a, head / a.H, query);
        const int64_t at = (int64_t)head * a.T + query;
        lse[half] = query < a.T ? a.lse[at] * COH_LOG2E : INFINITY;
        delta[half] = query < a.T ? a.delta[at] : 0.0f;
    }
    coh_attention_drop drop = {};
    if (DROPS)
        drop = coh_attention_drop_of(a, head);
    for (int j = begin, side = 0; j < last; j += ROWS, side = SIDES - 1 - side) {
        const int ahead = j + (SIDES - 1) * ROWS;
        if (ahead < last) {
            uint16_t *to = tiles + (SIDES - 1 - side) * 2 * shape::TILE;
            coh_tile_copy<ROWS, W>(to, k, a.kv_stride, ahead, a.T, a.D);
            coh_tile_copy<ROWS, W>(to + shape::TILE, v, a.kv_stride, ahead, a.T, a.D);
        }
        coh_copy_commit();
        coh_copy_wait<SIDES - 1>();
        __syncthreads();
        const uint16_t *keys = tiles + side * 2 * shape::TILE;
        float s[ROWS / 8][4], dp[ROWS / 8][4];
        coh_tile_scores<ROWS, W>(s, queries + coh_warp() * STRIDE, keys);
        coh_tile_scores<ROWS, W>(dp, dy + coh_warp() * STRIDE, keys + shape::TILE);
        if (!DROPS && a.cap != 0.0f)
            cap_queries<ROWS>(s, dp, delta, a);
        weigh_queries<ROWS, DROPS>(s, dp, lse, delta, drop, a, first, i, j);
        coh_tile_add_weighted<ROWS, W>(dq, dp, keys);
        __syncthreads();
    }
    const float by_scale[2] = { a.scale, a.scale };
    coh_tile_store<W>((uint16_t *)a.dq + q, a.q_stride, i, a.T, a.D, dq, by_scale, a.dq_adds);
}

#define COH_BACKWARD(W, DROPS, drop)                                                               \
    COH_KERNEL(coh_attention_dq_##W##drop, COH_ATTENTION_THREADS, const coh_attention_arguments a) \
    {                                                                                              \
        backward_queries<W, DROPS>(a);                                                             \
    }

/* Without a number of blocks, ptxas 13.0 spills registers in order to fit one more block: on sm_100
 * at any width, on others from 96 on. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1000
#define COH_BOUNDS_USUAL COH_ATTENTION_THREADS, 2
#else
#define COH_BOUNDS_USUAL COH_ATTENTION_THREADS
#endif
#define COH_BOUNDS_WIDE COH_ATTENTION_THREADS, 2
#define COH_BACKWARD_KEYS(name, W, DROPS, WHAT, BOUNDS)                                            \
    COH_KERNEL(coh_attention_##name, COH_BOUNDS_##BOUNDS, const coh_attention_arguments a)         \
    {                                                                                              \
        backward_keys<W, DROPS, WHAT>(a);                                                          \
    }

#define COH_BACKWARD_BOTH(W, BOUNDS)                                                               \
    COH_BACKWARD(W, false, )                                                                       \
    COH_BACKWARD(W, true, _drop)                                                                   \
    COH_BACKWARD_KEYS(dkdv_##W, W, false, GRADIENT_K | GRADIENT_V, BOUNDS)                         \
    COH_BACKWARD_KEYS(dkdv_##W##_drop, W, true, GRADIENT_K | GRADIENT_V, BOUNDS)

COH_BACKWARD_BOTH(32, USUAL)
COH_BACKWARD_BOTH(64, USUAL)
COH_BACKWARD_BOTH(80, USUAL)
COH_BACKWARD_BOTH(96, WIDE)
COH_BACKWARD_BOTH(128, WIDE)
COH_BACKWARD(256, false, )
COH_BACKWARD(256, true, _drop)
COH_BACKWARD_KEYS(dk_256, 256, false, GRADIENT_K, WIDE)
COH_BACKWARD_KEYS(dk_256_drop, 256, true, GRADIENT_K, WIDE)
COH_BACKWARD_KEYS(dv_256, 256, false, GRADIENT_V, WIDE)
COH_BACKWARD_KEYS(dv_256_drop, 256, true, GRADIENT_V, WIDE)
