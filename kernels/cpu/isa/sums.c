/* Row loops that reduce a row: the sum of squares in double, and the dot product. Compiled once per
 * instruction set and element type; all give the same bits. Next: kernels/cpu/rows.h. */
#include "kernels/cpu/isa/element.h"

/* Registers of half as many doubles as floats; sixteen double lanes, as for floats. */
typedef double vector_double __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef float vector_half __attribute__((vector_size(COH_VECTOR_FLOATS * 2)));
#define DOUBLE_VECTORS (COH_LANES / (COH_VECTOR_FLOATS / 2))

/* Loads half a register of floats from memory: splitting a whole register takes longer. */
LANES_INLINE vector_half load_half(const element *from)
{
#if COH_ELEMENT_IS_BF16
    typedef uint16_t short_half __attribute__((vector_size(COH_VECTOR_FLOATS)));
    short_half upper;
    memcpy(&upper, from, sizeof(upper));
#if defined(__AVX512F__)
    return (vector_half)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)upper), 16);
#else
    typedef uint32_t bits_half __attribute__((vector_size(COH_VECTOR_FLOATS * 2)));
    return (vector_half)(__builtin_convertvector(upper, bits_half) << 16);
#endif
#else
    vector_half half;
    memcpy(&half, from, sizeof(half));
    return half;
#endif
}

LANES_INLINE vector_double to_double(vector_half half)
{
#if defined(__AVX512F__)
    return _mm512_cvtps_pd(half); /* gcc 12 converts the two halves of a half */
#else
    return __builtin_convertvector(half, vector_double);
#endif
}

LANES_INLINE void take_squares(vector_double *sums, const element *x)
{
    for (int k = 0; k < DOUBLE_VECTORS; k++) {
        vector_double wide = to_double(load_half(x + k * (COH_VECTOR_FLOATS / 2)));
        sums[k] += wide * wide;
    }
}

double ROW(square_sum)(const void *row, int64_t count)
{
    const element *x = row;
    vector_double sums[DOUBLE_VECTORS] = { 0 };
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        take_squares(sums, x + i);
    if (i < count) {
        element padded[COH_LANES] = { 0 };
        memcpy(padded, x + i, (size_t)(count - i) * sizeof(element));
        take_squares(sums, padded);
    }
    double folded[COH_LANES];
    memcpy(folded, sums, sizeof(folded));
    for (int half = COH_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            folded[j] += folded[j + half];
    return folded[0];
}

float ROW(dot)(const void *left, const void *right, int64_t count)
{
    const element *a = left, *b = right;
    lanes sum = lanes_all(0.0f);
    EACH_LANES(i, n, count,
               sum = lanes_add(sum, lanes_multiply(elements_take(a + i, n, 0.0f),
                                                   elements_take(b + i, n, 0.0f))));
    return lanes_sum(sum);
}
