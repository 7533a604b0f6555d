/* permute.h - computes a random permutation without storing it: a keyed bijection of 0..count-1.
 *
 * A Feistel network permutes 0..4^k-1 for the smallest 4^k >= count. A result outside of the range
 * is permuted again until it is inside (cycle walking; Black and Rogaway 2002), which keeps the map
 * a bijection. Since 4^k < 4 count, the network is applied fewer than 4 times on average. */
#ifndef COH_TEXT_PERMUTE_H
#define COH_TEXT_PERMUTE_H

#include <stdint.h>

#include "base/rng.h"

/* Enough for every output bit to depend on every bit of input and key. */
#define COH_PERMUTE_ROUNDS 6

/* "windows": a stream separate from those of initialisation and sampling. */
#define COH_PERMUTE_STREAM 0x73776f646e6977u

/* The position of `index` < count in permutation number `pass` of `seed`; count >= 1. */
static inline uint64_t coh_permute(uint64_t seed, uint64_t pass, uint64_t count, uint64_t index)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0)
        half_bits++;
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t key = coh_rng_u64(seed, COH_PERMUTE_STREAM, pass);
    do {
        uint64_t left = index >> half_bits, right = index & mask;
        for (uint64_t round = 0; round < COH_PERMUTE_ROUNDS; round++) {
            uint64_t mixed = left ^ (coh_rng_u64(key, round, right) & mask);
            left = right;
            right = mixed;
        }
        index = left << half_bits | right;
    } while (index >= count);
    return index;
}

#endif
