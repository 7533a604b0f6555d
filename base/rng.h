/* rng.h - random numbers as a pure function of (seed, stream, counter). They do not depend on the
 * order, chunking or number of threads of the calls.
 *
 * SplitMix64's finaliser (Steele, Lea, Flood 2014) over a Weyl sequence keyed by seed and stream.
 * Any thread. */
#ifndef COH_BASE_RNG_H
#define COH_BASE_RNG_H

#include <stdint.h>

#include "base/box_muller.h"

__extension__ typedef unsigned __int128 coh_u128; /* __extension__ silences -Wpedantic */

static inline uint64_t coh_rng_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns 64 uniform bits. */
static inline uint64_t coh_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t key = coh_rng_mix(seed + 0x9e3779b97f4a7c15u * (stream + 1));
    return coh_rng_mix(key + 0x9e3779b97f4a7c15u * (counter + 1));
}

/* Returns a uniform number in [0, 1) with 53 bits. */
static inline double coh_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(coh_rng_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

/* Returns a uniform integer in [0, bound). Multiply-shift (Lemire 2019); its bias is below 2^-32
 * for bound < 2^32. */
static inline uint64_t coh_rng_below(uint64_t seed, uint64_t stream, uint64_t counter,
                                     uint64_t bound)
{
    return (uint64_t)(((coh_u128)coh_rng_u64(seed, stream, counter) * bound) >> 64);
}

/* Returns standard normal numbers. Counters 2 k and 2 k + 1 share a draw, so element i is a pure
 * function of i, and two cost as much as one. coh_kernel_normal (kernels/kernels.h) draws many. */
COH_NORMAL_INLINE coh_normal_pair coh_rng_normals(uint64_t seed, uint64_t stream, uint64_t pair)
{
    return coh_normal_of(coh_rng_u64(seed, stream, 2 * pair),
                         coh_rng_u64(seed, stream, 2 * pair + 1));
}

static inline double coh_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const coh_normal_pair pair = coh_rng_normals(seed, stream, counter / 2);
    return (counter & 1) ? pair.odd : pair.even;
}

#endif
