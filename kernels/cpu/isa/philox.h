/* philox.h - a register of Philox blocks (kernels/random.h), one per lane. They are integers, so
 * the words are the same on every instruction set.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_PHILOX_H
#define COH_KERNELS_CPU_ISA_PHILOX_H

#include "kernels/cpu/isa/vector.h"
#include "kernels/random.h"

/* 0, 1, 2, ... by lane. */
LANES_INLINE vector_bits bits_order(void)
{
    vector_bits order;
    for (uint32_t lane = 0; lane < COH_VECTOR_FLOATS; lane++)
        order[lane] = lane;
    return order;
}

typedef uint64_t vector_wides __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));

/* Returns the products of 64 bits of the lower halves of each lane. */
LANES_INLINE vector_wides wides_multiply(vector_wides x, uint32_t factor)
{
#if defined(__AVX512F__)
    return (vector_wides)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64((long long)factor));
#elif defined(__AVX2__)
    return (vector_wides)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x((long long)factor));
#elif defined(__SSE2__)
    return (vector_wides)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x((long long)factor));
#else
    return (x & 0xffffffffu) * (uint64_t)factor;
#endif
}

/* The keys of all rounds: in memory, so that no register has to be filled with one. */
typedef struct philox_keys {
    uint64_t round[COH_PHILOX_ROUNDS][2];
} philox_keys;

LANES_INLINE philox_keys philox_keys_of(const uint32_t key[2])
{
    philox_keys keys;
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < COH_PHILOX_ROUNDS; round++) {
        keys.round[round][0] = k0;
        keys.round[round][1] = k1;
        k0 += COH_PHILOX_W0;
        k1 += COH_PHILOX_W1;
    }
    return keys;
}

/* One round, in the lower halves of each lane; the upper ones hold anything. */
LANES_INLINE void philox_round(vector_wides x[4], const uint64_t key[2])
{
    const vector_wides a = wides_multiply(x[0], COH_PHILOX_M0);
    const vector_wides b = wides_multiply(x[2], COH_PHILOX_M1);
    x[0] = b >> 32 ^ x[1] ^ key[0];
    x[1] = b;
    x[2] = a >> 32 ^ x[3] ^ key[1];
    x[3] = a;
}

/* Replaces x[4], the counters' words from the lowest on, by the blocks' words. A register
 * multiplies every other lane, and a product uses its neighbour's place too: so even and odd lanes
 * stay apart until the last round. */
LANES_INLINE void philox_blocks(vector_bits x[4], const philox_keys *keys)
{
    vector_wides even[4], odd[4];
    for (int w = 0; w < 4; w++) {
        even[w] = (vector_wides)x[w];
        odd[w] = even[w] >> 32;
    }
    for (int round = 0; round < COH_PHILOX_ROUNDS; round++) {
        philox_round(even, keys->round[round]);
        philox_round(odd, keys->round[round]);
    }
    for (int w = 0; w < 4; w++)
        x[w] = (vector_bits)((even[w] & 0xffffffffu) | odd[w] << 32);
}

/* Returns lanes of all ones where the word keeps its element, of zeros where it drops it. */
LANES_INLINE vector_bits bits_kept(vector_bits words, uint32_t threshold)
{
    return (vector_bits)(words >= bits_all(threshold));
}

#endif
