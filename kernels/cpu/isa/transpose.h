/* transpose.h - transposes squares of words, and makes pairs of two rows: the steps of packing a
 * panel.
 *
 * Included only by the files of the panels, which are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_TRANSPOSE_H
#define COH_KERNELS_CPU_ISA_TRANSPOSE_H

#include "kernels/cpu/isa/words.h"

#if defined(__AVX512F__)

#define TRANSPOSE_WORDS 16

/* to[k], k < 16, rows of to_row words: word k of sixteen rows that are `row` bytes apart.
 * Neighbours exchange words, then pairs of words, then quarters of registers. */
LANES_INLINE void transpose(const void *from, int64_t row, coh_dtype dtype, void *to,
                            int64_t to_row)
{
    __m512i x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = (__m512i)words_load((const char *)from + i * row, dtype).part[0];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512((word *)to + i * to_row, _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88));
        _mm512_storeu_si512((word *)to + (i + 4) * to_row,
                            _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88));
        _mm512_storeu_si512((word *)to + (i + 8) * to_row,
                            _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd));
        _mm512_storeu_si512((word *)to + (i + 12) * to_row,
                            _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd));
    }
}

#else

#define TRANSPOSE_WORDS 4

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint16_t quad_halves __attribute__((vector_size(8)));

LANES_INLINE quad quad_load(const void *from, coh_dtype dtype)
{
    quad out;
    quad_halves halves;
    if (dtype == COH_DTYPE_BF16) {
        memcpy(&halves, from, sizeof(halves));
        return __builtin_convertvector(halves, quad) << 16;
    }
    memcpy(&out, from, sizeof(out));
    return out;
}

/* to[k], k < 4, rows of to_row words: word k of four rows that are `row` bytes apart. */
LANES_INLINE void transpose(const void *from, int64_t row, coh_dtype dtype, void *to,
                            int64_t to_row)
{
    const char *x = from;
    const quad a = quad_load(x, dtype), b = quad_load(x + row, dtype);
    const quad c = quad_load(x + 2 * row, dtype), d = quad_load(x + 3 * row, dtype);
    const quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const quad out[4] = { __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7) };
    for (int k = 0; k < 4; k++)
        memcpy((word *)to + k * to_row, &out[k], sizeof(out[k]));
}

#endif

#if WORD_ELEMENTS == 2
/* Returns (first[i], second[i]) for `count` <= 16 bf16 of each, followed by zeros; second NULL:
 * zeros. */
LANES_INLINE lanes words_pair(const void *first, const void *second, int64_t count)
{
    const __mmask16 there = (__mmask16)((1u << count) - 1u);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, first));
    const __m512i high = second == NULL
                             ? _mm512_setzero_si512()
                             : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, second));
    lanes out;
    out.part[0] = (vector)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    return out;
}
#elif defined(__AVX512F__)
/* Loads the first `count` <= 16 words of a row, followed by zeros. */
LANES_INLINE lanes words_load_first(const void *from, int64_t count, coh_dtype dtype)
{
    const __mmask16 there = (__mmask16)((1u << count) - 1u);
    lanes out;
    if (dtype == COH_DTYPE_BF16)
        out.part[0] = (vector)_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from)), 16);
    else
        out.part[0] = (vector)_mm512_maskz_loadu_epi32(there, from);
    return out;
}
#endif

#endif
