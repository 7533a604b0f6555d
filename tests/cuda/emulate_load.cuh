/* emulate_load.cuh - replaces kernels/cuda/load.cuh on the host: compile the .cu file of a
 * memory-bound kernel with `-x c++ -include` this.
 *
 * A misaligned load of 8 or 16 bytes ends the process, as it would end the kernel. */
#ifndef COH_TESTS_CUDA_EMULATE_LOAD_CUH
#define COH_TESTS_CUDA_EMULATE_LOAD_CUH
#define COH_KERNELS_CUDA_LOAD_CUH

#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/emulate.cuh"

#define __grid_constant__

#define COH_KERNEL_OF(symbol, threads, blocks, parameter)                                          \
    static_assert((threads) * (blocks) <= 2048, "threads of a multiprocessor");                    \
    COH_KERNEL(symbol, threads, parameter)

static inline void coh_emulated_load(uint32_t *to, const void *from, size_t bytes)
{
    if ((uintptr_t)from % bytes != 0) {
        fprintf(stderr, "a load of %zu bytes is not aligned\n", bytes);
        abort();
    }
    memcpy(to, from, bytes);
    coh_emulated_packs++;
}

static inline void coh_load_8(uint32_t to[2], const void *from)
{
    coh_emulated_load(to, from, 8);
}

static inline void coh_load_16(uint32_t to[4], const void *from)
{
    coh_emulated_load(to, from, 16);
}

static inline void coh_pin(int &)
{
}

static inline float coh_hold(float x, float bound)
{
    return x < -bound ? -bound : x > bound ? bound : x;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline void __threadfence_system(void)
{
}

static inline int __ffs(unsigned bits)
{
    return __builtin_ffs((int)bits);
}

#endif
