/* half.h - 16-bit numbers: bf16, the upper half of a float, and f16, IEEE 754's binary16.
 *
 *     f32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *     bf16   s eeeeeeee mmmmmmm
 *     f16    s eeeee mmmmmmmmmm       1.m * 2^(e - 15); e = 0: 0.m * 2^-14; e = 31: infinity, NaN
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, with integers, so rounding modes
 * and flushing of subnormals have no effect. A value nearer to 2^16 than to the largest f16 (65504)
 * becomes infinity. A NaN stays a NaN, made quiet, with its sign and the upper bits of its payload.
 * These conversions are for model files; kernels convert many numbers at a time in their own way
 * (kernels/cpu). Any thread. */
#ifndef COH_BASE_HALF_H
#define COH_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cohobate/model.h"

static inline float coh_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t coh_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float coh_f32_of_bf16(uint16_t half)
{
    return coh_f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t coh_bf16_of_f32(float value)
{
    uint32_t bits = coh_f32_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float coh_f32_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 0) /* multiple of 2^-24: a product of floats, exact */
        return coh_f32_of_bits(sign | coh_f32_bits((float)mantissa * 0x1p-24f));
    uint32_t wide = exponent == 31 ? 255 : exponent + 112; /* 127 - 15 */
    return coh_f32_of_bits(sign | wide << 23 | mantissa << 13);
}

static inline uint16_t coh_f16_of_f32(float value)
{
    uint32_t bits = coh_f32_bits(value), size = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x1ff));
    if (size >= 0x477ff000) /* 65520: half-way from 65504 to 2^16, and 65504 is odd */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x33000000) /* below 2^-25, half of the smallest f16 */
        return sign;
    /* 2^shift units of the float's last place make one unit of the result's. */
    uint32_t exponent = size >> 23, mantissa = (size & 0x7fffff) | 0x800000;
    uint32_t shift = exponent < 113 ? 126 - exponent : 13;
    uint32_t rounded = (mantissa + (1u << (shift - 1)) - 1 + (mantissa >> shift & 1)) >> shift;
    /* The leading one adds 1 to the exponent, whether it was there or came from rounding. */
    uint32_t base = exponent < 113 ? 0 : (exponent - 113) << 10;
    return (uint16_t)(sign | (base + rounded));
}

/* Converts `count` numbers from `from_dtype` to `to_dtype`, each F32, F16 or BF16. Equal dtypes
 * copy the bits, NaNs included. `from` and `to` must not overlap. */
void coh_half_convert(coh_dtype from_dtype, const void *from, coh_dtype to_dtype, void *to,
                      size_t count);

#endif
