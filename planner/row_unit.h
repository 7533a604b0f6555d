/* row_unit.h - the unit of the row ranges of a parameter. Pure. Threads: any. */
#ifndef COH_PLANNER_ROW_UNIT_H
#define COH_PLANNER_ROW_UNIT_H

#include "base/bytes.h"
#include "cohobate/model.h"
#include "planner/graph.h"

static inline uint64_t coh_greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The rows of a kind's block on a device, at most all; 0: not split there. */
static inline int64_t coh_row_block(const coh_op_kind *kind, const coh_parameter_facts *facts,
                                    coh_device_kind device)
{
    const int64_t rows = facts->shape.dim[0];
    const int64_t times = kind->column_slices ? COH_GPU_ROW_BLOCKS : kind->gpu_row_blocks;
    if (device != COH_DEVICE_CUDA || facts->row_block <= 0 || times <= 1)
        return facts->row_block;
    if (facts->row_block <= (rows - 1) / times)
        return facts->row_block * times;
    return kind->column_slices ? 0 : rows;
}

/* The row unit of a parameter's ranges: a whole number of its kind's blocks and of grains at once.
 * 0: not split. */
static inline int64_t coh_row_unit(const coh_graph *graph, int32_t parameter,
                                   coh_device_kind device)
{
    const coh_parameter_facts *facts = &graph->parameters[parameter].facts;
    const int64_t block =
        coh_row_block(&graph->ops[graph->parameters[parameter].op].kind, facts, device);
    if (block <= 0 || facts->shape.rank < 2)
        return 0;
    uint64_t row_elements =
        (uint64_t)coh_shape_elements(&facts->shape) / (uint64_t)facts->shape.dim[0];
    uint64_t block_elements = row_elements * (uint64_t)block;
    const uint64_t whole = coh_dtype_unit(facts->shape.dtype);
    const uint64_t times = whole / coh_greatest_common_divisor(block_elements, whole);
    int64_t unit = block * (int64_t)times;
    return unit < facts->shape.dim[0] ? unit : facts->shape.dim[0];
}

#endif
