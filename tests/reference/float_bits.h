/* float_bits.h - converts a float to and from its 32 bits, for oracles of bf16. Without the
 * attribute a sanitizer gives each call a checked frame, and no oracle has them inlined. */
#ifndef COH_TESTS_REFERENCE_FLOAT_BITS_H
#define COH_TESTS_REFERENCE_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

#include "tests/length.h"

TEST_ORACLE static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

TEST_ORACLE static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif
