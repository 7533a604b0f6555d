/* norm.cu - layer norm and RMS norm, forward and backward (coh_norm). Next: row.cuh; norm.c
 * launches them.
 *
 * Memory-bound: x, dy and the results are moved once. A row belongs to `width` threads, and a block
 * has several rows if they are short.
 *
 * `mean` NULL: RMS norm, that is, a mean of zero and no bias. C is below 2^31. */
#include "kernels/cuda/row.cuh"

/* ---- forward ----
 *
 * Mean, variance (around the mean, because E[x^2] - mean^2 cancels) and y need one load of a row
 * that is held (row.cuh). */

/* Sums (x - from)^2 over this thread's parts, or x. */
template <typename T, int HELDS, int IS_SQUARE>
COH_DEVICE float part_sum(const coh_row<T, HELDS> &row, float from)
{
    constexpr int W = coh_pack<T>;
    const int parts = coh_row_parts<T, HELDS>(row);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width);
        const coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            const float away = at + i < row.C ? x.x[i] - from : 0.0f;
            sum += IS_SQUARE ? away * away : away;
        }
    }
    return sum;
}

template <typename T, int HELDS>
COH_DEVICE void put_row(const coh_cuda_norm_arguments &a, const coh_row<T, HELDS> &row, T *y,
                        float mean, float rstd)
{
    constexpr int W = coh_pack<T>;
    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    const int parts = coh_row_parts<T, HELDS>(row);
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width), rest = row.C - at;
        coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
        const coh_floats<W> w =
            coh_open<T, W>(coh_fetch_part_again<T, W>(weight + at, rest, a.packed));
        coh_floats<W> b = {};
        if (bias != nullptr)
            b = coh_open<T, W>(coh_fetch_part_again<T, W>(bias + at, rest, a.packed));
#pragma unroll
        for (int i = 0; i < W; i++)
            x.x[i] = (x.x[i] - mean) * rstd * (w.x[i] + a.offset) + b.x[i];
        coh_give_part<T, W>(y + at, x, rest, a.packed, 0);
    }
}

template <typename T, int HELDS> COH_DEVICE void norm_row(const coh_cuda_norm_arguments &a)
{
    __shared__ float slots[2][COH_WARPS_MOST];
    const int64_t rows = blockDim.x / a.width;
    const int64_t n = blockIdx.x * rows + threadIdx.x / a.width;
    const int is_row = n < a.N; /* other threads only take part in barriers */
    const coh_row<T, HELDS> row =
        coh_row_of<T, HELDS>((const T *)a.x + n * a.C, is_row ? (int)a.C : 0, a.width, a.packed);
    const float C = (float)a.C;
    float mean = 0.0f;
    if (a.mean != nullptr)
        mean = coh_row_sum(part_sum<T, HELDS, 0>(row, 0.0f), slots[0], a.width) / C;
    const float variance = coh_row_sum(part_sum<T, HELDS, 1>(row, mean), slots[1], a.width) / C;
    const float rstd = 1.0f / sqrtf(variance + a.epsilon);
    put_row<T, HELDS>(a, row, (T *)a.y + n * a.C, mean, rstd);
    if (is_row && threadIdx.x % a.width == 0) {
        a.rstd[n] = rstd;
        if (a.mean != nullptr)
            a.mean[n] = mean;
    }
}

template <typename T> COH_DEVICE void norm(const coh_cuda_norm_arguments &a)
{
    if (a.C <= (int64_t)a.width * COH_HELD * coh_pack<T>)
        norm_row<T, COH_HELD>(a);
    else
        norm_row<T, 0>(a);
}
COH_KERNELS(norm, coh_cuda_norm_arguments, 1024, 1)

/* ---- backward ----
 *
 * With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)), dweight = sum
 * over rows of dy n, dbias of dy. A block takes `block_rows` rows. Each thread has the same pack of
 * columns in all of them, and their two sums stay in registers. The next row is loaded before this
 * one's sums are known. Blocks write partial sums, which partial_sum folds (sums.cu): at most as
 * many as two rounds of a GPU of 132 multiprocessors have blocks. */
#define FOLD_MOST COH_CUDA_NORM_BLOCK /* threads of a block that has more than one row at a time */

template <typename T> struct row_pair {
    coh_raw<T, coh_pack<T>> x, dy;
};

/* Loads up to `rest` elements from element `place` on. */
template <typename T>
COH_DEVICE row_pair<T> fetch_rows(const coh_cuda_norm_arguments &a, int64_t place, int rest)
{
    constexpr int W = coh_pack<T>;
    return { coh_fetch_part<T, W>((const T *)a.x + place, rest, a.packed),
             coh_fetch_part<T, W>((const T *)a.dy + place, rest, a.packed) };
}

/* Statistics of a row. */
typedef struct row_facts {
    float mean, rstd, mean_g, mean_gn;
} row_facts;

COH_DEVICE row_facts facts_of(const coh_cuda_norm_arguments &a, int64_t n, int is_row)
{
    row_facts facts = {};
    if (is_row) {
        facts.rstd = a.rstd[n];
        if (a.mean != nullptr)
            facts.mean = a.mean[n];
    }
    return facts;
}

/* Replaces dy and x by g and n. */
template <typename T, int W>
COH_DEVICE void gradient_of(const coh_cuda_norm_arguments &a, int at, int rest,
                            const row_facts &facts, coh_floats<W> &dy, coh_floats<W> &x)
{
    const coh_floats<W> weight =
        coh_open<T, W>(coh_fetch_part_again<T, W>((const T *)a.weight + at, rest, a.packed));
#pragma unroll
    for (int i = 0; i < W; i++) {
        x.x[i] = (x.x[i] - facts.mean) * facts.rstd;
        dy.x[i] *= weight.x[i] + a.offset;
    }
}

template <typename T>
COH_DEVICE void put_dx(const coh_cuda_norm_arguments &a, int64_t place, int rest,
                       const coh_floats<coh_pack<T>> &g, const coh_floats<coh_pack<T>> &normal,
                       const row_facts &facts)
{
    constexpr int W = coh_pack<T>;
    coh_floats<W> dx;
#pragma unroll
    for (int i = 0; i < W; i++)
        dx.x[i] = facts.rstd * (g.x[i] - facts.mean_g - normal.x[i] * facts.mean_gn);
    coh_give_part<T, W>((T *)a.dx + place, dx, rest, a.packed, a.dx_adds);
}

/* Computes the means over a row from this thread's sums. Consecutive rows use different slots. */
COH_DEVICE void finish_means(const coh_cuda_norm_arguments &a, row_facts &facts, float g, float gn,
                             float (*slots)[COH_WARPS_MOST])
{
    if (a.mean != nullptr)
        facts.mean_g = coh_row_sum(g, slots[0], a.width) / (float)a.C;
    facts.mean_gn = coh_row_sum(gn, slots[1], a.width) / (float)a.C;
}

/* Adds the block's row lanes in order and writes the sums to the partials. */
template <int W>
COH_DEVICE void put_sums(const coh_cuda_norm_arguments &a, coh_floats<W> total, float *to)
{
    __shared__ float lanes[FOLD_MOST * W];
    const int rows = blockDim.x / a.width, at = coh_part_begin<W>(0, a.width);
#pragma unroll
    for (int i = 0; i < W && rows > 1; i++)
        lanes[i * blockDim.x + threadIdx.x] = total.x[i];
    __syncthreads();
    if ((int)threadIdx.x < a.width) {
        for (int row = 1; row < rows; row++)
#pragma unroll
            for (int i = 0; i < W; i++)
                total.x[i] += lanes[i * blockDim.x + row * a.width + threadIdx.x];
#pragma unroll
        for (int i = 0; i < W; i++)
            if (at + i < a.C)
                to[at + i] = total.x[i];
    }
    __syncthreads();
}

/* Takes one row: adds its products to the sums; returns this thread's sums of g and g n. */
template <typename T>
COH_DEVICE float2 take_row(const coh_cuda_norm_arguments &a, const row_pair<T> &row,
                           const row_facts &facts, int at, int rest,
                           coh_floats<coh_pack<T>> &dweight, coh_floats<coh_pack<T>> &dbias)
{
    constexpr int W = coh_pack<T>;
    const coh_floats<W> dy = coh_open<T, W>(row.dy);
    coh_floats<W> x = coh_open<T, W>(row.x), g = dy;
    gradient_of<T, W>(a, at, rest, facts, g, x);
    float2 sum = { 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < W; i++) {
        sum.x += g.x[i];
        sum.y += g.x[i] * x.x[i];
        dweight.x[i] += dy.x[i] * x.x[i];
        dbias.x[i] += dy.x[i];
    }
    return sum;
}

template <typename T> COH_DEVICE void norm_backward(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][2][COH_WARPS_MOST];
    const int rows = blockDim.x / a.width, at = coh_part_begin<W>(0, a.width);
    const int64_t begin = blockIdx.x * a.block_rows;
    int64_t n = begin + threadIdx.x / a.width;
    int left = (int)(min(begin + a.block_rows, a.N) - n); /* rows from n on; uneven by row lane */
    coh_floats<W> dweight = {}, dbias = {};
    row_pair<T> now = fetch_rows<T>(a, n * a.C + at, left > 0 ? (int)a.C - at : 0);
#pragma unroll 1
    for (int turns = (int)((min(a.block_rows, a.N - begin) + rows - 1) / rows); turns > 0;
         turns--) {
        const int rest = left > 0 ? (int)a.C - at : 0;
        row_facts facts = facts_of(a, n, left > 0);
        n += rows;
        left -= rows;
        const row_pair<T> next = fetch_rows<T>(a, n * a.C + at, left > 0 ? (int)a.C - at : 0);
        const float2 sum = take_row<T>(a, now, facts, at, rest, dweight, dbias);
        if (a.dx != nullptr) {
            finish_means(a, facts, sum.x, sum.y, slots[turns & 1]);
            coh_floats<W> x = coh_open<T, W>(now.x), g = coh_open<T, W>(now.dy);
            gradient_of<T, W>(a, at, rest, facts, g, x);
            put_dx<T>(a, (n - rows) * a.C + at, rest, g, x, facts);
        }
        now = next;
    }
    if (a.partials != nullptr) {
        put_sums<W>(a, dweight, a.partials + blockIdx.x * 2 * a.C);
        if (a.mean != nullptr)
            put_sums<W>(a, dbias, a.partials + blockIdx.x * 2 * a.C + a.C);
    }
}
COH_KERNELS(norm_backward, coh_cuda_norm_arguments, COH_CUDA_NORM_THREADS, 1)

/* ---- wide rows ----
 *
 * Rows of more packs than COH_CUDA_NORM_THREADS, the most threads whose registers still hold the
 * sums. They are taken one at a time, with the sums in shared memory, where each thread accesses
 * only its own: four columns of neighbours lie side by side. A row of one pack per thread is loaded
 * once. If a thread has `parts` of them, registers cannot hold them through the barriers, and they
 * are loaded again, from the second-level cache. */

/* Returns the sums of part k of this thread, first for weight, then for bias: quads, `blockDim.x`
 * apart. */
template <int W> COH_DEVICE float4 *sums_at(int k)
{
    return (float4 *)coh_shared() + k * (W / 4) * (int)blockDim.x + threadIdx.x;
}

template <int W> COH_DEVICE coh_floats<W> sums_of(const float4 *at)
{
    coh_floats<W> sums;
#pragma unroll
    for (int i = 0; i < W; i += 4) {
        const float4 quad = at[i / 4 * (int)blockDim.x];
        sums.x[i] = quad.x;
        sums.x[i + 1] = quad.y;
        sums.x[i + 2] = quad.z;
        sums.x[i + 3] = quad.w;
    }
    return sums;
}

template <int W> COH_DEVICE void keep_sums(float4 *at, const coh_floats<W> &sums)
{
#pragma unroll
    for (int i = 0; i < W; i += 4)
        at[i / 4 * (int)blockDim.x] =
            make_float4(sums.x[i], sums.x[i + 1], sums.x[i + 2], sums.x[i + 3]);
}

/* Writes the block's sums, parts [begin, begin + parts) of a thread's, to a row of C partials. */
template <int W>
COH_DEVICE void put_wide_sums(const coh_cuda_norm_arguments &a, int begin, int parts, float *to)
{
#pragma unroll 1
    for (int k = 0; k < parts; k++) {
        const coh_floats<W> sums = sums_of<W>(sums_at<W>(begin + k));
        const int at = coh_part_begin<W>(k, a.width);
#pragma unroll
        for (int i = 0; i < W; i++)
            if (at + i < a.C)
                to[at + i] = sums.x[i];
    }
}

/* Takes part k of a row: adds to the sums; returns this thread's sums of g and g n. */
template <typename T>
COH_DEVICE float2 take_wide(const coh_cuda_norm_arguments &a, const row_pair<T> &row,
                            const row_facts &facts, int k, int parts)
{
    constexpr int W = coh_pack<T>;
    const int at = coh_part_begin<W>(k, a.width);
    float4 *weights = sums_at<W>(k), *biases = sums_at<W>(parts + k);
    coh_floats<W> dweight = sums_of<W>(weights), dbias = sums_of<W>(biases);
    const float2 sum = take_row<T>(a, row, facts, at, (int)a.C - at, dweight, dbias);
    keep_sums<W>(weights, dweight);
    keep_sums<W>(biases, dbias);
    return sum;
}

template <typename T, int IS_HELD> COH_DEVICE void wide_rows(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][2][COH_WARPS_MOST];
    const int64_t begin = blockIdx.x * a.block_rows, end = min(begin + a.block_rows, a.N);
    const int parts = IS_HELD ? 1 : ((int)a.C + a.width * W - 1) / (a.width * W);
    row_pair<T> row;
    for (int k = 0; k < 2 * parts; k++)
        keep_sums<W>(sums_at<W>(k), {});
#pragma unroll 1
    for (int64_t n = begin; n < end; n++) {
        row_facts facts = facts_of(a, n, 1);
        float2 sum = { 0.0f, 0.0f };
#pragma unroll 1
        for (int k = 0; k < parts; k++) {
            const int at = coh_part_begin<W>(k, a.width);
            row = fetch_rows<T>(a, n * a.C + at, (int)a.C - at);
            const float2 one = take_wide<T>(a, row, facts, k, parts);
            sum.x += one.x;
            sum.y += one.y;
        }
        if (a.dx == nullptr)
            continue;
        finish_means(a, facts, sum.x, sum.y, slots[n & 1]);
#pragma unroll 1
        for (int k = 0; k < parts; k++) {
            const int at = coh_part_begin<W>(k, a.width), rest = (int)a.C - at;
            if constexpr (!IS_HELD)
                row = fetch_rows<T>(a, n * a.C + at, rest);
            coh_floats<W> x = coh_open<T, W>(row.x), g = coh_open<T, W>(row.dy);
            gradient_of<T, W>(a, at, rest, facts, g, x);
            put_dx<T>(a, n * a.C + at, rest, g, x, facts);
        }
    }
    if (a.partials != nullptr) {
        float *to = a.partials + blockIdx.x * 2 * a.C;
        put_wide_sums<W>(a, 0, parts, to);
        if (a.mean != nullptr)
            put_wide_sums<W>(a, parts, parts, to + a.C);
    }
}

template <typename T> COH_DEVICE void norm_backward_wide(const coh_cuda_norm_arguments &a)
{
    if (a.C <= a.width * coh_pack<T>)
        wide_rows<T, 1>(a);
    else
        wide_rows<T, 0>(a);
}
COH_KERNELS(norm_backward_wide, coh_cuda_norm_arguments, 1024, 1)

/* Rows whose sums do not fit in shared memory: each is read twice, and the sums stay in the
 * partials. */
template <typename T> COH_DEVICE void norm_backward_widest(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][2][COH_WARPS_MOST];
    const int64_t begin = blockIdx.x * a.block_rows, end = min(begin + a.block_rows, a.N);
    float *dweight = nullptr, *dbias = nullptr;
    if (a.partials != nullptr) {
        dweight = a.partials + blockIdx.x * 2 * a.C;
        dbias = dweight + a.C;
    }
    for (int64_t n = begin; n < end; n++) {
        row_facts facts = facts_of(a, n, 1);
        const T *x_row = (const T *)a.x + n * a.C, *dy_row = (const T *)a.dy + n * a.C;
        float sum_g = 0.0f, sum_gn = 0.0f;
        for (int at = threadIdx.x; at < a.C; at += blockDim.x) {
            coh_floats<1> x = coh_take<T, 1>(x_row + at), dy = coh_take<T, 1>(dy_row + at), g = dy;
            gradient_of<T, 1>(a, at, 1, facts, g, x);
            sum_g += g.x[0];
            sum_gn += g.x[0] * x.x[0];
            if (dweight == nullptr)
                continue;
            dweight[at] = (n == begin ? 0.0f : dweight[at]) + dy.x[0] * x.x[0];
            dbias[at] = (n == begin ? 0.0f : dbias[at]) + dy.x[0];
        }
        if (a.dx == nullptr)
            continue;
        finish_means(a, facts, sum_g, sum_gn, slots[n & 1]);
        for (int at = coh_part_begin<W>(0, a.width); at < a.C; at += a.width * W) {
            const int rest = (int)a.C - at;
            coh_floats<W> x = coh_open<T, W>(coh_fetch_part<T, W>(x_row + at, rest, a.packed));
            coh_floats<W> g = coh_open<T, W>(coh_fetch_part<T, W>(dy_row + at, rest, a.packed));
            gradient_of<T, W>(a, at, rest, facts, g, x);
            put_dx<T>(a, n * a.C + at, rest, g, x, facts);
        }
    }
}
COH_KERNELS(norm_backward_widest, coh_cuda_norm_arguments, 1024, 1)
