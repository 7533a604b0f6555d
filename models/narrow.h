/* narrow.h - numbers on their way into a file of 16-bit ones. */
#ifndef COH_MODELS_NARROW_H
#define COH_MODELS_NARROW_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "cohobate/model.h"

/* `count` numbers of the tensor we call `name` as f16 or bf16, each the nearest. Fails:
 * COH_ERR_NUMBER for a finite one that the dtype has no room for. */
coh_status coh_narrow(const char *name, const float *values, size_t count, coh_dtype dtype,
                      uint16_t *out_narrow);

#endif
