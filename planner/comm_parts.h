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
 * window may be shorter, or empty. Pure. Threads: any. */
#ifndef COH_PLANNER_COMM_PARTS_H
#define COH_PLANNER_COMM_PARTS_H

#include "planner/program.h"

/* Returns the bytes of a part of a window after REDUCE over the axes up to `axis`; with axis -1 the
 * window itself. */
static inline uint64_t coh_part_bytes_at(const coh_mesh *mesh, int axis, uint64_t window_bytes)
{
    uint64_t bytes = window_bytes;
    for (int i = 0; i <= axis; i++) {
        const uint64_t ranks = (uint64_t)mesh->axes[i].rank_count;
        bytes = (bytes + ranks - 1) / ranks;
        bytes = (bytes + COH_PART_ALIGN - 1) / COH_PART_ALIGN * COH_PART_ALIGN;
    }
    return bytes;
}

/* A range of bytes in a window. */
typedef struct coh_part {
    uint64_t begin, bytes;
} coh_part;

/* Returns the part of a rank after REDUCE over the axes up to `axis`. */
static inline coh_part coh_part_of(const coh_mesh *mesh, int axis, int32_t rank,
                                   uint64_t window_bytes)
{
    coh_part part = { 0, window_bytes };
    for (int i = 0; i <= axis; i++) {
        const uint64_t most = coh_part_bytes_at(mesh, i, window_bytes);
        const uint64_t before = most * (uint64_t)coh_mesh_group_index(mesh, 1u << i, rank);
        const uint64_t skipped = before < part.bytes ? before : part.bytes;
        part.begin += skipped;
        part.bytes -= skipped;
        part.bytes = part.bytes < most ? part.bytes : most;
    }
    return part;
}

/* Returns the most bytes that a rank receives in an instruction: a part from each other member of
 * its group. */
static inline uint64_t coh_comm_received_bytes(const coh_mesh *mesh, const coh_comm_call *comm)
{
    return comm->part_bytes * (uint64_t)(coh_mesh_group_size(mesh, comm->axes) - 1);
}

/* Returns the axes of the whole world. */
static inline coh_axis_set coh_mesh_all_axes(const coh_mesh *mesh)
{
    return (coh_axis_set)((1u << mesh->axis_count) - 1);
}

#endif
