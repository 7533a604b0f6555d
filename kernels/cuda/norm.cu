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
 * One load of a row that is held (row.cuh), and one barrier. Squares are summed around a mean,
 * because E[x^2] - mean^2 cancels: first around each warp's own mean, then, with the warps' sums
 * side by side, around the row's. */

/* Sums x over this thread's parts, or (x - from)^2. */
template <typename T, int HELDS, int PACKED, int IS_SQUARE>
COH_DEVICE float part_sum(const coh_row<T, HELDS> &row, float from)
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
        for (int i = 0; i < W; i++) {
            const float away = PACKED || i < rest ? x.x[i] - from : 0.0f;
            sum += IS_SQUARE ? away * away : x.x[i];
        }
    }
    return sum;
}

/* Returns the number of elements that this thread's warp has. */
template <typename T, int HELDS> COH_DEVICE float warp_count(const coh_row<T, HELDS> &row)
{
    constexpr int W = coh_pack<T>;
    const int parts = coh_row_parts<T, HELDS>(row), lane = threadIdx.x % COH_WARP;
    int count = 0;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int rest = row.C - coh_part_begin<W>(k, row.width) + lane * W;
        count += max(0, min(rest, COH_WARP * W));
    }
    return (float)count;
}

/* Sums of a row's elements, or of a warp's: of the elements and of squares around their mean. */
typedef struct row_sums {
    float sum, squares;
} row_sums;

template <typename T, int HELDS, int PACKED>
COH_DEVICE row_sums sums_of_row(const coh_cuda_norm_arguments &a, const coh_row<T, HELDS> &row)
{
    __shared__ float4 slots[COH_WARPS_MOST];
    const int warps = a.width / COH_WARP, lane = threadIdx.x % COH_WARP;
    float4 mine = {};
    if (a.mean != nullptr) {
        mine.x = coh_warp_sum(part_sum<T, HELDS, PACKED, 0>(row, 0.0f));
        mine.z = warp_count<T, HELDS>(row);
    }
    const float from = mine.z > 0.0f ? mine.x / mine.z : 0.0f;
    mine.y = coh_warp_sum(part_sum<T, HELDS, PACKED, 1>(row, from));
    if (warps == 1)
        return { mine.x, mine.y };
    if (lane == 0)
        slots[threadIdx.x / COH_WARP] = mine;
    __syncthreads();
    const float4 *all = slots + threadIdx.x / a.width * warps;
    const float4 one = lane < warps ? all[lane] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float sum = a.mean != nullptr ? coh_warp_sum(one.x) : 0.0f;
    const float away = one.z > 0.0f ? one.x / one.z - sum * a.share : 0.0f;
    return { sum, coh_warp_sum(one.y + one.z * away * away) };
}

template <typename T, int HELDS, int PACKED>
COH_DEVICE void put_row(const coh_cuda_norm_arguments &a, const coh_row<T, HELDS> &row, T *y,
                        float mean, float rstd)
{
    constexpr int W = coh_pack<T>;
    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    const int parts = coh_row_parts<T, HELDS>(row), packed = HELDS > 0 ? PACKED : row.packed;
#pragma unroll
    for (int k = 0; k < (HELDS > 0 ? HELDS : parts); k++) {
        const int at = coh_part_begin<W>(k, row.width), rest = row.C - at;
        coh_floats<W> x = coh_row_part<T, HELDS>(row, k, at);
        if (rest <= 0)
            continue;
        coh_floats<W> w = coh_open<T, W>(coh_fetch_part_again<T, W>(weight + at, rest, packed));
        coh_floats<W> b = {};
        if (bias != nullptr)
            b = coh_open<T, W>(coh_fetch_part_again<T, W>(bias + at, rest, packed));
        if (a.mean == nullptr)
#pragma unroll
            for (int i = 0; i < W; i++)
                w.x[i] += a.offset;
#pragma unroll
        for (int i = 0; i < W; i++)
            x.x[i] = (x.x[i] - mean) * rstd * w.x[i] + b.x[i];
        coh_give_part<T, W>(y + at, x, rest, packed, 0);
    }
}

template <typename T, int HELDS, int PACKED>
COH_DEVICE void norm_row(const coh_cuda_norm_arguments &a)
{
    const int64_t rows = blockDim.x / a.width;
    const int64_t n = blockIdx.x * rows + threadIdx.x / a.width;
    const int is_row = n < a.N; /* other threads only take part in barriers */
    const coh_row<T, HELDS> row = coh_row_of<T, HELDS>(
        (const T *)a.x + n * a.C, is_row ? (int)a.C : 0, a.width, HELDS > 0 ? PACKED : a.packed);
    const row_sums sums = sums_of_row<T, HELDS, PACKED>(a, row);
    const float mean = sums.sum * a.share;
    const float rstd = 1.0f / sqrtf(sums.squares * a.share + a.epsilon);
    put_row<T, HELDS, PACKED>(a, row, (T *)a.y + n * a.C, mean, rstd);
    if (is_row && threadIdx.x % a.width == 0) {
        a.rstd[n] = rstd;
        if (a.mean != nullptr)
            a.mean[n] = mean;
    }
}

template <typename T> COH_DEVICE void norm(const coh_cuda_norm_arguments &a)
{
    if (a.C > (int64_t)a.width * COH_HELD * coh_pack<T>)
        norm_row<T, 0, 0>(a);
    else if (a.packed)
        norm_row<T, COH_HELD, 1>(a);
    else
        norm_row<T, COH_HELD, 0>(a);
}
COH_KERNELS(norm, coh_cuda_norm_arguments, 1024, 1)

/* ---- backward ----
 *
 * With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)), dweight = sum
 * over rows of dy n, dbias of dy. A block takes `block_rows` rows. Each thread has the same eight
 * columns in all of them, and their two sums stay in registers. Rows are copied ahead to shared
 * memory, `stages` of them at a time, so that enough bytes are in flight whatever registers hold. A
 * thread copies only what it reads itself, so the copies need no barrier. Blocks write partial
 * sums, which partial_sum folds (sums.cu): at most as many as two rounds of a GPU of 132
 * multiprocessors have blocks. */
#define COLUMNS COH_CUDA_NORM_COLUMNS /* of a thread */

/* Statistics of a row; later rstd mean(g) and rstd mean(g n). */
typedef struct row_facts {
    float mean, rstd, g, gn;
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

/* Returns weight + offset of a pack of columns. */
template <typename T>
COH_DEVICE coh_floats<coh_pack<T>> weight_of(const coh_cuda_norm_arguments &a, int at)
{
    constexpr int W = coh_pack<T>;
    coh_floats<W> weight = coh_open<T, W>(
        coh_fetch_part_again<T, W>((const T *)a.weight + at, (int)a.C - at, a.packed));
#pragma unroll
    for (int i = 0; i < W; i++)
        weight.x[i] += a.offset;
    return weight;
}

/* Replaces dy and x by g and n. */
template <int W>
COH_DEVICE void gradient_of(const row_facts &facts, const coh_floats<W> &weight, coh_floats<W> &dy,
                            coh_floats<W> &x)
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        x.x[i] = (x.x[i] - facts.mean) * facts.rstd;
        dy.x[i] *= weight.x[i];
    }
}

/* Takes a pack of a row: replaces dy and x by g and n, and adds products to the sums: of the row g
 * and g n, of the columns dy n and dy. */
template <int W>
COH_DEVICE void take_pack(const row_facts &facts, const coh_floats<W> &weight, coh_floats<W> &dy,
                          coh_floats<W> &x, float2 &sum, coh_floats<W> &dweight,
                          coh_floats<W> &dbias)
{
    const coh_floats<W> was = dy;
    gradient_of<W>(facts, weight, dy, x);
#pragma unroll
    for (int i = 0; i < W; i++) {
        sum.x += dy.x[i];
        sum.y += dy.x[i] * x.x[i];
        dweight.x[i] += was.x[i] * x.x[i];
        dbias.x[i] += was.x[i];
    }
}

/* Replaces g by dx. */
template <int W>
COH_DEVICE void finish_pack(const row_facts &facts, coh_floats<W> &g, const coh_floats<W> &normal)
{
#pragma unroll
    for (int i = 0; i < W; i++)
        g.x[i] = facts.rstd * g.x[i] - facts.g - facts.gn * normal.x[i];
}

/* Computes the means over a row from this thread's sums. Consecutive rows use different slots. */
COH_DEVICE void finish_means(const coh_cuda_norm_arguments &a, row_facts &facts, float2 sum,
                             float *slots, int lane_row)
{
    sum = coh_row_sums(sum, slots, a.width, lane_row);
    const float factor = facts.rstd * a.share;
    facts.g = a.mean != nullptr ? factor * sum.x : 0.0f;
    facts.gn = factor * sum.y;
}

/* Copies a pack, of which `rest` elements exist, to this thread's place in shared memory: later, or
 * at once if the row is not packed. */
template <typename T, int PACKED> COH_DEVICE void copy_pack(coh_four *to, const T *from, int rest)
{
    constexpr int W = coh_pack<T>;
    if constexpr (PACKED) {
        coh_copy_16(to, from, rest > 0);
    } else {
        const coh_raw<T, W> raw = coh_fetch_part<T, W>(from, rest, 0);
        *to = { { raw.word[0], raw.word[1], raw.word[2], raw.word[3] } };
    }
}

/* Begins to copy this thread's columns, `rest` of C from element `from` on; no columns: zeros. A
 * slot has packs of x, then of dy, then of the dx to add to, `blockDim.x` apart. */
template <typename T, int PACKED>
COH_DEVICE void copy_row(const coh_cuda_norm_arguments &a, int64_t from, int rest, coh_four *slot)
{
    constexpr int W = coh_pack<T>, packs = COLUMNS / W;
    const int apart = blockDim.x, stride = a.width * W;
#pragma unroll
    for (int k = 0; k < packs; k++, slot += apart, from += stride, rest -= stride) {
        copy_pack<T, PACKED>(slot, (const T *)a.x + from, rest);
        copy_pack<T, PACKED>(slot + packs * apart, (const T *)a.dy + from, rest);
        if (a.dx_adds)
            copy_pack<T, PACKED>(slot + 2 * packs * apart, (const T *)a.dx + from, rest);
    }
    coh_copy_commit();
}

/* Waits for all copies but those of the last stages - 1 rows. The waits follow one another: a
 * switch would be a jump through a table. */
COH_DEVICE void wait_for_row(int stages)
{
    coh_copy_wait<3>();
    if (stages < 4)
        coh_copy_wait<2>();
    if (stages < 3)
        coh_copy_wait<1>();
    if (stages < 2)
        coh_copy_wait<0>();
}

template <typename T> COH_DEVICE coh_floats<coh_pack<T>> slot_pack(const coh_four *slot)
{
    const coh_four four = *slot;
    const coh_raw<T, coh_pack<T>> raw = { { four.word[0], four.word[1], four.word[2],
                                            four.word[3] } };
    return coh_open<T, coh_pack<T>>(raw);
}

/* Takes this thread's columns from a slot; returns its sums of g and g n. */
template <typename T>
COH_DEVICE float2 take_slot(const row_facts &facts, const coh_four *slot,
                            const coh_floats<coh_pack<T>> *weight, coh_floats<coh_pack<T>> *g,
                            coh_floats<coh_pack<T>> *x, coh_floats<coh_pack<T>> *dweight,
                            coh_floats<coh_pack<T>> *dbias)
{
    constexpr int W = coh_pack<T>, packs = COLUMNS / W;
    float2 sum = { 0.0f, 0.0f };
#pragma unroll
    for (int k = 0; k < packs; k++) {
        x[k] = slot_pack<T>(slot + k * (int)blockDim.x);
        g[k] = slot_pack<T>(slot + (packs + k) * (int)blockDim.x);
        take_pack<W>(facts, weight[k], g[k], x[k], sum, dweight[k], dbias[k]);
    }
    return sum;
}

/* Writes dx of this thread's columns, `rest` of C from element `to` on. */
template <typename T, int PACKED>
COH_DEVICE void put_dx(const coh_cuda_norm_arguments &a, int64_t to, int rest,
                       const row_facts &facts, const coh_four *slot, coh_floats<coh_pack<T>> *g,
                       const coh_floats<coh_pack<T>> *normal)
{
    constexpr int W = coh_pack<T>, packs = COLUMNS / W;
#pragma unroll
    for (int k = 0; k < packs; k++, to += a.width * W, rest -= a.width * W) {
        finish_pack<W>(facts, g[k], normal[k]);
        if (a.dx_adds)
            g[k] = coh_sum<W>(g[k], slot_pack<T>(slot + (2 * packs + k) * (int)blockDim.x));
        coh_give_part<T, W>((T *)a.dx + to, g[k], rest, PACKED, 0);
    }
}

/* Adds the block's row lanes in order and writes the sums to the partials. */
template <int W, int PACKED>
COH_DEVICE void put_sums(const coh_cuda_norm_arguments &a, coh_floats<W> *sums, float *to)
{
    float *lanes = (float *)coh_shared();
    const int rows = blockDim.x / a.width;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COLUMNS && rows > 1; i++)
        lanes[i * blockDim.x + threadIdx.x] = sums[i / W].x[i % W];
    __syncthreads();
    if ((int)threadIdx.x >= a.width)
        return;
#pragma unroll 1
    for (int row = 1; row < rows; row++)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            sums[i / W].x[i % W] += lanes[i * blockDim.x + row * a.width + threadIdx.x];
#pragma unroll
    for (int k = 0; k < COLUMNS / W; k++) {
        const int at = coh_part_begin<W>(k, a.width);
        coh_give_part<float, W>(to + at, sums[k], a.C - at, PACKED, 0);
    }
}

template <typename T, int PACKED> COH_DEVICE void backward_rows(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>, packs = COLUMNS / W;
    __shared__ float slots[2][2 * COH_WARPS_MOST];
    const int rows = blockDim.x / a.width;
    const int slot_fours = (a.dx_adds ? 3 : 2) * packs * (int)blockDim.x;
    const int ring_fours = a.stages * slot_fours;
    coh_four *const ring = (coh_four *)coh_shared() + threadIdx.x;
    const int64_t begin = blockIdx.x * a.block_rows, end = min(begin + a.block_rows, a.N);
    const int64_t step = rows * a.C, lead = (a.stages - 1) * step;
    int lane_row = threadIdx.x / a.width, at = coh_part_begin<W>(0, a.width);
    int rest = (int)a.C - at;
    coh_pin(lane_row);
    coh_pin(rest);
    int64_t n = begin + lane_row, here = n * a.C + at;
    int left = (int)(end - n), in = 0, out = 0; /* left: rows; uneven by row lane */
    coh_floats<W> weight[packs], dweight[packs] = {}, dbias[packs] = {};
    for (int row = 0; in < ring_fours - slot_fours; in += slot_fours, row += rows)
        copy_row<T, PACKED>(a, here + row * a.C, row < left ? rest : 0, ring + in);
#pragma unroll
    for (int k = 0; k < packs; k++)
        weight[k] = weight_of<T>(a, at + k * a.width * W);
    row_facts next = facts_of(a, n, left > 0);
#pragma unroll 1
    for (int turns = (int)((end - begin + rows - 1) / rows); turns > 0; turns--) {
        const coh_four *slot = ring + out;
        row_facts facts = next;
        copy_row<T, PACKED>(a, here + lead, (a.stages - 1) * rows < left ? rest : 0, ring + in);
        in = in + slot_fours < ring_fours ? in + slot_fours : 0;
        out = out + slot_fours < ring_fours ? out + slot_fours : 0;
        n += rows;
        next = facts_of(a, n, left > rows);
        wait_for_row(a.stages);
        coh_floats<W> x[packs], g[packs];
        const float2 sum = take_slot<T>(facts, slot, weight, g, x, dweight, dbias);
        if (a.dx != nullptr) {
            finish_means(a, facts, sum, slots[turns & 1], lane_row);
            put_dx<T, PACKED>(a, here, left > 0 ? rest : 0, facts, slot, g, x);
        }
        here += step;
        left -= rows;
    }
    coh_copy_wait<0>(); /* put_sums uses the slots */
    if (a.partials != nullptr) {
        float *to = a.partials + blockIdx.x * 2 * a.C;
        put_sums<W, PACKED>(a, dweight, to);
        if (a.mean != nullptr)
            put_sums<W, PACKED>(a, dbias, to + a.C);
    }
}

template <typename T> COH_DEVICE void norm_backward(const coh_cuda_norm_arguments &a)
{
    if (a.packed)
        backward_rows<T, 1>(a);
    else
        backward_rows<T, 0>(a);
}
COH_KERNELS(norm_backward, coh_cuda_norm_arguments, 1024, 1)

/* ---- wide rows ----
 *
 * Rows of more columns than a block's threads have. They are taken one at a time, with the sums in
 * shared memory, where each thread accesses only its own: four columns of neighbours lie side by
 * side. Registers cannot hold the `parts` packs of a thread through the barriers: they are loaded
 * again, from the second-level cache. */

template <typename T> struct row_pair {
    coh_floats<coh_pack<T>> x, dy;
};

/* Loads up to `rest` elements from element `place` on. */
template <typename T>
COH_DEVICE row_pair<T> take_pair(const coh_cuda_norm_arguments &a, int64_t place, int rest)
{
    constexpr int W = coh_pack<T>;
    return {
        coh_open<T, W>(coh_fetch_part<T, W>((const T *)a.x + place, rest, a.packed)),
        coh_open<T, W>(coh_fetch_part<T, W>((const T *)a.dy + place, rest, a.packed)),
    };
}

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

/* Takes part k of a row: adds to the sums of its columns and of the row. */
template <typename T>
COH_DEVICE void take_wide(const coh_cuda_norm_arguments &a, int64_t n, const row_facts &facts,
                          int k, int parts, float2 &sum)
{
    constexpr int W = coh_pack<T>;
    const int at = coh_part_begin<W>(k, a.width);
    row_pair<T> row = take_pair<T>(a, n * a.C + at, (int)a.C - at);
    float4 *weights = sums_at<W>(k), *biases = sums_at<W>(parts + k);
    coh_floats<W> dweight = sums_of<W>(weights), dbias = sums_of<W>(biases);
    take_pack<W>(facts, weight_of<T>(a, at), row.dy, row.x, sum, dweight, dbias);
    keep_sums<W>(weights, dweight);
    keep_sums<W>(biases, dbias);
}

/* Loads a pack again and writes its dx. */
template <typename T>
COH_DEVICE void put_again(const coh_cuda_norm_arguments &a, int64_t n, const row_facts &facts,
                          int at)
{
    constexpr int W = coh_pack<T>;
    const int rest = (int)a.C - at;
    row_pair<T> row = take_pair<T>(a, n * a.C + at, rest);
    gradient_of<W>(facts, weight_of<T>(a, at), row.dy, row.x);
    finish_pack<W>(facts, row.dy, row.x);
    coh_give_part<T, W>((T *)a.dx + n * a.C + at, row.dy, rest, a.packed, a.dx_adds);
}

template <typename T> COH_DEVICE void norm_backward_wide(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][2 * COH_WARPS_MOST];
    const int64_t begin = blockIdx.x * a.block_rows, end = min(begin + a.block_rows, a.N);
    const int parts = ((int)a.C + a.width * W - 1) / (a.width * W);
    for (int k = 0; k < 2 * parts; k++)
        keep_sums<W>(sums_at<W>(k), {});
#pragma unroll 1
    for (int64_t n = begin; n < end; n++) {
        row_facts facts = facts_of(a, n, 1);
        float2 sum = { 0.0f, 0.0f };
#pragma unroll 1
        for (int k = 0; k < parts; k++)
            take_wide<T>(a, n, facts, k, parts, sum);
        if (a.dx == nullptr)
            continue;
        finish_means(a, facts, sum, slots[n & 1], 0);
#pragma unroll 1
        for (int k = 0; k < parts; k++)
            put_again<T>(a, n, facts, coh_part_begin<W>(k, a.width));
    }
    if (a.partials != nullptr) {
        float *to = a.partials + blockIdx.x * 2 * a.C;
        put_wide_sums<W>(a, 0, parts, to);
        if (a.mean != nullptr)
            put_wide_sums<W>(a, parts, parts, to + a.C);
    }
}
COH_KERNELS(norm_backward_wide, coh_cuda_norm_arguments, 1024, 1)

/* Rows whose sums do not fit in shared memory: each is read twice, and the sums stay in the
 * partials. */
template <typename T> COH_DEVICE void norm_backward_widest(const coh_cuda_norm_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float slots[2][2 * COH_WARPS_MOST];
    const int64_t begin = blockIdx.x * a.block_rows, end = min(begin + a.block_rows, a.N);
    float *dweight = nullptr, *dbias = nullptr;
    if (a.partials != nullptr) {
        dweight = a.partials + blockIdx.x * 2 * a.C;
        dbias = dweight + a.C;
    }
    for (int64_t n = begin; n < end; n++) {
        row_facts facts = facts_of(a, n, 1);
        const T *x_row = (const T *)a.x + n * a.C, *dy_row = (const T *)a.dy + n * a.C;
        float2 sum = { 0.0f, 0.0f };
        for (int at = threadIdx.x; at < a.C; at += blockDim.x) {
            const float weight = coh_take<T, 1>((const T *)a.weight + at).x[0] + a.offset;
            coh_floats<1> x = coh_take<T, 1>(x_row + at), dy = coh_take<T, 1>(dy_row + at), w = {},
                          b = {};
            if (dweight != nullptr && n > begin) {
                w.x[0] = dweight[at];
                b.x[0] = dbias[at];
            }
            take_pack<1>(facts, { { weight } }, dy, x, sum, w, b);
            if (dweight != nullptr) {
                dweight[at] = w.x[0];
                dbias[at] = b.x[0];
            }
        }
        if (a.dx == nullptr)
            continue;
        finish_means(a, facts, sum, slots[n & 1], 0);
        for (int at = coh_part_begin<W>(0, a.width); at < a.C; at += a.width * W)
            put_again<T>(a, n, facts, at);
    }
}
COH_KERNELS(norm_backward_widest, coh_cuda_norm_arguments, 1024, 1)
