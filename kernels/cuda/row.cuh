/* row.cuh - rows that belong to `width` threads of a block, whole warps: their parts in registers,
 * and sums over them. Next: pack.cuh; norm.cu, sums.cu and loss.cu use it.
 *
 * A thread holds up to COH_HELD packs of its row as stored, so that several passes over the row
 * need one load. Longer rows are read again (HELDS = 0). Sums over a row add a thread's own packs,
 * then its warp as a tree, then the row's warps in order (coh_row_sums: as a tree); all of it
 * follows from the row's length alone. */
#ifndef COH_KERNELS_CUDA_ROW_CUH
#define COH_KERNELS_CUDA_ROW_CUH

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"

#define COH_HELD       COH_CUDA_ROW_HELD
#define COH_WARPS_MOST 32 /* of a block */

/* Returns where part k of the calling thread begins in its row. */
template <int W> COH_DEVICE int coh_part_begin(int k, int width)
{
    return (k * width + (int)threadIdx.x % width) * W;
}

/* A row of C elements; C is 0 for threads without a row, which only take part in barriers. */
template <typename T, int HELDS> struct coh_row {
    const T *x;
    int C, width, packed;
    coh_raw<T, coh_pack<T>> held[HELDS > 0 ? HELDS : 1];
};

template <typename T, int HELDS>
COH_DEVICE coh_row<T, HELDS> coh_row_of(const T *x, int C, int width, int packed)
{
    constexpr int W = coh_pack<T>;
    coh_row<T, HELDS> row;
    row.x = x;
    row.C = C;
    row.width = width;
    row.packed = packed;
#pragma unroll
    for (int k = 0; k < HELDS; k++) {
        const int at = coh_part_begin<W>(k, width);
        row.held[k] = coh_fetch_part<T, W>(x + at, C - at, packed);
    }
    return row;
}

/* Returns the number of parts of a thread. */
template <typename T, int HELDS> COH_DEVICE int coh_row_parts(const coh_row<T, HELDS> &row)
{
    const int columns = row.width * coh_pack<T>;
    return HELDS > 0 ? HELDS : (row.C + columns - 1) / columns;
}

template <typename T, int HELDS>
COH_DEVICE coh_floats<coh_pack<T>> coh_row_part(const coh_row<T, HELDS> &row, int k, int at)
{
    constexpr int W = coh_pack<T>;
    if constexpr (HELDS > 0)
        return coh_open<T, W>(row.held[k]);
    else
        return coh_open<T, W>(coh_fetch_part<T, W>(row.x + at, row.C - at, row.packed));
}

/* Passes a number of each warp to all threads of its row; returns those of the calling thread's
 * row. `slots`: a number for each warp of the block, which must not be used again before another
 * barrier. */
template <typename S> COH_DEVICE const S *coh_row_share(S x, S *slots, int width)
{
    if (threadIdx.x % COH_WARP == 0)
        slots[threadIdx.x / COH_WARP] = x;
    __syncthreads();
    return slots + threadIdx.x / width * (width / COH_WARP);
}

/* Sums over the threads of a row; each gets the same bits. */
template <typename S> COH_DEVICE S coh_row_sum(S x, S *slots, int width)
{
    x = coh_warp_sum(x);
    if (width == COH_WARP)
        return x;
    const S *warps = coh_row_share(x, slots, width);
    S sum = 0;
    for (int warp = 0; warp < width / COH_WARP; warp++)
        sum += warps[warp];
    return sum;
}

/* Adds up the lanes of each half of a warp. */
COH_DEVICE float coh_half_warp_sum(float x)
{
#pragma unroll
    for (int apart = COH_WARP / 4; apart > 0; apart /= 2)
        x += __shfl_xor_sync(COH_ALL_LANES, x, apart);
    return x;
}

/* Two sums over the threads of row `lane_row` of the block, with one barrier: each half of a warp
 * adds up one of them. The row's warps are added as a tree as well. `slots`: two for each warp of
 * the block. */
COH_DEVICE float2 coh_row_sums(float2 x, float *slots, int width, int lane_row)
{
    const int side = threadIdx.x / 16 % 2, lane = threadIdx.x % 16, warps = width / COH_WARP;
    const float theirs = side ? x.x : x.y;
    float sum = (side ? x.y : x.x) + __shfl_xor_sync(COH_ALL_LANES, theirs, 16);
    sum = coh_half_warp_sum(sum);
    if (warps > 1) {
        const float *row = slots + 2 * lane_row * warps + side;
        if (lane == 0)
            slots[threadIdx.x / 16] = sum;
        __syncthreads();
        sum = lane < warps ? row[2 * lane] : 0.0f;
        if (warps > 16)
            sum += lane + 16 < warps ? row[2 * lane + 32] : 0.0f;
        sum = coh_half_warp_sum(sum);
    }
    const float other = __shfl_xor_sync(COH_ALL_LANES, sum, 16);
    return { side ? other : sum, side ? sum : other };
}

/* Likewise the largest. */
COH_DEVICE float coh_row_largest(float x, float *slots, int width)
{
    x = coh_warp_largest(x);
    if (width == COH_WARP)
        return x;
    const float *warps = coh_row_share(x, slots, width);
    for (int warp = 0; warp < width / COH_WARP; warp++)
        x = fmaxf(x, warps[warp]);
    return x;
}

#endif
