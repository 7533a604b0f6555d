/* layout.h - list every object that the programs of a plan touch, and cut it into chunks.
 *
 *   group (the parameters that one operator introduced)
 *     work   |weight..............|bias|         each parameter starts at a page
 *     grad   |weight..............|bias|         same offsets; f32 for bf16 work: doubled
 *     state  |m v|m v|m v|m v|m v |m v |         per chunk of work; bf16: |low m v|..., program.h
 *     chunks |----|----|----|----|-----|         end at grain or parameter ends
 *
 * A parameter with several uses, and a parameter that may be taken in row ranges, is a group by
 * itself. So all parameters of a group are always read together, and no chunk of a row-split
 * parameter straddles two ranges. */
#ifndef COH_PLANNER_LAYOUT_H
#define COH_PLANNER_LAYOUT_H

#include "planner/graph.h"
#include "planner/plan.h"
#include "planner/program.h"

/* Objects of the things in a graph; -1 if absent. Kept next to the layout, for the planner only. */
typedef struct coh_object_map {
    size_t tensor_count, op_count;
    size_t copies;                       /* micro-batches with separate objects, at least 1 */
    int32_t *activation, *gradient;      /* by copy and tensor */
    int32_t *saved, *cache;              /* by copy and operator */
    int32_t *workspace[COH_PHASE_COUNT]; /* by operator */
    /* by operator x port: gradients on the way to an ADD, or discarded */
    int32_t *input_scratch, *parameter_scratch;
    int32_t *kept;                /* by operator x state port */
    int32_t *group_of_parameter;  /* by graph parameter */
    int32_t *layout_of_parameter; /* by graph parameter: index in layout.parameters */
    int32_t *reaches_loss;        /* by tensor: 1 if it has a gradient */
    int32_t *runs_backward;       /* by operator */
    /* The last operator whose backward contributes to a tensor's gradient is the first one to run;
     * the first operator whose backward reads a group is the last one. -1: none. */
    int32_t *last_backward_of_tensor;
    int32_t *first_backward_of_group;
    uint8_t *is_read_elsewhere; /* by tensor: an operator outside its producer's block reads it */
    uint8_t *is_read_backward;  /* by tensor: some backward reads it */
    int32_t *last_forward_of_tensor; /* the last operator whose forward reads it; -1: none */
    int32_t *forward_reads;          /* by tensor: input ports that it has */
    /* by graph parameter: row ranges are multiples of it; 0: not split */
    int64_t *row_unit;
    /* by operator of a kept block: the one before whose backward it runs again (light.h); -1: none.
     * NULL: of all */
    int32_t *again_at;
    coh_device_kind device;      /* that computes */
    coh_pattern_choice patterns; /* these three: see coh_decisions */
    int slices, row_passes;
    /* 1: lowered only to bound the memory that instructions need. Bindings are left out, and
     * instructions are written only for the first two row ranges and the last: the ranges between
     * them need the same memory as the second. */
    int is_for_memory;
} coh_object_map;

/* As a chunk size: cut no object, except at the ranges of a row-split parameter. */
#define COH_WHOLE_OBJECTS ((uint64_t)1 << 48)

/* Returns the chunk size that a layout uses for a requested `chunk_bytes`: whole grains of f32
 * work, at least one. */
static inline uint64_t coh_layout_chunk_bytes(uint64_t chunk_bytes)
{
    const uint64_t grain = (uint64_t)COH_GRAIN_ELEMENTS * sizeof(float);
    return chunk_bytes < grain ? grain : chunk_bytes / grain * grain;
}

/* Builds the layout: objects, chunks, parameters, groups and pinned offsets; residents, file
 * and arena sizes are set later. Of the decisions it takes the chunk size, caches and patterns.
 * chunk_bytes is that of f32 work; a chunk of bf16 work has as many elements and half the bytes. A
 * parameter with the pattern `slice` is a group by itself. Fails: COH_ERR_MEMORY, COH_ERR_FULL
 * (sizes), COH_ERR_ARGUMENT (training a graph without a loss). */
coh_status coh_layout_build(const coh_graph *graph, const coh_plan_options *options,
                            const coh_decisions *decisions, coh_layout *out_layout,
                            coh_object_map *out_map);
/* Fills in what the map says of uses: from last_backward_of_tensor to forward_reads. Needs
 * runs_backward and group_of_parameter. Fails: COH_ERR_MEMORY. */
coh_status coh_object_map_uses(const coh_graph *graph, uint32_t group_count, coh_object_map *map);
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

/* Index in input_scratch or parameter_scratch, and in kept. */
static inline size_t coh_port_index(int32_t op, int32_t port)
{
    return (size_t)op * COH_PORT_MAX + (size_t)port;
}

/* Bytes of a tensor's elements. */
static inline uint64_t coh_shape_bytes(const coh_shape *shape)
{
    return coh_dtype_array_bytes(shape->dtype, (uint64_t)coh_shape_elements(shape));
}

#endif
