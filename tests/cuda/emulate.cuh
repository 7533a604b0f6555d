/* emulate.cuh - replaces nvcc's built-ins and kernels/cuda/device.cuh when a kernel's source is
 * compiled for the host: compile a .cu file with `-x c++ -include` this.
 *
 * Fragments have the layouts of the PTX manual's figures for mma.m16n8k16 and ldmatrix. */
#ifndef COH_TESTS_CUDA_EMULATE_CUH
#define COH_TESTS_CUDA_EMULATE_CUH
#define COH_KERNELS_CUDA_DEVICE_CUH

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda/emulate.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__      static
#define __align__(n)    alignas(n)
#define __launch_bounds__(...)

#define threadIdx coh_emulated.thread
#define blockIdx  coh_emulated.block
#define blockDim  coh_emulated.threads
#define gridDim   coh_emulated.blocks

/* ---- registration of kernels for the launcher ---- */

template <auto kernel> struct coh_emulated_caller;
template <typename A, void (*kernel)(A)> struct coh_emulated_caller<kernel> {
    static constexpr size_t bytes = sizeof(A);
    static void call(const void *arguments)
    {
        kernel(*static_cast<const A *>(arguments));
    }
};

struct coh_emulated_entry {
    coh_emulated_entry(const char *symbol, coh_emulated_kernel *kernel, size_t argument_bytes)
    {
        coh_emulate_register(symbol, kernel, argument_bytes);
    }
};

/* Registers a kernel that is declared above and takes one struct by value. */
#define COH_EMULATED(symbol)                                                                       \
    static const coh_emulated_entry emulated_##symbol(#symbol, coh_emulated_caller<symbol>::call,  \
                                                      coh_emulated_caller<symbol>::bytes)

#define COH_KERNEL(symbol, threads_most, parameter)                                                \
    extern "C" void symbol(parameter);                                                             \
    COH_EMULATED(symbol);                                                                          \
    extern "C" void symbol(parameter)

/* ---- nvcc's built-ins ---- */

struct uint2 {
    unsigned x, y;
};
struct float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return { x, y };
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}

static inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}

static inline void __syncthreads(void)
{
    coh_emulate_barrier();
}

static inline void __syncwarp(unsigned = 0xffffffffu)
{
    coh_emulate_exchange("__syncwarp", NULL, 0);
}

template <typename T> static inline T coh_emulated_lane(const unsigned char *values, unsigned lane)
{
    T value;
    memcpy(&value, values + lane % 32 * COH_EMULATED_VALUE, sizeof(value));
    return value;
}

template <typename T> static inline T __shfl_sync(unsigned, T value, int lane, int = 32)
{
    return coh_emulated_lane<T>(coh_emulate_exchange("__shfl_sync", &value, sizeof(T)),
                                (unsigned)lane);
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int with, int = 32)
{
    return coh_emulated_lane<T>(coh_emulate_exchange("__shfl_xor_sync", &value, sizeof(T)),
                                threadIdx.x ^ (unsigned)with);
}

template <typename T> static inline T __shfl_down_sync(unsigned, T value, unsigned by, int = 32)
{
    const unsigned char *all = coh_emulate_exchange("__shfl_down_sync", &value, sizeof(T));
    return threadIdx.x % 32 + by < 32 ? coh_emulated_lane<T>(all, threadIdx.x % 32 + by) : value;
}

template <typename T> static inline T __shfl_up_sync(unsigned, T value, unsigned by, int = 32)
{
    const unsigned char *all = coh_emulate_exchange("__shfl_up_sync", &value, sizeof(T));
    return threadIdx.x % 32 >= by ? coh_emulated_lane<T>(all, threadIdx.x % 32 - by) : value;
}

static inline unsigned __ballot_sync(unsigned, int is_true)
{
    const unsigned char *all = coh_emulate_exchange("__ballot_sync", &is_true, sizeof(is_true));
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        bits |= (coh_emulated_lane<int>(all, lane) != 0 ? 1u : 0u) << lane;
    return bits;
}

static inline unsigned __reduce_max_sync(unsigned, unsigned value)
{
    const unsigned char *all = coh_emulate_exchange("__reduce_max_sync", &value, sizeof(value));
    unsigned most = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        most = coh_emulated_lane<unsigned>(all, lane) > most
                   ? coh_emulated_lane<unsigned>(all, lane)
                   : most;
    return most;
}

static inline int __any_sync(unsigned mask, int is_true)
{
    return __ballot_sync(mask, is_true) != 0;
}

static inline int __all_sync(unsigned mask, int is_true)
{
    return __ballot_sync(mask, is_true) == 0xffffffffu;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float __uint_as_float(unsigned bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

/* ---- kernels/cuda/device.cuh ---- */

static inline unsigned char *coh_shared(void)
{
    return coh_emulated.shared;
}

static inline float coh_quotient(float a, float b)
{
    return a / b;
}

static inline float coh_exp2(float x)
{
    return exp2f(x);
}

static inline float coh_reciprocal(float x)
{
    return 1.0f / x;
}

static inline float coh_inverse_root(float x)
{
    return 1.0f / sqrtf(x);
}

static inline float coh_float_of(uint16_t bits)
{
    return __uint_as_float((unsigned)bits << 16);
}

static inline uint16_t coh_bf16_of(float value)
{
    const unsigned bits = __float_as_uint(value);
    if (isnan(value))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline uint32_t coh_bf16_pair(float low, float high)
{
    return coh_bf16_of(low) | (uint32_t)coh_bf16_of(high) << 16;
}

static inline void coh_copy_16(void *shared, const void *global, bool is_there)
{
    coh_emulate_copy(shared, global, 16, !is_there);
}

static inline void coh_copy_commit(void)
{
    coh_emulate_copy_commit();
}

template <int LEFT> static inline void coh_copy_wait(void)
{
    coh_emulate_copy_wait(LEFT);
}

/* Lane l receives row l / 4 of matrix m, elements 2 (l % 4) and the next; transposed: column l / 4,
 * rows 2 (l % 4) and the next. Lane 8 m + r points to row r of matrix m. */
static inline void coh_emulated_ldmatrix(uint32_t to[4], const void *row, int is_transposed)
{
    const unsigned char *all = coh_emulate_exchange("ldmatrix", &row, sizeof(row));
    const unsigned lane = threadIdx.x % 32;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (unsigned e = 0; e < 2; e++) {
            const unsigned r = is_transposed ? 2 * (lane % 4) + e : lane / 4;
            const unsigned c = is_transposed ? lane / 4 : 2 * (lane % 4) + e;
            pair[e] = coh_emulated_lane<const uint16_t *>(all, 8 * m + r)[c];
        }
        to[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

static inline void coh_ldmatrix(uint32_t to[4], const void *row)
{
    coh_emulated_ldmatrix(to, row, 0);
}

static inline void coh_ldmatrix_transposed(uint32_t to[4], const void *row)
{
    coh_emulated_ldmatrix(to, row, 1);
}

/* Reads elements 2 `pair` and the next, of a row of the 16 x 16 a and of a column of the 16 x 8 b,
 * from the lanes' registers. */
static inline uint32_t coh_emulated_a(const unsigned char *all, unsigned row, unsigned pair)
{
    const unsigned at = row / 8 + pair / 4 * 2, lane = row % 8 * 4 + pair % 4;
    uint32_t both;
    memcpy(&both, all + lane * COH_EMULATED_VALUE + 4 * at, sizeof(both));
    return both;
}

static inline uint32_t coh_emulated_b(const unsigned char *all, unsigned column, unsigned pair)
{
    const unsigned at = 4 + pair / 4, lane = column * 4 + pair % 4;
    uint32_t both;
    memcpy(&both, all + lane * COH_EMULATED_VALUE + 4 * at, sizeof(both));
    return both;
}

/* Adds a lane's four sums side by side, each in the order of the depth: this loop takes most of the
 * time of an emulated product. */
static inline void coh_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t value[6] = { a[0], a[1], a[2], a[3], b0, b1 };
    const unsigned char *all = coh_emulate_exchange("mma", value, sizeof(value));
    const unsigned row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    float sum[4] = { c[0], c[1], c[2], c[3] };
    for (unsigned pair = 0; pair < 8; pair++) {
        const uint32_t a_pairs[2] = { coh_emulated_a(all, row, pair),
                                      coh_emulated_a(all, row + 8, pair) };
        const uint32_t b_pairs[2] = { coh_emulated_b(all, column, pair),
                                      coh_emulated_b(all, column + 1, pair) };
        for (unsigned shift = 0; shift < 32; shift += 16) {
            const float a_low = coh_float_of((uint16_t)(a_pairs[0] >> shift));
            const float a_high = coh_float_of((uint16_t)(a_pairs[1] >> shift));
            const float b_low = coh_float_of((uint16_t)(b_pairs[0] >> shift));
            const float b_high = coh_float_of((uint16_t)(b_pairs[1] >> shift));
            sum[0] += a_low * b_low;
            sum[1] += a_low * b_high;
            sum[2] += a_high * b_low;
            sum[3] += a_high * b_high;
        }
    }
    memcpy(c, sum, sizeof(sum));
}

#endif
