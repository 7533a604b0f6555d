/* Sizes of shapes and dtypes (cohobate/model.h). */
#include "cohobate/model.h"

int64_t coh_shape_elements(const coh_shape *shape)
{
    if (shape == NULL)
        return 0;
    int64_t elements = 1;
    if (shape->rank <= 0 || shape->rank > COH_RANK_MAX)
        return 0;
    for (int32_t axis = 0; axis < shape->rank; axis++)
        if (__builtin_mul_overflow(elements, shape->dim[axis], &elements))
            return 0;
    return elements;
}

size_t coh_dtype_bytes(coh_dtype dtype)
{
    switch (dtype) {
    case COH_DTYPE_F32:
    case COH_DTYPE_I32:
        return 4;
    case COH_DTYPE_BF16:
    case COH_DTYPE_F16:
        return 2;
    case COH_DTYPE_NF4:
        return 0;
    }
    return 0;
}

uint64_t coh_dtype_array_bytes(coh_dtype dtype, uint64_t count)
{
    if (dtype == COH_DTYPE_NF4)
        return (count + COH_NF4_BLOCK - 1) / COH_NF4_BLOCK * COH_NF4_BLOCK_BYTES;
    return count * coh_dtype_bytes(dtype);
}
