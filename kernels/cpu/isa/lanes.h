/* lanes.h - sixteen floats side by side, the same on every instruction set.
 *
 * A sum over a row is kept in COH_LANES partial sums, element i in lane i % 16, folded as a fixed
 * tree at the end. One AVX-512 register, two AVX, or four SSE or NEON registers hold the lanes. The
 * additions and their order are the same, and so are the bits. For that reason there is no fused
 * multiply-add (-ffp-contract=off).
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_LANES_H
#define COH_KERNELS_CPU_ISA_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa/vector.h"

#define COH_LANES   16
#define COH_VECTORS (COH_LANES / COH_VECTOR_FLOATS)

typedef struct lanes {
    vector part[COH_VECTORS];
} lanes;

LANES_INLINE lanes lanes_all(float value)
{
    lanes out;
    for (int k = 0; k < COH_VECTORS; k++)
        out.part[k] = vector_all(value);
    return out;
}

LANES_INLINE lanes lanes_load(const float *from)
{
    lanes out;
    for (int k = 0; k < COH_VECTORS; k++)
        memcpy(&out.part[k], from + k * COH_VECTOR_FLOATS, sizeof(out.part[k]));
    return out;
}

LANES_INLINE void lanes_store(float *to, lanes a)
{
    for (int k = 0; k < COH_VECTORS; k++)
        memcpy(to + k * COH_VECTOR_FLOATS, &a.part[k], sizeof(a.part[k]));
}

/* Sets the lanes from `count` on to `fill`. */
LANES_INLINE lanes lanes_keep(lanes a, int64_t count, float fill)
{
    float x[COH_LANES];
    lanes_store(x, a);
    for (int j = 0; j < COH_LANES; j++)
        x[j] = j < count ? x[j] : fill;
    return lanes_load(x);
}

/* Loads the last `count` < 16 elements of a row; the other lanes hold `fill`. */
LANES_INLINE lanes lanes_load_part(const float *from, int64_t count, float fill)
{
    float padded[COH_LANES] = { 0 };
    memcpy(padded, from, (size_t)count * sizeof(float));
    return fill == 0.0f ? lanes_load(padded) : lanes_keep(lanes_load(padded), count, fill);
}

LANES_INLINE void lanes_store_part(float *to, int64_t count, lanes a)
{
    float padded[COH_LANES];
    lanes_store(padded, a);
    memcpy(to, padded, (size_t)count * sizeof(float));
}

/* Runs a statement for each sixteen elements of a row, from element i on, with the constant n = 16,
 * and once for the last n < 16. So the compiler removes the statement's branches on n. */
#define EACH_LANES(i, n, count, ...)                                                               \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + COH_LANES <= (count); i += COH_LANES) {                                         \
            const int64_t n = COH_LANES;                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        if (i < (count)) {                                                                         \
            const int64_t n = (count)-i;                                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Loads and stores sixteen elements, or the first `count` < 16. */
LANES_INLINE lanes lanes_take(const float *from, int64_t count, float fill)
{
    return count == COH_LANES ? lanes_load(from) : lanes_load_part(from, count, fill);
}

LANES_INLINE void lanes_give(float *to, int64_t count, lanes a)
{
    if (count == COH_LANES)
        lanes_store(to, a);
    else
        lanes_store_part(to, count, a);
}

/* bf16 is the upper half of a float: widening is exact. */
LANES_INLINE lanes lanes_widen(const uint16_t *from)
{
    lanes out;
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_halves half;
        memcpy(&half, from + k * COH_VECTOR_FLOATS, sizeof(half));
        out.part[k] = (vector)(vector_widen(half) << 16);
    }
    return out;
}

/* Rounds to nearest, ties to even, in integers. Adding 0x7fff and the last kept bit carries if the
 * value must be rounded up, into the exponent if necessary (overflow gives infinity). That carry
 * would turn some NaNs into numbers, so NaNs are made quiet and truncated instead. */
LANES_INLINE void lanes_narrow(uint16_t *to, lanes a)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_bits bits = (vector_bits)a.part[k];
        vector_bits rounded = vector_quiet(a.part[k], bits + 0x7fffu + (bits >> 16 & 1u));
        vector_halves half = vector_narrow(rounded >> 16);
        memcpy(to + k * COH_VECTOR_FLOATS, &half, sizeof(half));
    }
}

/* As lanes_take and lanes_give, for bf16. */
LANES_INLINE lanes halves_take(const uint16_t *from, int64_t count, float fill)
{
    uint16_t padded[COH_LANES] = { 0 };
    if (count == COH_LANES)
        return lanes_widen(from);
    memcpy(padded, from, (size_t)count * sizeof(*padded));
    return fill == 0.0f ? lanes_widen(padded) : lanes_keep(lanes_widen(padded), count, fill);
}

LANES_INLINE void halves_give(uint16_t *to, int64_t count, lanes a)
{
    uint16_t padded[COH_LANES];
    if (count == COH_LANES) {
        lanes_narrow(to, a);
        return;
    }
    lanes_narrow(padded, a);
    memcpy(to, padded, (size_t)count * sizeof(*padded));
}

/* Joins and splits a float: a bf16 rounded half up in magnitude, and the remainder in units of the
 * float's last place. high = (bits + 0x8000) >> 16, low = bits - (high << 16), which are the lower
 * 16 bits. */
LANES_INLINE lanes lanes_join(const uint16_t *high, const uint16_t *low)
{
    lanes out;
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_halves upper, lower;
        memcpy(&upper, high + k * COH_VECTOR_FLOATS, sizeof(upper));
        memcpy(&lower, low + k * COH_VECTOR_FLOATS, sizeof(lower));
        vector_bits rest = vector_widen(lower);
        rest -= (rest & 0x8000u) << 1;
        out.part[k] = (vector)((vector_widen(upper) << 16) + rest);
    }
    return out;
}

LANES_INLINE void lanes_split(uint16_t *high, uint16_t *low, lanes a)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_bits bits = (vector_bits)a.part[k];
        vector_halves upper = vector_narrow((bits + 0x8000u) >> 16);
        vector_halves lower = vector_narrow(bits);
        memcpy(high + k * COH_VECTOR_FLOATS, &upper, sizeof(upper));
        memcpy(low + k * COH_VECTOR_FLOATS, &lower, sizeof(lower));
    }
}

#define LANES_BINARY(name, expression)                                                             \
    LANES_INLINE lanes name(lanes left, lanes right)                                               \
    {                                                                                              \
        lanes out;                                                                                 \
        for (int k = 0; k < COH_VECTORS; k++) {                                                    \
            vector a = left.part[k], b = right.part[k];                                            \
            out.part[k] = (expression);                                                            \
        }                                                                                          \
        return out;                                                                                \
    }

LANES_BINARY(lanes_add, a + b)
LANES_BINARY(lanes_subtract, a - b)
LANES_BINARY(lanes_multiply, a *b)
LANES_BINARY(lanes_divide, a / b)
/* The larger; b if either is NaN. */
LANES_BINARY(lanes_larger, vector_larger(a, b))

/* total += a, of `count` elements. */
LANES_INLINE void lanes_add_to(float *total, int64_t count, lanes a)
{
    lanes_give(total, count, lanes_add(lanes_take(total, count, 0.0f), a));
}

/* ((0+8)+(4+12)) + ... : halves added to halves. */
LANES_INLINE float lanes_sum(lanes a)
{
    float x[COH_LANES];
    lanes_store(x, a);
    for (int half = COH_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            x[j] += x[j + half];
    return x[0];
}

LANES_INLINE float lanes_largest(lanes a)
{
    float x[COH_LANES];
    lanes_store(x, a);
    for (int j = 1; j < COH_LANES; j++)
        x[0] = x[j] > x[0] ? x[j] : x[0];
    return x[0];
}

LANES_INLINE lanes lanes_root(lanes a)
{
    for (int k = 0; k < COH_VECTORS; k++)
        for (int j = 0; j < COH_VECTOR_FLOATS; j++)
            a.part[k][j] = sqrtf(a.part[k][j]);
    return a;
}

/* exp(x) = 2^n e^r = 2^n (1 + m), n = round(x / ln 2), |r| <= ln 2 / 2 (Cody and Waite 1980: ln
 * 2 in two parts, n times the first exact). e^r = 1 + r + r^2 q(r), q of degree 4 through the
 * Chebyshev points of the interval: its error is 1.1e-8, so rounding dominates. Relative error
 * below 3 * 2^-24 (tested). For -87 <= x <= 88; NaN stays NaN. Returns m; *out_power is 2^n. */
LANES_INLINE vector vector_exp_parts(vector x, vector *out_power)
{
    const vector round_shift = vector_all(0x1.8p23f);
    vector shifted = x * vector_all(0x1.715476p+0f) + round_shift;
    vector n = shifted - round_shift;
    vector r = (x - n * vector_all(0x1.62e4p-1f)) - n * vector_all(0x1.7f7d1cp-20f);
    vector q = vector_all(0x1.6d113cp-10f);
    q = q * r + vector_all(0x1.120ba2p-7f);
    q = q * r + vector_all(0x1.55551ap-5f);
    q = q * r + vector_all(0x1.5554dcp-3f);
    q = q * r + vector_all(0.5f);
    vector_bits exponent = (vector_bits)shifted - (vector_bits)round_shift + 127u;
    *out_power = (vector)(exponent << 23);
    return (r * r) * q + r;
}

LANES_INLINE vector vector_exp_within(vector x)
{
    vector power, m = vector_exp_parts(x, &power);
    return (m + vector_all(1.0f)) * power;
}

/* tanh(x) = -d / (2 + d) with d = e^(-2 |x|) - 1 = 2^n m + (2^n - 1), which does not cancel, and
 * the sign of x. From |x| = 20 on it is 1. Relative error below 8 * 2^-24 (tested); NaN stays. */
LANES_INLINE vector vector_tanh(vector x)
{
    const vector_bits sign = (vector_bits)x & 0x80000000u;
    const vector size = (vector)((vector_bits)x & 0x7fffffffu);
    vector power,
        m = vector_exp_parts(vector_larger(vector_all(-40.0f), size * vector_all(-2.0f)), &power);
    const vector d = power * m + (power - vector_all(1.0f));
    return (vector)((vector_bits)((vector_all(0.0f) - d) / (vector_all(2.0f) + d)) | sign);
}

/* Returns 0 below -87 and e^88 above 88, as softmax needs. */
LANES_INLINE vector vector_exp(vector x)
{
    const vector lowest = vector_all(-87.0f), highest = vector_all(88.0f);
    const vector held = vector_smaller(highest, vector_larger(lowest, x));
    return vector_zero_below(x, lowest, vector_exp_within(held));
}

LANES_INLINE lanes lanes_exp(lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = vector_exp(x.part[k]);
    return x;
}

/* Exponentials relative to a maximum. */
LANES_INLINE lanes lanes_exp_from(lanes score, float max)
{
    return lanes_exp(lanes_subtract(score, lanes_all(max)));
}

/* The factor of earlier sums when a maximum rises: exp(old - new); 0 if there is no old one yet. */
LANES_INLINE float shrink_by(float old_max, float max)
{
    return old_max == -INFINITY ? 0.0f : vector_exp(vector_all(old_max - max))[0];
}

#endif
