/* comm_parts.h - how a window is divided between the ranks of a mesh that sum it.
 *
 *     mesh 2 x 2, window of 16 pages            rank 0    rank 1    rank 2    rank 3
 *     REDUCE over axis 0: parts of 8 pages      0 .. 7    8 .. 15   0 .. 7    8 .. 15
 *     REDUCE over axis 1: parts of 4 pages      0 .. 3    8 .. 11   4 .. 7    12 .. 15
 *     GATHER over axis 1, then over axis 0: every rank has the whole sum again
 *
 * The one idea: axis after axis, from the innermost on, the members of a group divide what their
 * rank still has to sum. So each level of links carries only what the levels within it left. Parts
 * have one size for all ranks, and therefore all ranks have one program; only the last parts of a
 * window may be shorter, or empty.
 *
 * A rank may also keep its part and update only that (coh_chunk.is_divided): the part after REDUCE
 * over the first axes.work, axes.grad and axes.state axes of the group. Such parts are whole
 * grains, so norms, hashes and checkpoints do not change. Pure. Threads: any. */
#ifndef COH_PLANNER_COMM_PARTS_H
#define COH_PLANNER_COMM_PARTS_H

#include "planner/program.h"

/* Returns the bytes of a part of a window after REDUCE over the axes up to `axis`; with axis -1 the
 * window itself. `unit`: parts are multiples of it (coh_chunk_part_unit). */
static inline uint64_t coh_part_bytes_at(const coh_mesh *mesh, int axis, uint64_t window_bytes,
                                         uint64_t unit)
{
    uint64_t bytes = window_bytes;
    for (int i = 0; i <= axis; i++) {
        const uint64_t ranks = (uint64_t)mesh->axes[i].rank_count;
        const uint64_t part = ((bytes + ranks - 1) / ranks + unit - 1) / unit * unit;
        bytes = part < bytes ? part : bytes; /* less than a unit: the first rank has it */
    }
    return bytes;
}

/* A range of bytes in a window. */
typedef struct coh_part {
    uint64_t begin, bytes;
} coh_part;

/* Returns the part of a rank after REDUCE over the axes up to `axis`. */
static inline coh_part coh_part_of(const coh_mesh *mesh, int axis, int32_t rank,
                                   uint64_t window_bytes, uint64_t unit)
{
    coh_part part = { 0, window_bytes };
    for (int i = 0; i <= axis; i++) {
        const uint64_t most = coh_part_bytes_at(mesh, i, window_bytes, unit);
        const uint64_t before = most * (uint64_t)coh_mesh_group_index(mesh, 1u << i, rank);
        const uint64_t skipped = before < part.bytes ? before : part.bytes;
        part.begin += skipped;
        part.bytes -= skipped;
        part.bytes = part.bytes < most ? part.bytes : most;
    }
    return part;
}

/* Returns the unit of the parts of a chunk of WORK or GRAD. */
static inline uint64_t coh_chunk_part_unit(const coh_layout *layout, uint32_t chunk)
{
    const coh_object *object = &layout->objects[layout->chunks[chunk].object];
    if (!layout->chunks[chunk].is_divided)
        return COH_PART_ALIGN;
    const coh_group_layout *group = &layout->groups[object->owner];
    const uint64_t factor = object->stream == COH_STREAM_GRAD ? coh_group_grad_factor(group) : 1;
    return COH_GRAIN_ELEMENTS * coh_dtype_bytes(group->dtype) * factor;
}

/* Returns the bytes of a part of a chunk of WORK or GRAD after REDUCE over the axes to `axis`. */
static inline uint64_t coh_chunk_part_bytes_at(const coh_layout *layout, uint32_t chunk, int axis)
{
    return coh_part_bytes_at(&layout->mesh, axis, layout->chunks[chunk].bytes,
                             coh_chunk_part_unit(layout, chunk));
}

/* Returns over how many axes an object of a stream of the group is divided: what a rank has of it
 * is its part after REDUCE over these. */
static inline int coh_stream_axes(const coh_group_layout *group, uint8_t stream)
{
    return stream == COH_STREAM_WORK_PART   ? group->axes.work
           : stream == COH_STREAM_GRAD_PART ? group->axes.grad
           : stream == COH_STREAM_WORK_COPY ? group->axes.copy
           : stream == COH_STREAM_STATE     ? group->axes.state
                                            : 0;
}

/* Returns the group of a chunk of parameters. */
static inline const coh_group_layout *coh_chunk_group(const coh_layout *layout, uint32_t chunk)
{
    return &layout->groups[layout->objects[layout->chunks[chunk].object].owner];
}

/* Returns the part of a chunk of WORK that a rank has of a stream. */
static inline coh_part coh_part_in(const coh_layout *layout, uint32_t chunk, uint8_t stream,
                                   int32_t rank)
{
    return coh_part_of(&layout->mesh, coh_stream_axes(coh_chunk_group(layout, chunk), stream) - 1,
                       rank, layout->chunks[chunk].bytes, coh_chunk_part_unit(layout, chunk));
}

/* Returns the bytes of the largest of these parts. */
static inline uint64_t coh_part_in_bytes(const coh_layout *layout, uint32_t chunk, uint8_t stream)
{
    return coh_chunk_part_bytes_at(layout, chunk,
                                   coh_stream_axes(coh_chunk_group(layout, chunk), stream) - 1);
}

/* Returns the part of a chunk of WORK that a rank updates: of one that is not divided all of it. */
static inline coh_part coh_updated_part(const coh_layout *layout, uint32_t chunk, int32_t rank)
{
    return coh_part_in(layout, chunk, COH_STREAM_STATE, rank);
}

/* Returns the bytes of the largest of these parts. */
static inline uint64_t coh_updated_part_bytes(const coh_layout *layout, uint32_t chunk)
{
    return coh_part_in_bytes(layout, chunk, COH_STREAM_STATE);
}

/* Returns the grains of the largest of these parts of a divided chunk of WORK. */
static inline uint64_t coh_updated_part_grains(const coh_layout *layout, uint32_t chunk)
{
    const uint64_t unit = coh_chunk_part_unit(layout, chunk);
    return (coh_updated_part_bytes(layout, chunk) + unit - 1) / unit;
}

/* Returns 1 for a divided chunk of WORK. */
static inline int coh_chunk_is_divided_work(const coh_layout *layout, uint32_t chunk)
{
    return layout->chunks[chunk].is_divided &&
           layout->objects[layout->chunks[chunk].object].stream == COH_STREAM_WORK;
}

/* Returns the bytes of the norm partials that a rank sends to all others before CLIP: room for
 * those of its part of each divided chunk, in the order of the chunks. 0: no chunk is divided. */
uint64_t coh_sent_partials_bytes(const coh_layout *layout);

/* Room for what the other ranks send; 0: nothing. */
typedef struct coh_received_room {
    uint64_t wire_bytes;     /* slices of a REDUCE, norm partials */
    uint64_t gathered_bytes; /* the states of a divided chunk, of all parts */
} coh_received_room;

/* Returns the room that the groups of a layout need. */
coh_received_room coh_received_room_of(const coh_layout *layout);

/* Returns the wire on which elements of a dtype travel: bf16 on a bf16 wire is as it is stored. */
static inline coh_wire coh_wire_for(coh_wire wire, coh_dtype dtype)
{
    return wire == COH_WIRE_BF16 && dtype == COH_DTYPE_BF16 ? COH_WIRE_STORED : wire;
}

/* Returns the bytes that so many bytes in memory take on a wire. */
static inline uint64_t coh_sent_bytes(coh_wire wire, coh_dtype dtype, uint64_t bytes)
{
    return wire == COH_WIRE_STORED ? bytes : coh_wire_bytes(wire, bytes / coh_dtype_bytes(dtype));
}

/* Returns the most bytes that a rank receives in an instruction: a part from each other member of
 * its group. */
static inline uint64_t coh_comm_received_bytes(const coh_mesh *mesh, const coh_comm_call *comm)
{
    return coh_sent_bytes(comm->wire, comm->dtype, comm->part_bytes) *
           (uint64_t)(coh_mesh_group_size(mesh, comm->axes) - 1);
}

/* Where the exchange of a chunk has its bytes in the layout's WIRE object: first what a REDUCE
 * folds, the parts of the other members as they are in memory; then, on another wire than the
 * stored one, all parts as they are sent, and of a REDUCE as they arrive. */
typedef struct coh_wire_room {
    uint64_t sent_at, arrived_at, bytes; /* bytes: of all */
} coh_wire_room;

static inline coh_wire_room coh_wire_room_of(const coh_mesh *mesh, const coh_comm_call *comm,
                                             int is_reduce)
{
    const uint64_t members = (uint64_t)coh_mesh_group_size(mesh, comm->axes);
    const uint64_t sent = coh_sent_bytes(comm->wire, comm->dtype, comm->part_bytes);
    coh_wire_room room = { .bytes = is_reduce ? (members - 1) * comm->part_bytes : 0 };
    if (comm->wire == COH_WIRE_STORED)
        return room;
    room.sent_at = (room.bytes + COH_PART_ALIGN - 1) / COH_PART_ALIGN * COH_PART_ALIGN;
    room.arrived_at = room.sent_at + members * sent;
    room.bytes = room.arrived_at + (is_reduce ? (members - 1) * sent : 0);
    return room;
}

/* Returns the wire of weights that a program gathers for each use. Only training rounds them:
 * evaluations, hashes and checkpoints have what is stored. */
static inline coh_wire coh_gathered_wire(const coh_layout *layout, const coh_group_layout *group,
                                         coh_program_kind kind)
{
    return kind == COH_PROGRAM_BODY ? coh_wire_for(layout->wires.weights, group->dtype)
                                    : COH_WIRE_STORED;
}

/* Returns the wire of the slices of a chunk of gradient. Parts of divided chunks begin at grains,
 * so that blocks are the same in chunks of any size; others travel as they are stored. */
static inline coh_wire coh_reduced_wire(const coh_layout *layout, uint32_t chunk)
{
    return layout->chunks[chunk].is_divided ? coh_wire_for(layout->wires.gradients, COH_DTYPE_F32)
                                            : COH_WIRE_STORED;
}

/* Returns the `count` innermost axes. */
static inline coh_axis_set coh_inner_axes(int count)
{
    return (1u << count) - 1;
}

/* Returns the most elements of a chunk of the group's work, if `usual` would do without ranks that
 * divide its states: whole units of its dtype, as many for each rank. Parts would be padded
 * otherwise: threefold where a chunk has 128 grains for 384 ranks. */
static inline uint64_t coh_chunk_elements_most(const coh_mesh *mesh, const coh_group_layout *group,
                                               uint64_t usual)
{
    const uint64_t of_all = coh_dtype_unit(group->dtype) *
                            (uint64_t)coh_mesh_group_size(mesh, coh_inner_axes(group->axes.state));
    return usual < of_all ? of_all : usual / of_all * of_all;
}

/* Returns the axes of the whole world. */
static inline coh_axis_set coh_mesh_all_axes(const coh_mesh *mesh)
{
    return (coh_axis_set)((1u << mesh->axis_count) - 1);
}

#endif
