/* layout.h - list every object that the programs of a plan will touch, and cut it into chunks.
 *
 *   group (the parameters that one operator brought in)
 *     work   |weight..............|bias|         each parameter from a page on
 *     grad   |weight..............|bias|         same offsets; f32 beside bf16: twice them
 *     state  |m v|m v|m v|m v|m v |m v |         per chunk of work; bf16: |low m v|..., program.h
 *     chunks |----|----|----|----|-----|         ends at grain or parameter ends
 *
 * A parameter with several uses, and one that may come by ranges of rows, is a group of its own: so
 * all parameters of a group are always read together, and the chunks of a row-split one never
 * straddle two ranges. */
#ifndef COH_PLANNER_LAYOUT_H
#define COH_PLANNER_LAYOUT_H

#include "planner/graph.h"
#include "planner/plan.h"
#include "planner/program.h"

/* Objects of graph things; -1 where there is none. Beside the layout, for the planner's own use. */
typedef struct coh_object_map {
    size_t tensor_count, op_count;
    size_t copies;                       /* micro-batches with objects of their own, at least 1 */
    int32_t *activation, *gradient;      /* by copy and tensor */
    int32_t *saved, *cache;              /* by copy and operator */
    int32_t *workspace[COH_PHASE_COUNT]; /* by operator */
    int32_t *input_scratch,
        *parameter_scratch;       /* by operator x port: gradients on the way to an ADD,
                                                   or into the void */
    int32_t *kept;                /* by operator x state port */
    int32_t *group_of_parameter;  /* by graph parameter */
    int32_t *layout_of_parameter; /* by graph parameter: index in layout.parameters */
    int32_t *reaches_loss;        /* by tensor: its gradient exists */
    int32_t *runs_backward;       /* by operator */
    int64_t *row_unit;            /* by graph parameter: ranges are multiples of it; 0 */
    int slices;                   /* see coh_decisions */
    /* 1: lines are written for the first two ranges of rows and the last one alone. The ranges
     * between them need the same room as the second. For bounds of memory. */
    int few_ranges;
} coh_object_map;

/* As a chunk's size: no object is cut, except at the ranges of a row-split one. */
#define COH_WHOLE_OBJECTS ((uint64_t)1 << 48)

/* The size of chunks that a layout is cut into if `chunk_bytes` is asked for: whole grains, at
 * least one. */
uint64_t coh_layout_chunk_bytes(uint64_t chunk_bytes);

/* Fails: COH_ERR_MEMORY, COH_ERR_FULL (sizes), COH_ERR_ARGUMENT (a graph without a loss to train).
 * `chunk_bytes`: of f32 work; a chunk of bf16 work has as many elements and half the bytes.
 * `with_cache`: optional caches from forward to backward exist. `slices`: most ranges of rows that
 * kinds with column_slices are taken in; up to 1, their parameters stay with their group.
 * The layout gets objects, chunks, parameters, groups and pinned offsets; residents, file and arena
 * sizes come later. */
coh_status coh_layout_build(const coh_graph *graph, const coh_plan_options *options,
                            uint64_t chunk_bytes, int with_cache, int slices,
                            coh_layout *out_layout, coh_object_map *out_map);
void coh_object_map_fini(coh_object_map *map); /* accepts a zeroed struct */

/* Index in activation and gradient. */
static inline size_t coh_tensor_index(const coh_object_map *map, int32_t tensor, int32_t microbatch)
{
    return ((size_t)microbatch % map->copies) * map->tensor_count + (size_t)tensor;
}

/* Index in saved and cache. */
static inline size_t coh_op_index(const coh_object_map *map, int32_t op, int32_t microbatch)
{
    return ((size_t)microbatch % map->copies) * map->op_count + (size_t)op;
}

/* Index in input_scratch or parameter_scratch, and kept. */
static inline size_t coh_port_index(int32_t op, int32_t port)
{
    return (size_t)op * COH_PORT_MAX + (size_t)port;
}

/* Bytes of a tensor's elements. */
static inline uint64_t coh_shape_bytes(const coh_shape *shape)
{
    return (uint64_t)coh_shape_elements(shape) * coh_dtype_bytes(shape->dtype);
}

/* Bytes between the losses of two micro-batches in the LOSS object. */
#define COH_LOSS_STRIDE_BYTES 64u

#endif
