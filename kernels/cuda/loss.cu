/* loss.cu - softmax of rows, cross-entropy of given logits, and mean squared error
 * (kernels/plain.h). Next: row.cuh; loss.c launches them. The gradient of cross-entropy is
 * classifier_gradient (classifier.cu).
 *
 * Memory-bound: bytes per element, with s = 2 for bf16 and 4 for f32
 *
 *    softmax           y = e^(x - max) / sum           2 s
 *    its gradient      dx = y (dy - sum(y dy))         3 s, 4 s if it adds
 *    cross-entropy     max, sum of each row            s
 *    squared error     sum((x - t)^2)                  2 s; its gradient 3 s or 4 s
 *
 * Rows that their threads cannot hold are read again, from the second-level cache unless the rows
 * in progress exceed it. */
#include "kernels/cuda/row.cuh"

/* ---- softmax ---- */

/* PACKED: a pack is whole or is behind the end. It is 0 for rows that are not held: the arguments
 * say how these are loaded. */
template <typename T, int HELDS, int PACKED>
COH_DEVICE float part_largest(const coh_row<T, HELDS> &row)
{
    constexpr int W = coh_pack<T>;
    const int parts = coh_row_parts<T, HELDS>(row);
    float max = -INFINITY;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width), rest = row.C - at;
        const coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
        if (rest <= 0)
            continue;
#pragma unroll
        for (int i = 0; i < W; i++)
            max = PACKED || i < rest ? fmaxf(max, x.x[i]) : max;
    }
    return max;
}

template <typename T, int HELDS, int PACKED>
COH_DEVICE float part_exponentials(const coh_row<T, HELDS> &row, float max)
{
    constexpr int W = coh_pack<T>;
    const int parts = coh_row_parts<T, HELDS>(row);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width), rest = row.C - at;
        const coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
        if (rest <= 0)
            continue;
#pragma unroll
        for (int i = 0; i < W; i++)
            sum += PACKED || i < rest ? coh_exp(x.x[i] - max) : 0.0f;
    }
    return sum;
}

/* Returns the row of the calling thread among those of the grid. */
COH_DEVICE int64_t row_number(int width)
{
    return (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
}

template <typename T, int HELDS, int PACKED>
COH_DEVICE void softmax_row(const coh_cuda_softmax_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][COH_WARPS_MOST];
    const int packed = HELDS > 0 ? PACKED : a.packed;
    const int64_t n = row_number(a.width);
    const coh_row<T, HELDS> row = coh_row_of<T, HELDS>(
        (const T *)a.x + n * a.columns, n < a.rows ? (int)a.columns : 0, a.width, packed);
    T *y = (T *)a.y + n * a.columns;
    const float max = coh_row_largest(part_largest<T, HELDS, PACKED>(row), slots[0], a.width);
    const float sum = coh_row_sum(part_exponentials<T, HELDS, PACKED>(row, max), slots[1], a.width);
    const float factor = 1.0f / sum;
    const int parts = coh_row_parts<T, HELDS>(row);
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width);
        coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
#pragma unroll
        for (int i = 0; i < W; i++)
            x.x[i] = factor * coh_exp(x.x[i] - max);
        coh_give_part<T, W>(y + at, x, row.C - at, packed, 0);
    }
}

/* Can `width` threads hold a row of this many columns? */
template <typename T> COH_DEVICE bool is_held(int64_t columns, int width)
{
    return columns <= (int64_t)width * COH_HELD * coh_pack<T>;
}

template <typename T> COH_DEVICE void softmax(const coh_cuda_softmax_arguments &a)
{
    if (!is_held<T>(a.columns, a.width))
        softmax_row<T, 0, 0>(a);
    else if (a.packed)
        softmax_row<T, COH_HELD, 1>(a);
    else
        softmax_row<T, COH_HELD, 0>(a);
}
COH_KERNELS(softmax, coh_cuda_softmax_arguments, COH_CUDA_LOSS_THREADS, 1)

template <typename T, int HELDS>
COH_DEVICE void softmax_backward_row(const coh_cuda_softmax_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[COH_WARPS_MOST];
    const int64_t n = row_number(a.width), place = n * a.columns;
    const int columns = n < a.rows ? (int)a.columns : 0;
    const coh_row<T, HELDS> dy =
        coh_row_of<T, HELDS>((const T *)a.x + place, columns, a.width, a.packed);
    const coh_row<T, HELDS> p =
        coh_row_of<T, HELDS>((const T *)a.p + place, columns, a.width, a.packed);
    const int parts = coh_row_parts<T, HELDS>(dy);
    float dot = 0.0f;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, a.width);
        const coh_floats<W> g = coh_row_part<T, HELDS>(dy, k, at);
        const coh_floats<W> y = coh_row_part<T, HELDS>(p, k, at);
#pragma unroll
        for (int i = 0; i < W; i++)
            dot += g.x[i] * y.x[i]; /* zeros behind the row's end */
    }
    dot = coh_row_sum(dot, slots, a.width);
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, a.width);
        const coh_floats<W> g = coh_row_part<T, HELDS>(dy, k, at);
        coh_floats<W> y = coh_row_part<T, HELDS>(p, k, at);
#pragma unroll
        for (int i = 0; i < W; i++)
            y.x[i] *= g.x[i] - dot;
        coh_give_part<T, W>((T *)a.y + place + at, y, columns - at, a.packed, a.adds);
    }
}

/* From sm_100 on the compiler spills registers where two rows are held: both are read twice. */
template <typename T> COH_DEVICE void softmax_backward(const coh_cuda_softmax_arguments &a)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1000
    if (is_held<T>(a.columns, a.width)) {
        softmax_backward_row<T, COH_HELD>(a);
        return;
    }
#endif
    softmax_backward_row<T, 0>(a);
}
COH_KERNELS(softmax_backward, coh_cuda_softmax_arguments, COH_CUDA_LOSS_THREADS, 1)

/* ---- cross-entropy ---- */

template <typename T, int HELDS, int PACKED>
COH_DEVICE void entropy_row(const coh_cuda_entropy_arguments &a)
{
    __shared__ float slots[2][COH_WARPS_MOST];
    const int64_t n = row_number(a.width);
    const coh_row<T, HELDS> row =
        coh_row_of<T, HELDS>((const T *)a.x + n * a.columns, n < a.rows ? (int)a.columns : 0,
                             a.width, HELDS > 0 ? PACKED : a.packed);
    const int32_t target = row.C > 0 ? a.targets[n] : -1; /* loaded while the row is */
    const bool counts = target >= 0 && target < row.C;    /* else the index check reports it */
    const float logit = counts ? coh_take<T, 1>(row.x + target).x[0] : 0.0f;
    const float max = coh_row_largest(part_largest<T, HELDS, PACKED>(row), slots[0], a.width);
    const float sum = coh_row_sum(part_exponentials<T, HELDS, PACKED>(row, max), slots[1], a.width);
    if (row.C == 0 || threadIdx.x % a.width != 0)
        return;
    a.max[n] = max;
    a.sum[n] = sum;
    if (a.target_logit != nullptr)
        a.target_logit[n] = logit;
    if (a.each != nullptr)
        a.each[n] = counts ? (float)((double)max - (double)logit + log((double)sum)) : 0.0f;
}

template <typename T> COH_DEVICE void entropy(const coh_cuda_entropy_arguments &a)
{
    if (!is_held<T>(a.columns, a.width))
        entropy_row<T, 0, 0>(a);
    else if (a.packed)
        entropy_row<T, COH_HELD, 1>(a);
    else
        entropy_row<T, COH_HELD, 0>(a);
}
COH_KERNELS(entropy, coh_cuda_entropy_arguments, COH_CUDA_LOSS_THREADS, 1)

/* ---- mean squared error ----
 *
 * A block sums a grain in double, whose squares of floats are exact; one block adds the grains. */

/* Elements at a time of x in T and of the target in Target. */
template <typename T, typename Target>
constexpr int both_pack = coh_pack<T> < coh_pack<Target> ? coh_pack<T> : coh_pack<Target>;

template <typename T, typename Target>
COH_DEVICE double squares_of(const coh_cuda_squares_arguments &a)
{
    constexpr int W = both_pack<T, Target>;
    const int64_t begin = (int64_t)blockIdx.x * COH_CUDA_SQUARES_GRAIN;
    const int64_t end = min(begin + COH_CUDA_SQUARES_GRAIN, a.count);
    double sum = 0.0;
#pragma unroll 4
    for (int64_t at = begin + (int64_t)threadIdx.x * W; at < end;
         at += COH_CUDA_SQUARES_THREADS * W) {
        const int whole = a.packed && end - at >= W; /* the last pack may be cut */
        const coh_floats<W> x =
            coh_open<T, W>(coh_fetch_part<T, W>((const T *)a.x + at, end - at, whole));
        const coh_floats<W> t = coh_open<Target, W>(
            coh_fetch_part<Target, W>((const Target *)a.target + at, end - at, whole));
#pragma unroll
        for (int i = 0; i < W; i++) {
            const double away = (double)(x.x[i] - t.x[i]);
            sum = fma(away, away, sum);
        }
    }
    return sum;
}

template <typename T> COH_DEVICE void squares(const coh_cuda_squares_arguments &a)
{
    __shared__ double slots[COH_WARPS_MOST];
    const double sum = a.f32_target ? squares_of<T, float>(a) : squares_of<T, T>(a);
    const double total = coh_row_sum(sum, slots, COH_CUDA_SQUARES_THREADS);
    if (threadIdx.x == 0)
        a.partials[blockIdx.x] = total;
}
COH_KERNELS(squares, coh_cuda_squares_arguments, COH_CUDA_SQUARES_THREADS, 4)

COH_KERNEL_OF(coh_squares_loss, COH_CUDA_LOSS_THREADS, 1,
              const __grid_constant__ coh_cuda_squares_loss_arguments a)
{
    __shared__ double slots[COH_WARPS_MOST];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < a.partial_count; i += COH_CUDA_LOSS_THREADS)
        sum += a.partials[i];
    sum = coh_row_sum(sum, slots, COH_CUDA_LOSS_THREADS);
    if (threadIdx.x == 0)
        *a.loss = (float)(sum / (double)a.items);
}

/* dx = factor (x - target), dtarget = -dx. */
template <typename T, typename Target, int W>
COH_DEVICE void squares_slope(const coh_cuda_squares_arguments &a, int64_t begin, int64_t end)
{
    const float scale = a.loss_factor != nullptr ? a.share * *a.loss_factor : a.share;
    const float factor = 2.0f * scale / (float)a.count;
    COH_EACH(at, begin, end, W)
    {
        coh_floats<W> d = coh_take<T, W>((const T *)a.x + at);
        const coh_floats<W> t = coh_take<Target, W>((const Target *)a.target + at);
#pragma unroll
        for (int i = 0; i < W; i++)
            d.x[i] = factor * (d.x[i] - t.x[i]);
        if (a.dx != nullptr)
            coh_give<T, W>((T *)a.dx + at, d, a.dx_adds);
#pragma unroll
        for (int i = 0; i < W; i++)
            d.x[i] = -d.x[i];
        if (a.dtarget != nullptr)
            coh_give<Target, W>((Target *)a.dtarget + at, d, a.dtarget_adds);
    }
}

template <typename T, typename Target>
COH_DEVICE void squares_slopes(const coh_cuda_squares_arguments &a)
{
    constexpr int W = both_pack<T, Target>;
    const int64_t whole = a.packed ? a.count - a.count % W : 0;
    squares_slope<T, Target, W>(a, 0, whole);
    squares_slope<T, Target, 1>(a, whole, a.count);
}

template <typename T> COH_DEVICE void squares_backward(const coh_cuda_squares_arguments &a)
{
    if (a.f32_target)
        squares_slopes<T, float>(a);
    else
        squares_slopes<T, T>(a);
}
COH_KERNELS(squares_backward, coh_cuda_squares_arguments, 256, 4)
