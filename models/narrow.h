/* narrow.h - final checks of numbers before they are written to a model file: all are finite, and
 * those stored in 16 bits are in range. */
#ifndef COH_MODELS_NARROW_H
#define COH_MODELS_NARROW_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "cohobate/model.h"

/* Checks that `count` numbers of tensor `name` are finite. They are its elements from number
 * `begin` on, in rows of `columns`. Fails: COH_ERR_CORRUPT naming the tensor, the element's row and
 * its column. */
coh_status coh_check_finite(const char *name, const float *values, size_t count, uint64_t begin,
                            int64_t columns);

/* Rounds `count` numbers of tensor `name` to the nearest f16 or bf16. Fails: COH_ERR_NUMBER for a
 * finite number outside the dtype's range. */
coh_status coh_narrow(const char *name, const float *values, size_t count, coh_dtype dtype,
                      uint16_t *out_narrow);

#endif
