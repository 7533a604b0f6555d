/* Checks and rounds numbers before they are written. The one idea: a fast pass over all numbers,
 * and a search for the culprit only if it fails. Next: folder_write.c, the caller. */
#include "models/narrow.h"

#include <inttypes.h>
#include <math.h>

#include "base/half.h"

coh_status coh_check_finite(const char *name, const float *values, size_t count, uint64_t begin,
                            int64_t columns)
{
    int is_broken = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        is_broken |= !isfinite(values[i]);
    if (!is_broken)
        return COH_OK;
    while (isfinite(values[at]))
        at++;
    const uint64_t row = (begin + at) / (uint64_t)columns,
                   column = (begin + at) % (uint64_t)columns;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s holds %s at [%" PRIu64 ", %" PRIu64
                    "], which is not finite, so nothing is written: take a whole copy of the model",
                    name, isnan(values[at]) ? "NaN" : "an infinity", row, column);
}

coh_status coh_narrow(const char *name, const float *values, size_t count, coh_dtype dtype,
                      uint16_t *out_narrow)
{
    const int is_f16 = dtype == COH_DTYPE_F16;
    const uint16_t infinite = is_f16 ? 0x7c00 : 0x7f80;
    coh_half_convert(COH_DTYPE_F32, values, dtype, out_narrow, count);
    for (size_t i = 0; i < count; i++)
        if ((out_narrow[i] & 0x7fff) == infinite && isfinite(values[i]))
            return coh_fail(COH_ERR_NUMBER, "%s holds %g, which is beyond %s: write it as %s", name,
                            (double)values[i], is_f16 ? "f16" : "bf16",
                            is_f16 ? "bf16 or f32" : "f32");
    return COH_OK;
}
