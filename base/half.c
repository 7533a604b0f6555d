/* Converts arrays between f32, f16 and bf16, with one loop per pair of dtypes. The conversion of a
 * single number is in half.h. */
#include "base/half.h"

/* One loop per pair, so that no element checks its dtype. */
#define LOOP(from_type, to_type, convert)                                                          \
    do {                                                                                           \
        const from_type *source = from;                                                            \
        to_type *target = to;                                                                      \
        for (size_t i = 0; i < count; i++)                                                         \
            target[i] = convert(source[i]);                                                        \
    } while (0)

static uint16_t bf16_of_f16(uint16_t half)
{
    return coh_bf16_of_f32(coh_f32_of_f16(half));
}

static uint16_t f16_of_bf16(uint16_t half)
{
    return coh_f16_of_f32(coh_f32_of_bf16(half));
}

void coh_half_convert(coh_dtype from_dtype, const void *from, coh_dtype to_dtype, void *to,
                      size_t count)
{
    if (from_dtype == to_dtype)
        memcpy(to, from, count * coh_dtype_bytes(to_dtype));
    else if (from_dtype == COH_DTYPE_BF16 && to_dtype == COH_DTYPE_F32)
        LOOP(uint16_t, float, coh_f32_of_bf16);
    else if (from_dtype == COH_DTYPE_F16 && to_dtype == COH_DTYPE_F32)
        LOOP(uint16_t, float, coh_f32_of_f16);
    else if (from_dtype == COH_DTYPE_F32 && to_dtype == COH_DTYPE_BF16)
        LOOP(float, uint16_t, coh_bf16_of_f32);
    else if (from_dtype == COH_DTYPE_F32 && to_dtype == COH_DTYPE_F16)
        LOOP(float, uint16_t, coh_f16_of_f32);
    else if (from_dtype == COH_DTYPE_F16 && to_dtype == COH_DTYPE_BF16)
        LOOP(uint16_t, uint16_t, bf16_of_f16);
    else if (from_dtype == COH_DTYPE_BF16 && to_dtype == COH_DTYPE_F16)
        LOOP(uint16_t, uint16_t, f16_of_bf16);
}
