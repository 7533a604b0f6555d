/* f64_bits.h - converts a double to its 64 bits and back. */
#ifndef COH_BASE_F64_BITS_H
#define COH_BASE_F64_BITS_H

#include <stdint.h>
#include <string.h>

static inline double coh_f64_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint64_t coh_bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif
