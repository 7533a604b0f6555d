/* philox.h - a register of Philox blocks (kernels/random.h), one per lane. They are integers, so
 * the words are the same on every instruction set.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_PHILOX_H
#define COH_KERNELS_CPU_ISA_PHILOX_H

#include "kernels/cpu/isa/vector.h"
#include "kernels/random.h"

LANES_INLINE vector_bits bits_all(uint32_t value)
{
    return value - (vector_bits){ 0 };
}

/* 0, 1, 2, ... by lane. */
LANES_INLINE vector_bits bits_order(void)
{
    vector_bits order;
    for (uint32_t lane = 0; lane < COH_VECTOR_FLOATS; lane++)
        order[lane] = lane;
    return order;
}

typedef struct wide_product {
    vector_bits high, low;
} wide_product;

/* x * factor with 64 bits per lane. A register multiplies every other lane, and the result uses its
 * neighbour's place too: so once for the even lanes, once for the odd ones. */
LANES_INLINE wide_product bits_multiply(vector_bits x, uint32_t factor)
{
#if defined(__AVX512F__)
    const __m512i m = _mm512_set1_epi32((int)factor);
    const __m512i even = _mm512_mul_epu32((__m512i)x, m);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), m);
    return (wide_product){
        .high = (vector_bits)_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd),
        .low = (vector_bits)_mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32)),
    };
#elif defined(__AVX2__)
    const __m256i m = _mm256_set1_epi32((int)factor);
    const __m256i even = _mm256_mul_epu32((__m256i)x, m);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), m);
    return (wide_product){
        .high = (vector_bits)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
        .low = (vector_bits)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa),
    };
#elif defined(__SSE2__)
    const __m128i m = _mm_set1_epi32((int)factor);
    const __m128i even = _mm_mul_epu32((__m128i)x, m);
    const __m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)x, 32), m);
    const vector_bits at_odd = { 0, ~0u, 0, ~0u };
    return (wide_product){
        .high = (vector_bits)_mm_srli_epi64(even, 32) | (at_odd & (vector_bits)odd),
        .low = (~at_odd & (vector_bits)even) | (vector_bits)_mm_slli_epi64(odd, 32),
    };
#else
    wide_product product = { .low = x * factor };
    for (int lane = 0; lane < COH_VECTOR_FLOATS; lane++)
        product.high[lane] = (uint32_t)((uint64_t)x[lane] * factor >> 32);
    return product;
#endif
}

/* Replaces x[4], the counters' words from the lowest on, by the blocks' words. */
LANES_INLINE void philox_blocks(vector_bits x[4], const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < COH_PHILOX_ROUNDS; round++) {
        const wide_product a = bits_multiply(x[0], COH_PHILOX_M0);
        const wide_product b = bits_multiply(x[2], COH_PHILOX_M1);
        x[0] = b.high ^ x[1] ^ bits_all(k0);
        x[1] = b.low;
        x[2] = a.high ^ x[3] ^ bits_all(k1);
        x[3] = a.low;
        k0 += COH_PHILOX_W0;
        k1 += COH_PHILOX_W1;
    }
}

/* Returns lanes of all ones where the word keeps its element, of zeros where it drops it. */
LANES_INLINE vector_bits bits_kept(vector_bits words, uint32_t threshold)
{
    return (vector_bits)(words >= bits_all(threshold));
}

#endif
