/* float_bits.h - converts a float to and from its 32 bits, for oracles of bf16. */
#ifndef COH_TESTS_REFERENCE_FLOAT_BITS_H
#define COH_TESTS_REFERENCE_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif
