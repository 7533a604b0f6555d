#include "kernels/cpu/isa/element.h"

/* Two registers' worth of floats become doubles at a time; sixteen double lanes as for floats. */
typedef double vector_double __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef float vector_half __attribute__((vector_size(COH_VECTOR_FLOATS * 2)));
#define DOUBLE_VECTORS (COH_LANES / (COH_VECTOR_FLOATS / 2))

LANES_INLINE void take_squares(vector_double *sums, lanes x)
{
    vector_half half[DOUBLE_VECTORS];
    memcpy(half, &x, sizeof(half));
    for (int k = 0; k < DOUBLE_VECTORS; k++) {
        vector_double wide = __builtin_convertvector(half[k], vector_double);
        sums[k] += wide * wide;
    }
}

double ROW(square_sum)(const void *row, int64_t count)
{
    const element *x = row;
    vector_double sums[DOUBLE_VECTORS] = { 0 };
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        take_squares(sums, elements_load(x + i));
    if (i < count)
        take_squares(sums, elements_load_part(x + i, count - i, 0.0f));
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
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        sum = lanes_add(sum, lanes_multiply(elements_load(a + i), elements_load(b + i)));
    if (i < count)
        sum = lanes_add(sum, lanes_multiply(elements_load_part(a + i, count - i, 0.0f),
                                            elements_load_part(b + i, count - i, 0.0f)));
    return lanes_sum(sum);
}
