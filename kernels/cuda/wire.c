/* Launches the folding of contributions and the packing for the way between ranks. Next:
 * kernels/fold.h, kernels/wire.h, wire.cu. */
#include <assert.h>

#include "base/fold_shape.h"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

#define WARP 32

_Static_assert(COH_CUDA_FOLD_MOST == COH_FOLD_CUDA_MOST &&
                   COH_CUDA_FOLD_FACTORS == COH_FOLD_FACTORS &&
                   COH_CUDA_WIRE_BLOCK == COH_WIRE_BLOCK,
               "kernels have the host's numbers");

void coh_cuda_fold(void *queue, const coh_fold_call *fold)
{
    const int32_t replicas = coh_fold_shape_replicas(&fold->shape);
    coh_cuda_fold_arguments arguments = { .count = fold->count,
                                          .y = fold->to,
                                          .bf16_y = fold->to_dtype == COH_DTYPE_BF16,
                                          .packed = COH_CUDA_PACKED(fold->to) };
    assert(fold->square_sums == NULL && replicas <= COH_CUDA_FOLD_MOST);
    if (fold->count <= 0)
        return;
    for (int i = 0; i < COH_FOLD_FACTORS; i++)
        arguments.factors[i] = fold->shape.factors[i] > 1 ? fold->shape.factors[i] : 1;
    for (int32_t i = 0; i < replicas; i++) {
        arguments.from[i] = fold->contributions[i];
        arguments.packed &= COH_CUDA_PACKED(fold->contributions[i]);
    }
    const int64_t part = arguments.packed ? 4 : 1;
    const coh_cuda_grid grid = coh_cuda_flat(queue, coh_cuda_parts(fold->count, part));
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_FOLD_F32, fold->dtype), &grid, &arguments);
}

/* A warp takes a block. */
static void launch_wire(void *queue, coh_cuda_kernel kernel, const coh_wire_call *call)
{
    const int64_t blocks = coh_cuda_parts(call->count, COH_WIRE_BLOCK);
    const int has_scales = call->wire != COH_WIRE_BF16;
    const size_t scale_bytes = has_scales ? (size_t)blocks * sizeof(float) : 0;
    const coh_cuda_wire_arguments arguments = {
        .count = call->count,
        .elements = call->elements,
        .scales = call->packed,
        .codes = (uint8_t *)call->packed + scale_bytes,
        .levels = call->wire == COH_WIRE_INT8   ? 127
                  : call->wire == COH_WIRE_INT4 ? 7
                                                : 0,
        .packed = COH_CUDA_PACKED(call->elements),
    };
    assert(call->wire != COH_WIRE_STORED);
    if (call->count <= 0)
        return;
    const coh_cuda_grid grid = coh_cuda_flat(queue, blocks * WARP);
    coh_cuda_launch(queue, coh_cuda_of(kernel, call->dtype), &grid, &arguments);
}

void coh_cuda_wire_pack(void *queue, const coh_wire_call *call)
{
    launch_wire(queue, COH_CUDA_WIRE_PACK_F32, call);
}

void coh_cuda_wire_unpack(void *queue, const coh_wire_call *call)
{
    launch_wire(queue, COH_CUDA_WIRE_UNPACK_F32, call);
}
