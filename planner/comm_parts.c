/* Adds up what ranks send of all divided chunks, and the room that receives it. Read comm_parts.h
 * first. */
#include "planner/comm_parts.h"

uint64_t coh_sent_partials_bytes(const coh_layout *layout)
{
    uint64_t grains = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        if (coh_chunk_is_divided_work(layout, i))
            grains += coh_updated_part_grains(layout, i);
    return (grains * sizeof(double) + COH_PART_ALIGN - 1) / COH_PART_ALIGN * COH_PART_ALIGN;
}

/* Returns the room that the exchange of a chunk over an axis takes. */
static uint64_t room_bytes(const coh_layout *layout, uint32_t chunk, int axis, int is_reduce)
{
    const coh_group_layout *group = coh_chunk_group(layout, chunk);
    const coh_wire gathered = axis < group->axes.work
                                  ? coh_gathered_wire(layout, group, COH_PROGRAM_BODY)
                                  : COH_WIRE_STORED;
    const coh_comm_call comm = {
        .axes = 1u << axis,
        .dtype = is_reduce ? COH_DTYPE_F32 : group->dtype,
        .wire = is_reduce ? coh_reduced_wire(layout, chunk) : gathered,
        .part_bytes = coh_chunk_part_bytes_at(layout, chunk, axis),
    };
    return coh_wire_room_of(&layout->mesh, &comm, is_reduce).bytes;
}

/* Returns the most room that a REDUCE of one chunk of a gradient takes, or the GATHER of one of
 * work. */
static uint64_t most_exchanged_bytes(const coh_layout *layout)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const uint8_t stream = layout->objects[layout->chunks[i].object].stream;
        if (stream != COH_STREAM_GRAD && stream != COH_STREAM_WORK)
            continue;
        for (int axis = 0; axis < layout->mesh.axis_count; axis++) {
            const uint64_t bytes = room_bytes(layout, i, axis, stream == COH_STREAM_GRAD);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

coh_received_room coh_received_room_of(const coh_layout *layout)
{
    const uint64_t ranks = coh_layout_rank_count(layout);
    const uint64_t exchanged = most_exchanged_bytes(layout);
    const uint64_t partials = ranks * coh_sent_partials_bytes(layout);
    uint64_t states = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        if (!layout->chunks[i].is_divided ||
            layout->objects[layout->chunks[i].object].stream != COH_STREAM_STATE)
            continue;
        const coh_axis_set axes = coh_inner_axes(coh_chunk_group(layout, i)->axes.state);
        const uint64_t bytes =
            layout->chunks[i].bytes * (uint64_t)coh_mesh_group_size(&layout->mesh, axes);
        states = bytes > states ? bytes : states;
    }
    return (coh_received_room){ .wire_bytes = exchanged > partials ? exchanged : partials,
                                .gathered_bytes = states };
}
