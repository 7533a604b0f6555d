/* Cosines and sines for RoPE, without the C library, so that bits do not depend on its version.
 * Compiled once per instruction set. Next: kernels/cpu/rows.h (coh_row_turns), rope.c. */
#include "kernels/cpu/isa/isa.h"

#include "base/f64_bits.h"

/* Computes in double, so that the stored float is the one nearest to the true value except in about
 * one case in a million.
 *
 * The angle less n quarter turns, n rounded to nearest, lies within pi / 4. A quarter turn is split
 * into two parts, the first of 31 bits: n times it is exact for n below 2^22, and even an angle of
 * 2^31 is off by only 1e-6. Taylor series up to r^13 and r^14: error below 3e-14 there. */
#define QUARTER_HIGH 0x1.921fb544p+0
#define QUARTER_LOW  0x1.0b4611a626331p-34
#define PER_QUARTER  0x1.45f306dc9c883p-1

static double sine_within(double r, double square)
{
    double sum = 1.0 / 6227020800.0;
    sum = sum * square - 1.0 / 39916800.0;
    sum = sum * square + 1.0 / 362880.0;
    sum = sum * square - 1.0 / 5040.0;
    sum = sum * square + 1.0 / 120.0;
    sum = sum * square - 1.0 / 6.0;
    return r + r * square * sum;
}

static double cosine_within(double square)
{
    double sum = -1.0 / 87178291200.0;
    sum = sum * square + 1.0 / 479001600.0;
    sum = sum * square - 1.0 / 3628800.0;
    sum = sum * square + 1.0 / 40320.0;
    sum = sum * square - 1.0 / 720.0;
    sum = sum * square + 1.0 / 24.0;
    return 1.0 - square / 2.0 + square * square * sum;
}

/* After an odd number of quarter turns, sine and cosine are swapped; the last two bits of the
 * number give their signs. They are selected by bit operations: with branches the compiler does not
 * vectorise, which took four times as long. */
void ROW(turns)(float *cosine, float *sine, const float *frequencies, float position, int64_t count)
{
    const double round_shift = 0x1.8p52;
    for (int64_t i = 0; i < count; i++) {
        const double angle = (double)(position * frequencies[i]);
        const double shifted = angle * PER_QUARTER + round_shift, n = shifted - round_shift;
        const double r = (angle - n * QUARTER_HIGH) - n * QUARTER_LOW, square = r * r;
        const uint64_t s = coh_bits_of_f64(sine_within(r, square)),
                       c = coh_bits_of_f64(cosine_within(square));
        const uint64_t quarter = coh_bits_of_f64(shifted); /* its last bits are n's */
        const uint64_t swap = (s ^ c) & (0 - (quarter & 1));
        sine[i] = (float)coh_f64_of_bits((s ^ swap) ^ (quarter & 2) << 62);
        cosine[i] = (float)coh_f64_of_bits((c ^ swap) ^ ((quarter + 1) & 2) << 62);
    }
}
