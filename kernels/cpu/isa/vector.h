/* vector.h - one register of floats, and the few operations on it for which the compiler's vector
 * types have no expression or only a slow one. Each is written with intrinsics for the instruction
 * sets where measurements showed a gain (bf16 rows had run at half speed), and generically for the
 * others. All give the same bits.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_VECTOR_H
#define COH_KERNELS_CPU_ISA_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define COH_VECTOR_FLOATS 16
#elif defined(__AVX2__)
#define COH_VECTOR_FLOATS 8
#else
#define COH_VECTOR_FLOATS 4
#endif

typedef float vector __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef uint32_t vector_bits __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef int32_t vector_ints __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef uint16_t vector_halves __attribute__((vector_size(COH_VECTOR_FLOATS * 2)));
typedef uint8_t vector_bytes __attribute__((vector_size(COH_VECTOR_FLOATS)));

/* Called under gcc's address sanitizer (kernels/meson.build). */
#if defined(COH_LANES_CALLED)
#define LANES_INLINE static __attribute__((unused))
#else
#define LANES_INLINE static inline __attribute__((always_inline, unused))
#endif

LANES_INLINE vector vector_all(float value)
{
    return value - (vector){ 0 };
}

/* mask ? a : b, lane by lane; a mask lane is all ones or all zeros. */
LANES_INLINE vector vector_select(vector_bits mask, vector a, vector b)
{
    return (vector)((mask & (vector_bits)a) | (~mask & (vector_bits)b));
}

LANES_INLINE vector_bits bits_all(uint32_t value)
{
    return value - (vector_bits){ 0 };
}

/* larger: a > b ? a : b, smaller: a < b ? a : b, so b if either is NaN.
 * zero_below: x < bound ? 0 : value.
 * widen, narrow: 16 bits to and from the lower half of 32; the upper half is discarded.
 * widen_bytes, narrow_bytes: 8 bits to and from the lowest of 32; the others are discarded.
 * quiet: `bits` unchanged, or, if x is NaN, the bits of x with the quiet bit set.
 * if_below: bits < bound ? below : other, for bits and bounds below 2^31.
 * bits_larger, bits_smaller, bits_largest: of numbers below 2^31, the last of all lanes. */
#if defined(__AVX512F__)

LANES_INLINE vector vector_larger(vector a, vector b)
{
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
}

LANES_INLINE vector vector_smaller(vector a, vector b)
{
    return (vector)_mm512_min_ps((__m512)a, (__m512)b);
}

LANES_INLINE vector vector_zero_below(vector x, vector bound, vector value)
{
    const __mmask16 kept = _mm512_cmp_ps_mask((__m512)x, (__m512)bound, _CMP_NLT_UQ);
    return (vector)_mm512_maskz_mov_ps(kept, (__m512)value);
}

LANES_INLINE vector_bits vector_widen(vector_halves half)
{
    return (vector_bits)_mm512_cvtepu16_epi32((__m256i)half);
}

LANES_INLINE vector_halves vector_narrow(vector_bits bits)
{
    return (vector_halves)_mm512_cvtepi32_epi16((__m512i)bits);
}

LANES_INLINE vector_bits vector_widen_bytes(vector_bytes bytes)
{
    return (vector_bits)_mm512_cvtepu8_epi32((__m128i)bytes);
}

LANES_INLINE vector_bytes vector_narrow_bytes(vector_bits bits)
{
    return (vector_bytes)_mm512_cvtepi32_epi8((__m512i)bits);
}

LANES_INLINE vector vector_if_below(vector_bits bits, uint32_t bound, vector below, vector other)
{
    const __mmask16 is_below =
        _mm512_cmplt_epu32_mask((__m512i)bits, _mm512_set1_epi32((int)bound));
    return (vector)_mm512_mask_mov_ps((__m512)other, is_below, (__m512)below);
}

LANES_INLINE vector_bits bits_larger(vector_bits a, vector_bits b)
{
    return (vector_bits)_mm512_max_epu32((__m512i)a, (__m512i)b);
}

LANES_INLINE vector_bits bits_smaller(vector_bits a, vector_bits b)
{
    return (vector_bits)_mm512_min_epu32((__m512i)a, (__m512i)b);
}

LANES_INLINE uint32_t bits_largest(vector_bits a)
{
    return _mm512_reduce_max_epu32((__m512i)a);
}

LANES_INLINE vector_bits vector_quiet(vector x, vector_bits bits)
{
    const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (vector_bits)_mm512_mask_or_epi32((__m512i)bits, is_nan, (__m512i)x,
                                             _mm512_set1_epi32(0x400000));
}

#else

LANES_INLINE vector vector_if_below(vector_bits bits, uint32_t bound, vector below, vector other)
{
    const vector_bits is_below = (vector_bits)((vector_ints)bits < (int32_t)bound);
    return vector_select(is_below, below, other);
}

LANES_INLINE vector_bits bits_larger(vector_bits a, vector_bits b)
{
#if defined(__AVX2__)
    return (vector_bits)_mm256_max_epu32((__m256i)a, (__m256i)b);
#else
    const vector_bits is_larger = (vector_bits)((vector_ints)a > (vector_ints)b);
    return (is_larger & a) | (~is_larger & b);
#endif
}

LANES_INLINE vector_bits bits_smaller(vector_bits a, vector_bits b)
{
#if defined(__AVX2__)
    return (vector_bits)_mm256_min_epu32((__m256i)a, (__m256i)b);
#else
    const vector_bits is_smaller = (vector_bits)((vector_ints)a < (vector_ints)b);
    return (is_smaller & a) | (~is_smaller & b);
#endif
}

LANES_INLINE uint32_t bits_largest(vector_bits a)
{
#if defined(__AVX2__)
    const __m128i four =
        _mm_max_epu32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1)));
#else
    uint32_t most = 0;
    for (int j = 0; j < COH_VECTOR_FLOATS; j++)
        most = a[j] > most ? a[j] : most;
    return most;
#endif
}

#if defined(__AVX2__)

LANES_INLINE vector vector_larger(vector a, vector b)
{
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
}

LANES_INLINE vector vector_smaller(vector a, vector b)
{
    return (vector)_mm256_min_ps((__m256)a, (__m256)b);
}

LANES_INLINE vector_bits vector_widen(vector_halves half)
{
    return (vector_bits)_mm256_cvtepu16_epi32((__m128i)half);
}

/* Packing saturates, so the upper half is cleared first; it works in 128-bit halves. */
LANES_INLINE vector_halves vector_narrow(vector_bits bits)
{
    const __m256i low = (__m256i)(bits & 0xffffu);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0xd8);
    return (vector_halves)_mm256_castsi256_si128(packed);
}

LANES_INLINE vector_bits vector_widen_bytes(vector_bytes bytes)
{
    return (vector_bits)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&bytes));
}

LANES_INLINE vector_bytes vector_narrow_bytes(vector_bits bits)
{
    const __m128i half = (__m128i)vector_narrow(bits & 0xffu);
    const __m128i packed = _mm_packus_epi16(half, half);
    vector_bytes bytes;
    memcpy(&bytes, &packed, sizeof(bytes));
    return bytes;
}

#else

LANES_INLINE vector vector_larger(vector a, vector b)
{
#if defined(__SSE2__)
    return (vector)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vector_select((vector_bits)(a > b), a, b);
#endif
}

LANES_INLINE vector vector_smaller(vector a, vector b)
{
#if defined(__SSE2__)
    return (vector)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vector_select((vector_bits)(a < b), a, b);
#endif
}

LANES_INLINE vector_bits vector_widen(vector_halves half)
{
    return __builtin_convertvector(half, vector_bits);
}

LANES_INLINE vector_halves vector_narrow(vector_bits bits)
{
    return __builtin_convertvector(bits, vector_halves);
}

#if defined(__SSE2__)

LANES_INLINE vector_bits vector_widen_bytes(vector_bytes bytes)
{
    const __m128i zero = _mm_setzero_si128();
    int word;
    memcpy(&word, &bytes, sizeof(word));
    return (vector_bits)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(word), zero), zero);
}

LANES_INLINE vector_bytes vector_narrow_bytes(vector_bits bits)
{
    const __m128i low = (__m128i)(bits & 0xffu), half = _mm_packs_epi32(low, low);
    const int word = _mm_cvtsi128_si32(_mm_packus_epi16(half, half));
    vector_bytes bytes;
    memcpy(&bytes, &word, sizeof(bytes));
    return bytes;
}

#else

LANES_INLINE vector_bits vector_widen_bytes(vector_bytes bytes)
{
    return __builtin_convertvector(bytes, vector_bits);
}

LANES_INLINE vector_bytes vector_narrow_bytes(vector_bits bits)
{
    return __builtin_convertvector(bits, vector_bytes);
}

#endif

#endif

LANES_INLINE vector vector_zero_below(vector x, vector bound, vector value)
{
    return (vector)(~(vector_bits)(x < bound) & (vector_bits)value);
}

LANES_INLINE vector_bits vector_quiet(vector x, vector_bits bits)
{
    const vector_bits is_nan = (vector_bits)(x != x); /* NOLINT(misc-redundant-expression) */
    return (is_nan & ((vector_bits)x | 0x400000u)) | (~is_nan & bits);
}

#endif

#endif
