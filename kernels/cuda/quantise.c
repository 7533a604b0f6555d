/* Launches stochastic rounding and quantisation on CUDA. The grid of stochastic rounding counts
 * groups of random halves, because a thread uses whole Philox blocks. Next: kernels/quantise.h,
 * quantise.cu. */
#include <assert.h>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

#define WARP 32

_Static_assert(COH_CUDA_QUANTISE_BLOCK == COH_QUANTISE_BLOCK, "kernels cut blocks as the host");
_Static_assert(COH_CUDA_QUANTISE_THREADS == COH_CUDA_FLAT_THREADS, "a flat grid's blocks");

static coh_cuda_rounding rounding_of(const coh_rounding *rounding)
{
    return (coh_cuda_rounding){ .cell = rounding->cell,
                                .operator_index = rounding->tensor,
                                .microbatch = coh_rounding_microbatch(rounding) };
}

void coh_cuda_stochastic_round(void *queue, const coh_stochastic_round *round)
{
    assert(round->rounding.cell != NULL);
    if (round->count <= 0)
        return;
    const int64_t part = coh_cuda_pack(COH_DTYPE_F32);
    const coh_cuda_stochastic_round_arguments arguments = {
        .count = round->count,
        .first = round->first,
        .rounding = rounding_of(&round->rounding),
        .x = round->x,
        .y = round->y,
        .packed = COH_CUDA_PACKED(round->x, round->y) && round->first % (uint64_t)part == 0,
    };
    /* eight parts per thread; a piece may begin and end within a group */
    const int64_t groups = coh_cuda_parts(round->count, COH_RANDOM_HALVES) + 1;
    const int64_t threads = groups * COH_RANDOM_HALVES / 8 / (arguments.packed ? part : 1);
    const coh_cuda_grid grid = coh_cuda_flat(queue, threads);
    coh_cuda_launch(queue, COH_CUDA_STOCHASTIC_ROUND, &grid, &arguments);
}

void coh_cuda_quantise(void *queue, const coh_quantise *quantise)
{
    assert(quantise->first % COH_QUANTISE_BLOCK == 0);
    if (quantise->count <= 0)
        return;
    const coh_cuda_quantise_arguments arguments = {
        .count = quantise->count,
        .first = quantise->first,
        .rounding = rounding_of(&quantise->rounding),
        .x = quantise->x,
        .codes = quantise->codes,
        .scales = quantise->scales,
        .packed = COH_CUDA_PACKED(quantise->x, quantise->codes),
    };
    const coh_cuda_grid grid =
        coh_cuda_flat(queue, coh_cuda_parts(quantise->count, 2 * COH_QUANTISE_BLOCK) * WARP);
    coh_cuda_launch(queue, COH_CUDA_QUANTISE, &grid, &arguments);
}

void coh_cuda_dequantise(void *queue, const coh_dequantise *dequantise)
{
    if (dequantise->count <= 0)
        return;
    const coh_cuda_dequantise_arguments arguments = {
        .count = dequantise->count,
        .codes = dequantise->codes,
        .scales = dequantise->scales,
        .y = dequantise->y,
        .packed = COH_CUDA_PACKED(dequantise->codes, dequantise->y),
    };
    const int64_t part = arguments.packed ? coh_cuda_pack(COH_DTYPE_F32) : 1;
    const coh_cuda_grid grid = coh_cuda_flat(queue, coh_cuda_parts(dequantise->count, part));
    coh_cuda_launch(queue, COH_CUDA_DEQUANTISE, &grid, &arguments);
}
