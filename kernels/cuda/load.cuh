/* load.cuh - loads of data that is read once, and the few other instructions that the memory-bound
 * kernels need beyond device.cuh; tests/cuda/emulate_load.cuh has the same for the host.
 *
 * The loads bypass the first-level cache, so that they do not evict data that is read again. The
 * compiler treats them as functions of their address alone, so that it may load ahead of stores. So
 * no kernel may load with them what it has stored itself. */
#ifndef COH_KERNELS_CUDA_LOAD_CUH
#define COH_KERNELS_CUDA_LOAD_CUH

#include "kernels/cuda/device.cuh"

/* The head of a kernel of which at least `blocks` blocks of `threads` run on a multiprocessor, or
 * as many as the thread limit of sm_86, sm_89 and sm_120 allows. */
#if defined(__CUDA_ARCH__) &&                                                                      \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200)
#define COH_BLOCKS(threads, blocks) ((threads) * (blocks) > 1536 ? 1536 / (threads) : (blocks))
#else
#define COH_BLOCKS(threads, blocks) (blocks)
#endif
#define COH_KERNEL_OF(symbol, threads, blocks, parameter)                                          \
    extern "C" __global__ void __launch_bounds__(threads, COH_BLOCKS(threads, blocks))             \
        symbol(parameter)

static __device__ __forceinline__ void coh_load_8(uint32_t to[2], const void *from)
{
    asm("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}

static __device__ __forceinline__ void coh_load_16(uint32_t to[4], const void *from)
{
    asm("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "l"(from));
}

/* Hides from the compiler how x was computed, so that it does not compute x again in a loop. */
static __device__ __forceinline__ void coh_pin(int &x)
{
    asm volatile("" : "+r"(x));
}

/* Clamps x to +-bound; NaN stays NaN, unlike with fminf. */
static __device__ __forceinline__ float coh_hold(float x, float bound)
{
    float held;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(held) : "f"(x), "f"(bound));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(held) : "f"(held), "f"(-bound));
    return held;
}

#endif
