/* philox.cuh - the words of kernels/random.h in a kernel. The kernel computes a call's stream from
 * the step's cell, so that launch arguments contain no step number. */
#ifndef COH_KERNELS_CUDA_PHILOX_CUH
#define COH_KERNELS_CUDA_PHILOX_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/random.h"

/* Replaces the counter x by its block. WIDE: one instruction makes both halves of a product, in a
 * pair of registers; attention has none left for pairs. */
template <int WIDE = 1>
static __device__ __forceinline__ void coh_philox_block(uint32_t x[4], uint32_t k0, uint32_t k1)
{
#pragma unroll
    for (int round = 0; round < COH_PHILOX_ROUNDS; round++) {
        uint32_t a, b, low_a, low_b;
        if constexpr (WIDE) {
            const uint64_t wide_a = (uint64_t)COH_PHILOX_M0 * x[0];
            const uint64_t wide_b = (uint64_t)COH_PHILOX_M1 * x[2];
            a = (uint32_t)(wide_a >> 32);
            b = (uint32_t)(wide_b >> 32);
            low_a = (uint32_t)wide_a;
            low_b = (uint32_t)wide_b;
        } else {
            a = __umulhi(COH_PHILOX_M0, x[0]);
            b = __umulhi(COH_PHILOX_M1, x[2]);
            low_a = COH_PHILOX_M0 * x[0];
            low_b = COH_PHILOX_M1 * x[2];
        }
        x[0] = b ^ x[1] ^ k0;
        x[1] = low_b;
        x[2] = a ^ x[3] ^ k1;
        x[3] = low_a;
        k0 += COH_PHILOX_W0;
        k1 += COH_PHILOX_W1;
    }
}

/* coh_random_of on the device. */
static __device__ __forceinline__ coh_random coh_random_stream(const coh_random_cell *cell,
                                                               uint32_t operator_index,
                                                               uint32_t microbatch)
{
    const uint64_t seed = cell->seed, step = cell->step;
    uint32_t x[4] = { (uint32_t)step, (uint32_t)(step >> 32), operator_index, microbatch };
    coh_philox_block<0>(x, (uint32_t)seed, (uint32_t)(seed >> 32));
    coh_random random;
    random.key[0] = x[0];
    random.key[1] = x[1];
    random.high[0] = x[2];
    random.high[1] = x[3];
    return random;
}

#endif
