/* Normally distributed values for initial parameters: the numbers of base/rng.h, in a loop that the
 * compiler can vectorise. Compiled once per instruction set. Next: base/rng.h. */
#include "kernels/cpu/isa/isa.h"

#include "base/rng.h"

/* A draw gives two numbers. A value at either end that is half of a pair takes a separate draw, so
 * that the loop is over whole pairs, which the compiler vectorises. */
void ROW(normal)(float *values, uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                 double scale)
{
    const float *const end = values + count;
    if (count > 0 && (first & 1))
        *values++ = (float)(coh_rng_normal(seed, stream, first++) * scale);
    const int64_t pairs = (end - values) / 2;
    for (int64_t k = 0; k < pairs; k++) {
        const coh_normal_pair drawn = coh_rng_normals(seed, stream, first / 2 + (uint64_t)k);
        values[2 * k] = (float)(drawn.even * scale);
        values[2 * k + 1] = (float)(drawn.odd * scale);
    }
    if (values + 2 * pairs < end)
        values[2 * pairs] =
            (float)(coh_rng_normal(seed, stream, first + 2 * (uint64_t)pairs) * scale);
}
