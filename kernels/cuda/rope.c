/* Launches RoPE on CUDA. The grid divides tokens and channels first, then heads and sequences, so
 * that angles are computed as rarely as possible. Next: rope.cu, kernels/kernels.h (coh_rope). */
#include <string.h>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/table.h"

/* Threads that keep a GPU busy: with fewer tokens and channels, heads are divided, too. */
#define THREADS_WANTED (1 << 18)

void coh_cuda_rope(void *queue, const coh_rope *rope)
{
    const int64_t pack = coh_cuda_pack(rope->dtype), heads = rope->B * rope->H;
    coh_cuda_rope_arguments arguments = {
        .B = rope->B,
        .T = rope->T,
        .H = rope->H,
        .D = rope->D,
        .x_stride = rope->x_stride,
        .y_stride = rope->y_stride,
        .position = rope->position,
        .x = rope->x,
        .y = rope->y,
        .turns_back = rope->turns_back,
        .adds = rope->adds,
        .magnitude = rope->magnitude,
        .packed = COH_CUDA_PACKED(rope->x, rope->y) && rope->D / 2 % pack == 0 &&
                  rope->x_stride % pack == 0 && rope->y_stride % pack == 0,
    };
    memcpy(arguments.frequencies, rope->frequencies, (size_t)(rope->D / 2) * sizeof(float));
    const int64_t units = rope->T * (rope->D / 2) / (arguments.packed ? pack : 1);
    if (units == 0 || heads == 0)
        return;
    coh_cuda_grid grid = coh_cuda_flat(queue, units);
    const int64_t shares = coh_cuda_parts(THREADS_WANTED, units);
    grid.y = (uint32_t)(shares < heads ? shares : heads);
    if (grid.y > UINT16_MAX)
        grid.y = UINT16_MAX;
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ROPE_F32, rope->dtype), &grid, &arguments);
}
