/* row_unit.h - the unit of the row ranges of a parameter. Pure. Threads: any. */
#ifndef COH_PLANNER_ROW_UNIT_H
#define COH_PLANNER_ROW_UNIT_H

#include "cohobate/model.h"

static inline uint64_t coh_greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The row unit of ranges: a whole number of the kind's blocks and of grains at once. 0: not
 * split. */
static inline int64_t coh_row_unit(const coh_parameter_facts *facts)
{
    if (facts->row_block <= 0 || facts->shape.rank < 2)
        return 0;
    uint64_t row_elements =
        (uint64_t)coh_shape_elements(&facts->shape) / (uint64_t)facts->shape.dim[0];
    uint64_t block_elements = row_elements * (uint64_t)facts->row_block;
    uint64_t times =
        COH_GRAIN_ELEMENTS / coh_greatest_common_divisor(block_elements, COH_GRAIN_ELEMENTS);
    int64_t unit = facts->row_block * (int64_t)times;
    return unit < facts->shape.dim[0] ? unit : facts->shape.dim[0];
}

#endif
