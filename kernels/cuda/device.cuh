/* device.cuh - declares kernels, and wraps the instructions for which CUDA C++ has no functions;
 * tests/cuda/emulate.cuh has the same for the host.
 *
 * Tiles of bf16 are multiplied by mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"). With
 * g = lane / 4 and t = lane % 4, a lane holds
 *
 *    a  16 x 16   a0 (g, 2t..), a1 (g + 8, 2t..), a2 (g, 2t + 8..), a3 (g + 8, 2t + 8..)
 *    b  16 x 8    b0 (2t.., g), b1 (2t + 8.., g)
 *    c  16 x 8    c0 c1 (g, 2t..), c2 c3 (g + 8, 2t..)
 *
 * so the c of one product, rounded to pairs, is the a of the next. */
#ifndef COH_KERNELS_CUDA_DEVICE_CUH
#define COH_KERNELS_CUDA_DEVICE_CUH

#include <stdint.h>

/* The head of a kernel that takes one struct by value. */
#define COH_KERNEL(symbol, threads_most, parameter)                                                \
    extern "C" __global__ void __launch_bounds__(threads_most) symbol(parameter)

/* Returns the block's dynamic shared memory. */
static __device__ __forceinline__ unsigned char *coh_shared(void)
{
    extern __shared__ __align__(16) unsigned char coh_shared_bytes[];
    return coh_shared_bytes;
}

/* 2^x to 2 units in the last place; results below 2^-126 are zero. */
static __device__ __forceinline__ float coh_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* a / b to 2 units in the last place, for b below 2^126; 0 for an infinite b. */
static __device__ __forceinline__ float coh_quotient(float a, float b)
{
    return __fdividef(a, b);
}

/* 1 / x and 1 / sqrt(x) to 1 and 2 units in the last place, for normal x and results. */
static __device__ __forceinline__ float coh_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float coh_inverse_root(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float coh_float_of(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}

/* Rounds to nearest, ties to even. */
static __device__ __forceinline__ uint32_t coh_bf16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ __forceinline__ uint16_t coh_bf16_of(float value)
{
    return (uint16_t)coh_bf16_pair(value, 0.0f);
}

static __device__ __forceinline__ unsigned coh_shared_address(const void *at)
{
    return (unsigned)__cvta_generic_to_shared(at);
}

/* Copies 16 bytes to shared memory asynchronously; writes zeros if is_there is false. */
static __device__ __forceinline__ void coh_copy_16(void *shared, const void *global, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(coh_shared_address(shared)),
                 "l"(global), "r"(is_there ? 16 : 0)
                 : "memory");
}

/* Ends a group of copies. */
static __device__ __forceinline__ void coh_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's copies, except those of the last LEFT groups. */
template <int LEFT> static __device__ __forceinline__ void coh_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Loads four 8 x 8 matrices of bf16: lane 8 m + r passes the address of the 16 bytes that are row r
 * of matrix m. */
static __device__ __forceinline__ void coh_ldmatrix(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(coh_shared_address(row)));
}

static __device__ __forceinline__ void coh_ldmatrix_transposed(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(coh_shared_address(row)));
}

/* c += a b */
static __device__ __forceinline__ void coh_mma(float c[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
