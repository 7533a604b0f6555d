/* embedding.cu - rows of a table by token, positions added, and their gradients. Next: arguments.h;
 * embedding.c launches them.
 *
 * Memory-bound. The embedding's gradient sums rows of dy that have the same token, in the order of
 * the tokens and without atomics: keys row << 32 | place are sorted, so that the tokens of one row
 * are adjacent. No two keys are equal, so every sorting algorithm gives the same order: tiles are
 * sorted in shared memory and then merged; each key finds its place by a binary search. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"

/* ---- indices outside their range: keeps the first one, unless there is a note already ---- */

COH_KERNEL_OF(coh_check_indices, COH_CUDA_CHECK_THREADS, 1,
              const __grid_constant__ coh_cuda_index_check_arguments a)
{
    __shared__ int64_t places[COH_CUDA_CHECK_THREADS];
    int64_t place = a.count;
    for (int64_t i = threadIdx.x; i < a.count && place == a.count; i += COH_CUDA_CHECK_THREADS)
        if (a.indices[i] < a.found.least || a.indices[i] > a.found.most)
            place = i;
    places[threadIdx.x] = place;
    for (int half = COH_CUDA_CHECK_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            places[threadIdx.x] = min(places[threadIdx.x], places[threadIdx.x + half]);
    }
    if (threadIdx.x > 0 || places[0] == a.count || a.note->is_there)
        return;
    *a.note = a.found;
    a.note->place = places[0];
    a.note->index = a.indices[places[0]];
    __threadfence_system();
    a.note->is_there = 1;
}

/* ---- forward: a warp copies a row ---- */

template <typename T> COH_DEVICE void embedding(const coh_cuda_embedding_arguments &a)
{
    constexpr int W = coh_pack<T>;
    const int lane = threadIdx.x % COH_WARP;
    COH_EACH(thread, 0, a.N * COH_WARP, 1)
    {
        const int64_t n = thread / COH_WARP, token = a.tokens[n];
        if (token < a.row_begin || token >= a.row_end)
            continue;
        const T *from = (const T *)a.from + (token - a.row_begin) * a.C;
        T *to = (T *)a.to + n * a.C;
        const int64_t whole = a.packed ? a.C : 0;
#pragma unroll 2
        for (int64_t c = lane * W; c < whole; c += COH_WARP * W)
            *(coh_four *)(to + c) = *(const coh_four *)(from + c);
#pragma unroll 1
        for (int64_t c = whole + lane; c < a.C; c += COH_WARP)
            to[c] = from[c];
    }
}
COH_KERNELS(embedding, coh_cuda_embedding_arguments, 256, 8)

/* ---- keys ---- */

COH_DEVICE uint64_t key_of(const coh_cuda_embedding_arguments &a, int64_t n)
{
    if (n >= a.N)
        return COH_CUDA_NO_ROW;
    const int64_t token = a.tokens[n];
    if (token < a.row_begin || token >= a.row_end || token == a.padding)
        return COH_CUDA_NO_ROW;
    return (uint64_t)(token - a.row_begin) << 32 | (uint64_t)n;
}

/* Sorts COH_CUDA_SORT_TILE keys of tokens into a.keys (bitonic; Batcher 1968). Only NO_ROW keys may
 * be equal, and they are interchangeable. */
COH_KERNEL_OF(coh_embedding_sort, COH_CUDA_SORT_TILE / 2, 1,
              const __grid_constant__ coh_cuda_embedding_arguments a)
{
    __shared__ uint64_t keys[COH_CUDA_SORT_TILE];
    const int64_t first = (int64_t)blockIdx.x * COH_CUDA_SORT_TILE;
    for (int i = threadIdx.x; i < COH_CUDA_SORT_TILE; i += blockDim.x)
        keys[i] = key_of(a, first + i);
    for (int length = 2; length <= COH_CUDA_SORT_TILE; length *= 2)
        for (int apart = length / 2; apart > 0; apart /= 2) {
            __syncthreads();
            const int low = 2 * (int)threadIdx.x - (int)(threadIdx.x & (apart - 1));
            const uint64_t left = keys[low], right = keys[low + apart];
            if ((left > right) == ((low & length) == 0)) {
                keys[low] = right;
                keys[low + apart] = left;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < COH_CUDA_SORT_TILE; i += blockDim.x)
        if (first + i < a.N)
            a.keys[first + i] = keys[i];
}

/* Counts keys of [begin, end) below `key`, or up to it. */
COH_DEVICE int64_t count_below(const uint64_t *keys, int64_t begin, int64_t end, uint64_t key,
                               int is_up_to)
{
    int64_t low = begin, high = end;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (keys[middle] < key || (is_up_to && keys[middle] == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low - begin;
}

/* Merges pairs of sorted runs from a.spare into a.keys: a key of one run comes after the keys of
 * the other that are below it; of equal keys, the first run's come first. */
COH_KERNEL_OF(coh_embedding_merge, 256, 4, const __grid_constant__ coh_cuda_embedding_arguments a)
{
    COH_EACH(i, 0, a.N, 1)
    {
        const uint64_t key = a.spare[i];
        const int64_t run = i / a.run, other = run ^ 1, begin = min(other * a.run, a.N);
        const int64_t end = min(begin + a.run, a.N);
        const int64_t pair = run / 2 * 2 * a.run;
        a.keys[pair + (i - run * a.run) + count_below(a.spare, begin, end, key, run & 1)] = key;
    }
}

/* ---- sums of rows ----
 *
 * Most tokens are rare: a warp looks at every place, and where a row begins, it sums up to COH_WARP
 * tokens of it. Rows of more tokens are summed by blocks at every COH_WARP-th place, so that one of
 * them finds the row within its first COH_WARP + 1 places. Its warps take the tokens in turn and
 * are folded in order. */

COH_DEVICE int64_t row_at(const coh_cuda_embedding_arguments &a, int64_t at)
{
    return at < a.N ? (int64_t)(a.keys[at] >> 32) : (int64_t)(COH_CUDA_NO_ROW >> 32);
}

COH_DEVICE int begins_row(const coh_cuda_embedding_arguments &a, int64_t at, int64_t row)
{
    return row != (int64_t)(COH_CUDA_NO_ROW >> 32) && (at == 0 || row_at(a, at - 1) != row);
}

template <typename T>
COH_DEVICE void add_token(const coh_cuda_embedding_arguments &a, coh_floats<coh_pack<T>> &sum,
                          uint32_t n, int64_t c)
{
    constexpr int W = coh_pack<T>;
    const T *from = (const T *)a.from + (int64_t)n * a.C + c;
    const coh_floats<W> dy = coh_open<T, W>(coh_fetch_part<T, W>(from, a.C - c, a.packed));
#pragma unroll
    for (int i = 0; i < W; i++)
        sum.x[i] += dy.x[i];
}

/* Stores a row's sum, of the channels from `c` on. */
template <typename T>
COH_DEVICE void give_row(const coh_cuda_embedding_arguments &a, const coh_floats<coh_pack<T>> &sum,
                         int64_t row, int64_t c)
{
    constexpr int W = coh_pack<T>;
    const int64_t at = row * a.C + c;
    if (!a.f32_grads)
        coh_give_part<T, W>((T *)a.to + at, sum, a.C - c, a.packed, a.adds);
    else if (!a.packed)
        coh_give_part<float, W>((float *)a.to + at, sum, a.C - c, 0, a.adds);
    else if (c < a.C)
        coh_give_wide<W>((float *)a.to + at, sum, a.adds);
}

template <typename T> COH_DEVICE void embedding_rows(const coh_cuda_embedding_arguments &a)
{
    constexpr int W = coh_pack<T>;
    const int lane = threadIdx.x % COH_WARP;
    COH_EACH(thread, 0, a.N * COH_WARP, 1)
    {
        const int64_t at = thread / COH_WARP, row = row_at(a, at);
        if (!begins_row(a, at, row) || row_at(a, at + COH_WARP) == row)
            continue;
        const int is_ours = row_at(a, at + lane) == row;
        const int count = __popc(__ballot_sync(COH_ALL_LANES, is_ours));
        const uint32_t mine = is_ours ? (uint32_t)a.keys[at + lane] : 0;
        for (int64_t first = 0; first < a.C; first += COH_WARP * W) {
            const int64_t c = first + lane * W;
            coh_floats<W> sum = {};
            for (int i = 0; i < count; i++)
                add_token<T>(a, sum, __shfl_sync(COH_ALL_LANES, mine, i), c);
            give_row<T>(a, sum, row, c);
        }
    }
}
COH_KERNELS(embedding_rows, coh_cuda_embedding_arguments, 256, 4)

#define HEAVY_WARPS (COH_CUDA_HEAVY_THREADS / COH_WARP)

/* Returns the begin of the row at place `at`, if it began at most COH_WARP - 1 places before, else
 * -1. */
COH_DEVICE int64_t begin_within(const coh_cuda_embedding_arguments &a, int64_t at, int64_t row)
{
    const int64_t place = at - threadIdx.x % COH_WARP;
    const int begins = place >= 0 && row_at(a, place) == row && begins_row(a, place, row);
    const uint32_t found = __ballot_sync(COH_ALL_LANES, begins);
    return found == 0 ? -1 : at - (__ffs(found) - 1);
}

template <typename T> COH_DEVICE void embedding_heavy(const coh_cuda_embedding_arguments &a)
{
    constexpr int W = coh_pack<T>;
    __shared__ float sums[HEAVY_WARPS][W][COH_WARP];
    const int lane = threadIdx.x % COH_WARP, warp = threadIdx.x / COH_WARP;
    const int64_t at = (int64_t)blockIdx.x * COH_WARP, row = row_at(a, at);
    const int64_t begin = begin_within(a, at, row);
    if (begin < 0 || row_at(a, begin + COH_WARP) != row)
        return;
    const int64_t end = begin + count_below(a.keys, begin, a.N, (uint64_t)(row + 1) << 32, 0);
    const int64_t c = ((int64_t)blockIdx.y * COH_WARP + lane) * W;
    coh_floats<W> sum = {};
#pragma unroll 4
    for (int64_t i = begin + warp; i < end; i += HEAVY_WARPS)
        add_token<T>(a, sum, (uint32_t)a.keys[i], c);
#pragma unroll
    for (int i = 0; i < W; i++)
        sums[warp][i][lane] = sum.x[i];
    __syncthreads();
    if (warp > 0)
        return;
    for (int other = 1; other < HEAVY_WARPS; other++)
#pragma unroll
        for (int i = 0; i < W; i++)
            sum.x[i] += sums[other][i][lane];
    give_row<T>(a, sum, row, c);
}
COH_KERNELS(embedding_heavy, coh_cuda_embedding_arguments, COH_CUDA_HEAVY_THREADS, 4)

/* ---- positions: `plane` elements are those of one sequence ---- */

template <typename T, int W>
COH_DEVICE void position_part(const coh_cuda_position_arguments &a, int64_t begin, int64_t end)
{
    const int64_t skipped = a.position != nullptr ? *a.position * a.C : 0;
    COH_EACH(at, begin, end, W)
    {
        const int64_t from = skipped + at;
        coh_floats<W> weight = {};
        if (from >= 0 && from + W <= a.table)
            weight = coh_take<T, W>((const T *)a.weight + from);
        for (int64_t b = blockIdx.y; b < a.B; b += gridDim.y) {
            coh_floats<W> y = coh_take<T, W>((const T *)a.x + b * a.plane + at);
#pragma unroll
            for (int i = 0; i < W; i++)
                y.x[i] += weight.x[i];
            coh_put<T, W>((T *)a.y + b * a.plane + at, y);
        }
    }
}

template <typename T> COH_DEVICE void position(const coh_cuda_position_arguments &a)
{
    const int64_t whole = a.packed ? a.plane : 0; /* then rows are whole packs, too */
    position_part<T, coh_pack<T>>(a, 0, whole);
    position_part<T, 1>(a, whole, a.plane);
}
COH_KERNELS(position, coh_cuda_position_arguments, 256, 6)

/* dweight: elements outside the sequence's positions get nothing. */
template <typename T, int W> COH_DEVICE void position_sum(const coh_cuda_position_arguments &a)
{
    COH_EACH(at, 0, a.count, W)
    {
        coh_floats<W> sum = {};
        const int64_t from = at - a.begin;
        for (int64_t b = 0; b < a.B && from >= 0 && from < a.plane; b++) {
            const coh_floats<W> dy = coh_take<T, W>((const T *)a.x + b * a.plane + from);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum.x[i] += dy.x[i];
        }
        if (a.f32_grads)
            coh_give_wide<W>((float *)a.y + at, sum, a.adds);
        else
            coh_give<T, W>((T *)a.y + at, sum, a.adds);
    }
}

template <typename T> COH_DEVICE void position_backward(const coh_cuda_position_arguments &a)
{
    if (a.packed)
        position_sum<T, coh_pack<T>>(a);
    else
        position_sum<T, 1>(a);
}
COH_KERNELS(position_backward, coh_cuda_position_arguments, 256, 6)
