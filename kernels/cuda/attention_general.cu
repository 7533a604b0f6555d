/* Causal attention of any head up to 512 wide, in f32 and bf16: for all f32, and for bf16 rows that
 * are not 16-byte aligned or are wider than the tile kernels'. The formulas and the order of work
 * are those of attention_forward.cu and attention_backward.cu, but with f32 products of 32 x 32
 * scores, so at about a tenth of their speed in bf16. It also computes delta, which both versions
 * need. Next: attention.c.
 *
 * 256 threads: thread (ty, tx) of 16 x 16 has rows ty and ty + 16, and columns tx and tx + 16 of a
 * tile of scores; of sums as wide as a head it has columns tx + 16 m. Operands pass through shared
 * memory in strips of 32 columns. A row there is one element longer, so that a column's elements
 * lie in different banks. Sums are in shared memory as well, each read only by its own thread. */
#include "kernels/cuda/attention_element.cuh"
#include "kernels/cuda/attention_tile.cuh"

enum { ROWS = COH_ATTENTION_GENERAL_ROWS, THREADS = COH_ATTENTION_GENERAL_THREADS };

/* Rows of one head, from `first` on; there are T. */
template <typename E> struct head_rows {
    E *row0;
    int64_t stride;
    int first;
};

template <typename E>
static __device__ __forceinline__ head_rows<E> rows_of(E *tensor, int64_t row, int64_t stride,
                                                       int64_t column, int first)
{
    head_rows<E> rows = { tensor + row * stride + column, stride, first };
    return rows;
}

struct strip {
    float x[ROWS][33];
};

/* Loads columns [d, d + 32) of 32 rows; zeros after T and D. */
template <typename E>
static __device__ __forceinline__ void bring(strip *to, const head_rows<const E> &from, int d,
                                             int T, int D)
{
    for (int i = (int)threadIdx.x; i < ROWS * 32; i += THREADS) {
        const int row = from.first + i / 32, column = d + i % 32;
        to->x[i / 32][i % 32] = row < T && column < D
                                    ? coh_attention_read(from.row0 + row * from.stride + column)
                                    : 0.0f;
    }
}

/* s = the scores of 32 rows against 32 others; every thread takes part. */
template <typename E>
static __device__ __forceinline__ void multiply(float s[2][2], const head_rows<const E> &rows,
                                                const head_rows<const E> &others, int T, int D)
{
    __shared__ strip a, b;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    s[0][0] = s[0][1] = s[1][0] = s[1][1] = 0.0f;
    for (int d = 0; d < D; d += 32) {
        __syncthreads();
        bring(&a, rows, d, T, D);
        bring(&b, others, d, T, D);
        __syncthreads();
#pragma unroll 4
        for (int c = 0; c < 32; c++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[e / 2][e % 2] += a.x[ty + e / 2 * 16][c] * b.x[tx + e % 2 * 16][c];
    }
}

/* A block's sums: 32 rows of columns [begin, end) of a head; `values` are this thread's. */
struct sums {
    float *values;
    int begin, end;
};

/* Returns the index-th of a block's sums, which all have as many columns; all zero. */
static __device__ __forceinline__ sums sums_of(int index, int begin, int end)
{
    const int count = (end - begin + 31) / 32 * 4; /* per thread */
    sums sum = { (float *)coh_shared() + index * count * THREADS + threadIdx.x, begin, end };
    for (int i = 0; i < count; i++)
        sum.values[i * THREADS] = 0.0f;
    return sum;
}

/* Returns this thread's sum of row ty + 16 (e / 2) in the strip from column d on. */
static __device__ __forceinline__ float *sum_at(const sums &sum, int d, int e)
{
    return &sum.values[((d - sum.begin) / 32 * 4 + e) * THREADS];
}

/* sum += weights x others */
template <typename E>
static __device__ __forceinline__ void add_weighted(const sums &sum, const strip *weights,
                                                    const head_rows<const E> &others, int T, int D)
{
    __shared__ strip b;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (int d = sum.begin; d < sum.end; d += 32) {
        __syncthreads();
        bring(&b, others, d, T, D);
        __syncthreads();
        float part[4] = {};
#pragma unroll 4
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                part[e] += weights->x[ty + e / 2 * 16][k] * b.x[k][tx + e % 2 * 16];
#pragma unroll
        for (int e = 0; e < 4; e++)
            *sum_at(sum, d, e) += part[e];
    }
}

template <typename E>
static __device__ __forceinline__ void store(const head_rows<E> &to, const sums &sum,
                                             const float factor[2], int adds, int T)
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (int d = sum.begin; d < sum.end; d += 32)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = to.first + ty + e / 2 * 16, column = d + tx + e % 2 * 16;
            if (row >= T || column >= sum.end)
                continue;
            E *at = to.row0 + row * to.stride + column;
            coh_attention_write(at, *sum_at(sum, d, e) * factor[e / 2] +
                                        (adds ? coh_attention_read(at) : 0.0f));
        }
}

/* Returns dropout's factor of the weight of query i and key j; 1 if nothing is dropped. */
static __device__ __forceinline__ float kept_of(const coh_attention_drop &drop, int i, int j)
{
    if (drop.threshold == 0)
        return 1.0f;
    uint32_t x[4];
    coh_drop_words(x, drop, i, j - j % 4);
    return coh_drop_factor(drop, coh_pick(x, j % 4));
}

static __device__ __forceinline__ coh_attention_drop drop_of(const coh_attention_arguments &a,
                                                             int64_t head)
{
    coh_attention_drop none = {};
    return a.drop_threshold == 0 ? none : coh_attention_drop_of(a, head);
}

static __device__ __forceinline__ float score_of(float product, const coh_attention_arguments &a)
{
    return a.cap == 0.0f ? product * a.scale : a.cap * tanhf(product * a.to_cap);
}

/* ---- forward ---- */

/* Takes 32 scores of a row, in sixteen lanes: updates the running maximum and sum, and turns scores
 * into weights times dropout's factor. Returns the factor of earlier sums. */
static __device__ __forceinline__ float weigh_row(float s[2], float *max, float *sum,
                                                  const coh_attention_drop &drop, int first, int i,
                                                  int j)
{
    float most = *max;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        if (!coh_sees(i, j + 16 * c, first))
            s[c] = -INFINITY;
        most = fmaxf(most, s[c]);
    }
    for (int with = 8; with > 0; with /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, with));
    const float factor = expf(*max - most);
    *max = most;
    *sum *= factor;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        s[c] = expf(s[c] - most);
        *sum += s[c];
        s[c] *= kept_of(drop, i, j + 16 * c);
    }
    return factor;
}

template <typename E>
static __device__ __forceinline__ void forward(const coh_attention_arguments &a)
{
    __shared__ strip weights;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, head = (int)blockIdx.x;
    const int i = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, last = min(i + (int)ROWS, a.T);
    const int64_t row = head / a.H * (int64_t)a.T, h = head % a.H, g = h / (a.H / a.G);
    const head_rows<const E> q = rows_of((const E *)a.q, row, a.q_stride, h * a.D, i);
    const coh_attention_drop drop = drop_of(a, head);
    const sums sum = sums_of(0, 0, a.D);
    const int first[2] = { coh_first_key(a, head / a.H, i + ty),
                           coh_first_key(a, head / a.H, i + ty + 16) };
    float max[2] = { COH_MAX_BEFORE, COH_MAX_BEFORE }, total[2] = {}, s[2][2];
    for (int j = coh_first_keys(a, head / a.H, i, ROWS); j < last; j += ROWS) {
        multiply(s, q, rows_of((const E *)a.k, row, a.kv_stride, g * a.D, j), a.T, a.D);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            s[r][0] = score_of(s[r][0], a);
            s[r][1] = score_of(s[r][1], a);
            const float factor =
                weigh_row(s[r], &max[r], &total[r], drop, first[r], i + ty + 16 * r, j + tx);
            for (int d = 0; d < a.D; d += 32)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    *sum_at(sum, d, 2 * r + c) *= factor;
            weights.x[ty + 16 * r][tx] = s[r][0];
            weights.x[ty + 16 * r][tx + 16] = s[r][1];
        }
        add_weighted(sum, &weights, rows_of((const E *)a.v, row, a.kv_stride, g * a.D, j), a.T,
                     a.D);
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        for (int with = 8; with > 0; with /= 2)
            total[r] += __shfl_xor_sync(0xffffffffu, total[r], with);
        factor[r] = 1.0f / total[r];
        if (tx == 0 && i + ty + 16 * r < a.T)
            a.lse[(int64_t)head * a.T + i + ty + 16 * r] = max[r] + logf(total[r]);
    }
    store(rows_of((E *)a.y, row, (int64_t)a.H * a.D, h * a.D, i), sum, factor, 0, a.T);
}

/* ---- backward ---- */

/* Returns ds of query i and key j from its score and dp; *weight is the weight after dropout. */
static __device__ __forceinline__ float slope_of(const coh_attention_arguments &a, int64_t head,
                                                 const coh_attention_drop &drop, float s, float dp,
                                                 int i, int j, float *weight)
{
    *weight = 0.0f;
    if (i >= a.T || !coh_sees(i, j, coh_first_key(a, (int)(head / a.H), i)))
        return 0.0f;
    const float score = score_of(s, a), tangent = score * a.from_cap;
    const float p = expf(score - a.lse[head * a.T + i]), kept = kept_of(drop, i, j);
    *weight = kept * p;
    return p * (kept * dp - a.delta[head * a.T + i]) * (1.0f - tangent * tangent);
}

/* Adds the contribution of one head's queries from i on to 32 keys. */
template <typename E>
static __device__ __forceinline__ void add_queries(const coh_attention_arguments &a, int64_t b,
                                                   int64_t h, int i, int j, const sums &dk,
                                                   const sums &dv)
{
    __shared__ strip weights, slopes;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const int64_t row = b * a.T, head = b * a.H + h, g = h / (a.H / a.G);
    const head_rows<const E> q = rows_of((const E *)a.q, row, a.q_stride, h * a.D, i);
    const head_rows<const E> dy = rows_of((const E *)a.dy, row, (int64_t)a.H * a.D, h * a.D, i);
    const coh_attention_drop drop = drop_of(a, head);
    float s[2][2], dp[2][2];
    multiply(s, rows_of((const E *)a.k, row, a.kv_stride, g * a.D, j), q, a.T, a.D);
    multiply(dp, rows_of((const E *)a.v, row, a.kv_stride, g * a.D, j), dy, a.T, a.D);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int key = ty + e / 2 * 16, query = tx + e % 2 * 16;
        slopes.x[key][query] = slope_of(a, head, drop, s[e / 2][e % 2], dp[e / 2][e % 2], i + query,
                                        j + key, &weights.x[key][query]);
    }
    add_weighted(dv, &weights, dy, a.T, a.D);
    add_weighted(dk, &slopes, q, a.T, a.D);
}

template <typename E>
static __device__ __forceinline__ void backward_keys(const coh_attention_arguments &a)
{
    const int j = (int)blockIdx.y * ROWS, shared = a.H / a.G;
    const int64_t b = blockIdx.x / a.G, g = blockIdx.x % a.G;
    const int column = (int)blockIdx.z * COH_ATTENTION_GENERAL_COLUMNS;
    const int end = min(column + COH_ATTENTION_GENERAL_COLUMNS, a.D);
    const int last = coh_end_query(a, (int)b, min(j + (int)ROWS, a.T) - 1);
    const sums dk = sums_of(0, column, end), dv = sums_of(1, column, end);
    for (int64_t h = g * shared; h < (g + 1) * shared; h++)
        for (int i = j; i < last; i += ROWS)
            add_queries<E>(a, b, h, i, j, dk, dv);
    const float by_one[2] = { 1.0f, 1.0f }, by_scale[2] = { a.scale, a.scale };
    if (a.dk != NULL)
        store(rows_of((E *)a.dk, b * a.T, a.kv_stride, g * a.D, j), dk, by_scale, a.dk_adds, a.T);
    if (a.dv != NULL)
        store(rows_of((E *)a.dv, b * a.T, a.kv_stride, g * a.D, j), dv, by_one, a.dv_adds, a.T);
}

template <typename E>
static __device__ __forceinline__ void backward_queries(const coh_attention_arguments &a)
{
    __shared__ strip slopes;
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, head = (int)blockIdx.x;
    const int i = (int)(gridDim.y - 1 - blockIdx.y) * ROWS, last = min(i + (int)ROWS, a.T);
    const int64_t row = head / a.H * (int64_t)a.T, h = head % a.H, g = h / (a.H / a.G);
    const head_rows<const E> q = rows_of((const E *)a.q, row, a.q_stride, h * a.D, i);
    const head_rows<const E> dy = rows_of((const E *)a.dy, row, (int64_t)a.H * a.D, h * a.D, i);
    const coh_attention_drop drop = drop_of(a, head);
    const sums dq = sums_of(0, 0, a.D);
    float s[2][2], dp[2][2], weight;
    for (int j = coh_first_keys(a, head / a.H, i, ROWS); j < last; j += ROWS) {
        const head_rows<const E> k = rows_of((const E *)a.k, row, a.kv_stride, g * a.D, j);
        multiply(s, q, k, a.T, a.D);
        multiply(dp, dy, rows_of((const E *)a.v, row, a.kv_stride, g * a.D, j), a.T, a.D);
#pragma unroll
        for (int e = 0; e < 4; e++)
            slopes.x[ty + e / 2 * 16][tx + e % 2 * 16] =
                slope_of(a, head, drop, s[e / 2][e % 2], dp[e / 2][e % 2], i + ty + e / 2 * 16,
                         j + tx + e % 2 * 16, &weight);
        add_weighted(dq, &slopes, k, a.T, a.D);
    }
    const float by_scale[2] = { a.scale, a.scale };
    store(rows_of((E *)a.dq, row, a.q_stride, h * a.D, i), dq, by_scale, a.dq_adds, a.T);
}

/* Asks for only one block per multiprocessor: for more, ptxas would spill. */
#define GENERAL_BOUNDS COH_ATTENTION_GENERAL_THREADS, 1

/* Grid: heads, blocks of rows and, for keys, of columns. dq may be dy and y may be q, since a block
 * reads whole rows of them. */
#define COH_GENERAL(element, E)                                                                    \
    COH_KERNEL(coh_attention_forward_##element, GENERAL_BOUNDS, const coh_attention_arguments a)   \
    {                                                                                              \
        forward<E>(a);                                                                             \
    }                                                                                              \
    COH_KERNEL(coh_attention_dkdv_##element, GENERAL_BOUNDS, const coh_attention_arguments a)      \
    {                                                                                              \
        backward_keys<E>(a);                                                                       \
    }                                                                                              \
    COH_KERNEL(coh_attention_dq_##element, GENERAL_BOUNDS, const coh_attention_arguments a)        \
    {                                                                                              \
        backward_queries<E>(a);                                                                    \
    }

COH_GENERAL(f32, float)
COH_GENERAL(bf16, uint16_t)

/* ---- delta ---- */

/* One warp per row of one head. Grid: rows of all heads, COH_ATTENTION_DELTA_ROWS per block, in
 * dy's order of rows and heads. */
template <typename E>
static __device__ __forceinline__ void delta_row(const coh_attention_arguments &a)
{
    const int64_t index = blockIdx.x * (int64_t)COH_ATTENTION_DELTA_ROWS + coh_warp();
    if (index >= a.rows)
        return;
    const E *dy = (const E *)a.dy + index * a.D, *y = (const E *)a.y + index * a.D;
    float sum = 0.0f;
    for (int d = coh_lane(); d < a.D; d += 32)
        sum += coh_attention_read(dy + d) * coh_attention_read(y + d);
    for (int with = 16; with > 0; with /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, with);
    const int64_t token = index / a.H, h = index % a.H;
    if (coh_lane() == 0)
        a.delta[(token / a.T * a.H + h) * a.T + token % a.T] = sum;
}

COH_KERNEL(coh_attention_delta_f32, 32 * COH_ATTENTION_DELTA_ROWS, const coh_attention_arguments a)
{
    delta_row<float>(a);
}

COH_KERNEL(coh_attention_delta_bf16, 32 * COH_ATTENTION_DELTA_ROWS, const coh_attention_arguments a)
{
    delta_row<uint16_t>(a);
}
