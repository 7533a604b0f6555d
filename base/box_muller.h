/* box_muller.h - two standard normal numbers from two words of uniform bits (Box and Muller 1958):
 *
 *     radius = sqrt(-2 log u), u in (0, 1]        radius cos(2 pi v), radius sin(2 pi v)
 *     angle  = 2 pi v,         v in [0, 1)
 *
 * u and v are multiples of 2^-52, so a radius is below 8.5.
 *
 * Logarithm, cosine and sine are our own: IEEE 754 additions, products, quotients and roots in a
 * fixed order. So the bits do not depend on the C library, instruction set or register width
 * (contraction is off everywhere: meson.build). There are no branches, and integers are only added,
 * masked and shifted right as unsigned, which every instruction set supports: a loop over pairs can
 * be vectorised at any width.
 *
 * Errors: each value has a relative error of at most 1e-15, even near zero, because u - 1 and the
 * distance to the nearest quarter turn are exact. */
#ifndef COH_BASE_BOX_MULLER_H
#define COH_BASE_BOX_MULLER_H

#include <math.h>
#include <stdint.h>

#include "base/f64_bits.h"

/* Clang does not vectorise a loop that contains a call, and would not inline a function of this
 * length. */
#define COH_NORMAL_INLINE static inline __attribute__((always_inline, unused))

/* log u of a normal u > 0, as e log 2 + log m with m in [sqrt(1/2), sqrt(2)), and log m = 2
 * atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716. The series ends at s^19, which leaves a relative
 * error below 3e-17. */
static inline double coh_normal_log(double u)
{
    const uint64_t one = 0x3ff0000000000000, root_half = 0x3fe6a09e667f3bcd;
    const uint64_t shifted = coh_bits_of_f64(u) + (one - root_half);
    /* e + 1023 as the last bits of 2^52 */
    const double e = coh_f64_of_bits((shifted >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0);
    const double m = coh_f64_of_bits((shifted & 0x000fffffffffffff) + root_half);
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double sum = 2.0 / 19.0;
    sum = sum * square + 2.0 / 17.0;
    sum = sum * square + 2.0 / 15.0;
    sum = sum * square + 2.0 / 13.0;
    sum = sum * square + 2.0 / 11.0;
    sum = sum * square + 2.0 / 9.0;
    sum = sum * square + 2.0 / 7.0;
    sum = sum * square + 2.0 / 5.0;
    sum = sum * square + 2.0 / 3.0;
    return e * 0.6931471805599453 + (2.0 * s + s * (square * sum));
}

/* Taylor series for |x| <= pi / 4, up to x^15 and x^16; the omitted terms are below 6e-17 of the
 * sum. */
static inline double coh_normal_sine(double x, double square)
{
    double sum = -1.0 / 1307674368000.0;
    sum = sum * square + 1.0 / 6227020800.0;
    sum = sum * square - 1.0 / 39916800.0;
    sum = sum * square + 1.0 / 362880.0;
    sum = sum * square - 1.0 / 5040.0;
    sum = sum * square + 1.0 / 120.0;
    sum = sum * square - 1.0 / 6.0;
    return x + x * (square * sum);
}

static inline double coh_normal_cosine(double square)
{
    double sum = 1.0 / 20922789888000.0;
    sum = sum * square - 1.0 / 87178291200.0;
    sum = sum * square + 1.0 / 479001600.0;
    sum = sum * square - 1.0 / 3628800.0;
    sum = sum * square + 1.0 / 40320.0;
    sum = sum * square - 1.0 / 720.0;
    sum = sum * square + 1.0 / 24.0;
    return 1.0 - (0.5 * square - square * (square * sum));
}

typedef struct coh_normal_pair {
    double even, odd; /* from the cosine, from the sine */
} coh_normal_pair;

/* Makes a pair from two words, ignoring their lowest 12 bits. The angle is q quarter turns, rounded
 * to nearest, plus a rest x. An odd q swaps cosine and sine; the signs follow from the last two
 * bits of q. */
COH_NORMAL_INLINE coh_normal_pair coh_normal_of(uint64_t u_bits, uint64_t v_bits)
{
    const uint64_t one = 0x3ff0000000000000;
    const double u = 2.0 - coh_f64_of_bits(u_bits >> 12 | one);
    const double turns = 4.0 * (coh_f64_of_bits(v_bits >> 12 | one) - 1.0);
    const double rounded = turns + 0x1.8p52; /* its last bits are those of q */
    const double x = (turns - (rounded - 0x1.8p52)) * 1.5707963267948966, square = x * x;
    const uint64_t c = coh_bits_of_f64(coh_normal_cosine(square));
    const uint64_t s = coh_bits_of_f64(coh_normal_sine(x, square));
    const uint64_t q = coh_bits_of_f64(rounded), swap = (c ^ s) & (0 - (q & 1));
    const double radius = sqrt(-2.0 * coh_normal_log(u));
    return (coh_normal_pair){
        .even = radius * coh_f64_of_bits((c ^ swap) ^ ((q + 1) & 2) << 62),
        .odd = radius * coh_f64_of_bits((s ^ swap) ^ (q & 2) << 62),
    };
}

#endif
