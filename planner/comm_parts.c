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

/* Returns the most bytes that a REDUCE of one chunk of a gradient receives. */
static uint64_t most_reduced_bytes(const coh_layout *layout)
{
    const coh_mesh *mesh = &layout->mesh;
    uint64_t most = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        for (int axis = 0; axis < mesh->axis_count; axis++) {
            if (layout->objects[layout->chunks[i].object].stream != COH_STREAM_GRAD)
                continue;
            const uint64_t bytes = coh_chunk_part_bytes_at(layout, i, axis) *
                                   (uint64_t)(mesh->axes[axis].rank_count - 1);
            most = bytes > most ? bytes : most;
        }
    return most;
}

coh_received_room coh_received_room_of(const coh_layout *layout)
{
    const uint64_t ranks = coh_layout_rank_count(layout);
    const uint64_t reduced = most_reduced_bytes(layout);
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
    return (coh_received_room){ .wire_bytes = reduced > partials ? reduced : partials,
                                .gathered_bytes = states };
}
