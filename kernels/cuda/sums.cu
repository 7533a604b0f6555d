/* sums.cu - sums over the rows of a matrix, alone and with the gradient before an activation, and
 * means over an axis. Next: row.cuh; sums.c launches them.
 *
 * Memory-bound. Both read each row once and keep a column's sum in a register; the order of a sum
 * follows from the number of rows alone. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/row.cuh"

/* ---- column sums ----
 *
 * For few rows, and for the sums of pieces: a block takes a strip of 32 bytes, DRAM's smallest
 * access, of every row: two packs side by side, 256 rows at a time. Neighbouring strips are read at
 * about the same time. Each thread adds up its rows (n, n + 256, ...), then the sixteen
 * row lanes of a warp are added as a tree, then the warps in order: an error of rows / 256 + 20
 * roundings. */
#define SUM_PACKS 2
#define SUM_WARPS (COH_CUDA_SUM_THREADS / COH_WARP)
#define SUM_LANES (COH_CUDA_SUM_THREADS / SUM_PACKS)

/* Sums `rows` rows of the strip of x that begins at `first`; thread i < strip gets the sum of
 * column first + i. */
template <typename From, typename Sum>
COH_DEVICE Sum strip_sum(const From *x, int64_t rows, int64_t columns, int64_t stride,
                         int64_t first, int packed)
{
    constexpr int W = coh_pack<From>, strip = W * SUM_PACKS;
    __shared__ Sum warps[SUM_WARPS][strip];
    const int part = threadIdx.x % SUM_PACKS;
    const int64_t column = first + part * W;
    Sum sum[W] = {};
#pragma unroll 4
    for (int64_t n = threadIdx.x / SUM_PACKS; n < rows; n += SUM_LANES) {
        const coh_floats<W> row = coh_open<From, W>(
            coh_fetch_part<From, W>(x + column + n * stride, columns - column, packed));
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += row.x[i];
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
#pragma unroll
        for (int apart = COH_WARP / 2; apart >= SUM_PACKS; apart /= 2)
            sum[i] += __shfl_xor_sync(COH_ALL_LANES, sum[i], apart);
        if (threadIdx.x % COH_WARP < SUM_PACKS)
            warps[threadIdx.x / COH_WARP][part * W + i] = sum[i];
    }
    __syncthreads();
    Sum total = 0;
    for (int warp = 0; warp < SUM_WARPS && threadIdx.x < strip; warp++)
        total += warps[warp][threadIdx.x];
    return total;
}

/* Returns the column of the calling thread, or -1 if it has none. */
template <typename From> COH_DEVICE int64_t strip_column(int64_t columns)
{
    constexpr int strip = coh_pack<From> * SUM_PACKS;
    const int64_t column = (int64_t)blockIdx.x * strip + threadIdx.x;
    return threadIdx.x < strip && column < columns ? column : -1;
}

template <typename From, typename To>
COH_DEVICE void column_sum_of(const coh_cuda_column_sum_arguments &a)
{
    const int64_t first = (int64_t)blockIdx.x * coh_pack<From> * SUM_PACKS;
    const From *x = (const From *)a.x + blockIdx.y * a.columns;
    void *sums = blockIdx.y == 0 ? a.sums : a.second;
    const int adds = blockIdx.y == 0 ? a.adds : a.second_adds;
    const float total = strip_sum<From, float>(x, a.rows, a.columns, a.stride, first, a.packed);
    const int64_t column = strip_column<From>(a.columns);
    if (column < 0)
        return;
    if (a.f32_sums)
        coh_give<float, 1>((float *)sums + column, { { total } }, adds);
    else
        coh_give<To, 1>((To *)sums + column, { { total } }, adds);
}

template <typename T> COH_DEVICE void column_sum(const coh_cuda_column_sum_arguments &a)
{
    column_sum_of<T, T>(a);
}
COH_KERNELS(column_sum, coh_cuda_column_sum_arguments, COH_CUDA_SUM_THREADS, 2)

/* Sums of many rows, by pieces of COH_CUDA_PIECE_ROWS, which fill a GPU even for few columns. A
 * warp takes a strip of 32 packs of every eighth row of a piece, and the warps' sums are added in
 * order. partial_sum folds the pieces. */
#define PIECE_WARPS (COH_CUDA_PIECE_THREADS / COH_WARP)
template <typename T> COH_DEVICE void column_pieces(const coh_cuda_column_sum_arguments &a)
{
    constexpr int W = coh_pack<T>, strip = W * COH_WARP;
    __shared__ float warps[PIECE_WARPS][strip];
    const int lane = threadIdx.x % COH_WARP, warp = threadIdx.x / COH_WARP;
    const int64_t first = (int64_t)blockIdx.y * strip, left = a.columns - first - lane * W;
    const int64_t begin = (int64_t)blockIdx.x * COH_CUDA_PIECE_ROWS;
    const int64_t end = min(begin + COH_CUDA_PIECE_ROWS, a.rows);
    const T *x = (const T *)a.x + first + lane * W;
    float sum[W] = {};
#pragma unroll 4
    for (int64_t n = begin + warp; n < end; n += PIECE_WARPS) {
        const coh_floats<W> row =
            coh_open<T, W>(coh_fetch_part<T, W>(x + n * a.stride, left, a.packed));
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += row.x[i];
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        warps[warp][lane * W + i] = sum[i];
    __syncthreads();
    for (int at = threadIdx.x; at < strip && first + at < a.columns; at += COH_CUDA_PIECE_THREADS) {
        float total = 0.0f;
        for (int from = 0; from < PIECE_WARPS; from++)
            total += warps[from][at];
        ((float *)a.sums)[blockIdx.x * a.columns + first + at] = total;
    }
}
COH_KERNELS(column_pieces, coh_cuda_column_sum_arguments, COH_CUDA_PIECE_THREADS, 4)

/* Column sums of f32 partial sums, stored as T. */
template <typename T> COH_DEVICE void partial_sum(const coh_cuda_column_sum_arguments &a)
{
    column_sum_of<float, T>(a);
}
COH_KERNELS(partial_sum, coh_cuda_column_sum_arguments, COH_CUDA_SUM_THREADS, 2)

/* ---- means, of sums in double ----
 *
 * Over the last axis: each row has `width` threads, as in row.cuh. */
template <typename T> COH_DEVICE void row_mean(const coh_cuda_mean_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ double slots[COH_WARPS_MOST];
    const int64_t n = (int64_t)blockIdx.x * (blockDim.x / a.width) + threadIdx.x / a.width;
    const T *x = (const T *)a.x + n * a.count;
    const int columns = n < a.outer ? (int)a.count : 0;
    double sum = 0.0;
    for (int at = coh_part_begin<W>(0, a.width); at < columns; at += a.width * W) {
        const coh_floats<W> part =
            coh_open<T, W>(coh_fetch_part<T, W>(x + at, columns - at, a.packed));
#pragma unroll
        for (int i = 0; i < W; i++)
            sum += part.x[i];
    }
    sum = coh_row_sum(sum, slots, a.width);
    if (columns > 0 && threadIdx.x % a.width == 0)
        coh_put<T, 1>((T *)a.y + n, { { (float)(sum / (double)a.count) } });
}
COH_KERNELS(row_mean, coh_cuda_mean_arguments, 1024, 1)

/* Over another axis: column sums of each of the outer matrices, one along y of the grid. */
template <typename T> COH_DEVICE void column_mean(const coh_cuda_mean_arguments &a)
{
    const int64_t first = (int64_t)blockIdx.x * coh_pack<T> * SUM_PACKS;
    for (int64_t block = blockIdx.y; block < a.outer; block += gridDim.y) {
        const T *x = (const T *)a.x + block * a.count * a.inner;
        const double sum = strip_sum<T, double>(x, a.count, a.inner, a.inner, first, a.packed);
        const int64_t column = strip_column<T>(a.inner);
        if (column >= 0)
            coh_put<T, 1>((T *)a.y + block * a.inner + column,
                          { { (float)(sum / (double)a.count) } });
        __syncthreads(); /* before the sums of the next block */
    }
}
/* On sm_120 the compiler spills registers for the sake of a second block. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1200
#define MEAN_BLOCKS 1
#else
#define MEAN_BLOCKS 2
#endif
COH_KERNELS(column_mean, coh_cuda_mean_arguments, COH_CUDA_SUM_THREADS, MEAN_BLOCKS)

/* ---- the gradient before an activation ----
 *
 * dh = dy gelu'(h), or dy where relu's y is above 0, with its column sums while it is in registers.
 * A block takes COH_CUDA_GRADIENT_ROWS rows of a strip, one pack of columns per thread; partial_sum
 * folds the blocks' sums, which are a thirty-second of the elements. */
template <typename T, int W, int IS_RELU>
COH_DEVICE void gradient_strip(const coh_cuda_activation_gradient_arguments &a)
{
    const int64_t column = ((int64_t)blockIdx.y * COH_CUDA_GRADIENT_THREADS + threadIdx.x) * W;
    const int64_t begin = (int64_t)blockIdx.x * COH_CUDA_GRADIENT_ROWS;
    const int64_t end = min(begin + COH_CUDA_GRADIENT_ROWS, a.N);
    coh_floats<W> sum = {};
    if (column >= a.O)
        return;
#pragma unroll 2
    for (int64_t n = begin; n < end; n++) {
        const int64_t at = n * a.O + column;
        const coh_floats<W> of = coh_take<T, W>((const T *)a.of + at);
        coh_floats<W> dh = coh_take<T, W>((const T *)a.dy + at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            if constexpr (IS_RELU)
                dh.x[i] = of.x[i] > 0.0f ? dh.x[i] : 0.0f;
            else
                dh.x[i] *= coh_gelu_slope(of.x[i]);
            sum.x[i] += dh.x[i];
        }
        coh_put<T, W>((T *)a.dh + at, dh);
    }
    if (a.partials != nullptr)
        coh_put<float, W>(a.partials + blockIdx.x * a.O + column, sum);
}

template <typename T> COH_DEVICE void gelu_gradient(const coh_cuda_activation_gradient_arguments &a)
{
    if (a.packed)
        gradient_strip<T, coh_pack<T>, 0>(a);
    else
        gradient_strip<T, 1, 0>(a);
}
COH_KERNELS(gelu_gradient, coh_cuda_activation_gradient_arguments, COH_CUDA_GRADIENT_THREADS, 8)

template <typename T> COH_DEVICE void relu_gradient(const coh_cuda_activation_gradient_arguments &a)
{
    if (a.packed)
        gradient_strip<T, coh_pack<T>, 1>(a);
    else
        gradient_strip<T, 1, 1>(a);
}
COH_KERNELS(relu_gradient, coh_cuda_activation_gradient_arguments, COH_CUDA_GRADIENT_THREADS, 8)
