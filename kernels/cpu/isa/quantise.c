/* Stochastic rounding to bf16, and blocks of signed bytes with a scale, in both directions.
 * Compiled once per instruction set; all give the same bits. Next: kernels/quantise.h for the
 * definitions. */
#include "kernels/quantise.h"
#include "kernels/cpu/isa/halves.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/lanes.h"

#define INFINITY_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
#define LEVELS        127.0f /* largest code, on either side of 0 */

/* Added to a float of at most 2^22, it rounds it to an integer, ties to even. The lowest bits of
 * the sum are the integer's two's complement. */
#define WHOLE_SHIFT 0x1.8p23f

/* ---- to bf16 ---- */

LANES_INLINE void round_part(uint16_t *y, const float *x, const uint32_t *halves)
{
    for (int k = 0; k < COH_LANES; k += COH_VECTOR_FLOATS) {
        vector_bits bits, half;
        memcpy(&bits, x + k, sizeof(bits));
        memcpy(&half, halves + k, sizeof(half));
        const vector_halves rounded = vector_narrow(bits_round_by(bits, half));
        memcpy(y + k, &rounded, sizeof(rounded));
    }
}

void FLOAT_ROW(stochastic_round)(uint16_t *y, const float *x, const uint32_t *halves, int64_t count)
{
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        round_part(y + i, x + i, halves + i);
    if (i < count) {
        const size_t rest = (size_t)(count - i);
        float padded[COH_LANES] = { 0 };
        uint32_t drawn[COH_LANES] = { 0 };
        uint16_t rounded[COH_LANES];
        memcpy(padded, x + i, rest * sizeof(*padded));
        memcpy(drawn, halves + i, rest * sizeof(*drawn));
        round_part(rounded, padded, drawn);
        memcpy(y + i, rounded, rest * sizeof(*rounded));
    }
}

/* ---- to bytes ---- */

/* Returns the bits of the largest |x|: bits of floats without a sign have the order of the
 * floats. */
LANES_INLINE void largest_part(vector_bits largest[COH_VECTORS], lanes x)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        const vector_bits size = (vector_bits)x.part[k] & 0x7fffffffu;
        const vector_bits is_larger = (vector_bits)(size > largest[k]);
        largest[k] = (is_larger & size) | (~is_larger & largest[k]);
    }
}

static uint32_t largest_bits(const float *x, int64_t count)
{
    vector_bits largest[COH_VECTORS] = { 0 };
    uint32_t most = 0;
    EACH_LANES(i, n, count, largest_part(largest, lanes_take(x + i, n, 0.0f)));
    for (int k = 0; k < COH_VECTORS; k++)
        for (int j = 0; j < COH_VECTOR_FLOATS; j++)
            most = largest[k][j] > most ? largest[k][j] : most;
    return most;
}

/* Rounds t to the nearest integer. */
LANES_INLINE vector whole_of(vector t)
{
    return t + vector_all(WHOLE_SHIFT) - vector_all(WHOLE_SHIFT);
}

/* Rounds t up if its distance from the integer below exceeds (half + 1/2) / 2^16. */
LANES_INLINE vector whole_by(vector t, vector_bits half)
{
    const vector nearest = whole_of(t), one = vector_all(1.0f);
    const vector below = vector_select((vector_bits)(nearest > t), nearest - one, nearest);
    const vector distance = (t - below) * vector_all(0x1p16f);
    const vector drawn = (vector)(half | 0x4b000000u) - vector_all(0x1p23f); /* half as a float */
    return vector_select((vector_bits)(drawn + vector_all(0.5f) < distance), below + one, below);
}

LANES_INLINE void put_codes(int8_t *to, lanes whole, int64_t count)
{
    unsigned char *codes = (unsigned char *)to;
    uint32_t bits[COH_LANES];
    for (int k = 0; k < COH_VECTORS; k++) {
        const vector shifted = whole.part[k] + vector_all(WHOLE_SHIFT);
        memcpy(bits + k * COH_VECTOR_FLOATS, &shifted, sizeof(shifted));
    }
    for (int64_t j = 0; j < count; j++)
        codes[j] = (unsigned char)bits[j];
}

LANES_INLINE void quantise_part(int8_t *codes, const float *x, const uint32_t *halves, float scale,
                                int64_t count)
{
    lanes t = lanes_divide(lanes_take(x, count, 0.0f), lanes_all(scale));
    t = lanes_multiply(t, lanes_all(LEVELS));
    uint32_t drawn[COH_LANES] = { 0 };
    if (halves != NULL)
        memcpy(drawn, halves, (size_t)count * sizeof(*drawn));
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_bits half;
        memcpy(&half, drawn + k * COH_VECTOR_FLOATS, sizeof(half));
        t.part[k] = halves != NULL ? whole_by(t.part[k], half) : whole_of(t.part[k]);
    }
    put_codes(codes, t, count);
}

float FLOAT_ROW(quantise)(int8_t *codes, const float *x, const uint32_t *halves, int64_t count)
{
    const uint32_t most = largest_bits(x, count);
    const uint32_t scale_bits = most < INFINITY_BITS ? most : NAN_BITS;
    float scale;
    memcpy(&scale, &scale_bits, sizeof(scale));
    if (most == 0 || most >= INFINITY_BITS) {
        memset(codes, 0, (size_t)count);
        return scale;
    }
    EACH_LANES(i, n, count,
               quantise_part(codes + i, x + i, halves == NULL ? NULL : halves + i, scale, n));
    return scale;
}

/* ---- and back ---- */

/* A scale that is NaN keeps its bits, which a multiplication would not guarantee. */
LANES_INLINE lanes value_of(const int8_t *codes, int64_t count, float scale)
{
    float level[COH_LANES] = { 0 };
    for (int64_t j = 0; j < count; j++)
        level[j] = codes[j];
    return isnan(scale) ? lanes_all(scale)
                        : lanes_multiply(lanes_divide(lanes_load(level), lanes_all(LEVELS)),
                                         lanes_all(scale));
}

void FLOAT_ROW(dequantise)(float *y, const int8_t *codes, float scale, int64_t count)
{
    EACH_LANES(i, n, count, lanes_give(y + i, n, value_of(codes + i, n, scale)));
}
