/* mesh.h - where each of N ranks lies: its coordinates on named axes, and the links between ranks.
 *
 * The one idea: rank numbers count in mixed radix, the first axis fastest. Levels of links are cut
 * from the same numbers: the ranks of a pair are neighbours, the pairs of a node follow each other.
 *
 *     axes data=4 pipe=2, levels pair=2 node=4 world=8
 *
 *     rank   0 1 | 2 3 || 4 5 | 6 7      | between pairs, || between nodes
 *     data   0 1   2 3    0 1   2 3
 *     pipe   0 0   0 0    1 1   1 1
 *
 * A group is a set of axes: the ranks that differ in these axes only. The group {data} of rank 6 is
 * 4 5 6 7, and rank 6 has index 2 in it. A group's level is the outermost link that it crosses:
 * node for {data}, world for {pipe}. It is the same for all groups of a set, because an axis that
 * does not nest with the levels is refused.
 *
 * Everything here is pure and allocates nothing. Threads: any. */
#ifndef COH_MEMORY_MESH_H
#define COH_MEMORY_MESH_H

#include <stdint.h>

#include "base/check.h"
#include "cohobate/tier.h"

/* 2^20: products of two rank numbers fit into 64 bits, tables of all ranks into memory. */
#define COH_RANKS_MOST (INT32_C(1) << 20)

enum { COH_AXES_MOST = 8, COH_AXIS_NAME_BYTES = 16 };

/* ---- levels ---- */

/* Ranks of a pair, of a node, of the world; 1 for COH_LEVEL_SELF. Each number divides the next. */
typedef struct coh_levels {
    int32_t rank_count[COH_LEVEL_COUNT];
} coh_levels;

/* The place of a rank. Nodes count from 0 in the order of their ranks, and so do a node's pairs. */
typedef struct coh_place {
    int32_t node, pair;
} coh_place;

/* Finds the levels of ranks 0 to rank_count - 1 from their places.
 * Fails: COH_ERR_ARGUMENT naming the first rank that does not fit: a node (or pair) with fewer
 * ranks than the first one, ranks of a node that are not consecutive, a node without a rank. */
coh_status coh_levels_find(const coh_place *places, int32_t rank_count, coh_levels *out_levels);

/* Returns the level of the link between two ranks; COH_LEVEL_SELF if they are the same. */
coh_link_level coh_levels_link(const coh_levels *levels, int32_t rank, int32_t other);

/* ---- the mesh ---- */

typedef struct coh_axis {
    char name[COH_AXIS_NAME_BYTES]; /* a lower-case letter, then letters, digits, _ */
    int32_t rank_count;
} coh_axis;

typedef struct coh_mesh {
    coh_axis axes[COH_AXES_MOST];
    int32_t strides[COH_AXES_MOST]; /* between the rank numbers of neighbours on the axis */
    int axis_count;
    coh_levels levels;
} coh_mesh;

/* A set of axes: bit i is axis i. */
typedef uint32_t coh_axis_set;

/* Makes a mesh of axis_count axes, innermost first; 0 axes make a mesh of one rank.
 * Fails: COH_ERR_ARGUMENT if there are too many axes, two have one name, a count is below 1, the
 * product is not the number of ranks of the world, or an axis does not nest with a level (data=3 in
 * pairs of 2: some neighbours share a pair, others do not). */
coh_status coh_mesh_init(coh_mesh *mesh, const coh_axis *axes, int axis_count,
                         const coh_levels *levels);

/* Returns the mesh of one rank. */
static inline coh_mesh coh_mesh_of_one(void)
{
    return (coh_mesh){ .levels = { { 1, 1, 1, 1 } } };
}

/* Returns the number of ranks. */
int32_t coh_mesh_rank_count(const coh_mesh *mesh);

/* Returns the axis with this name, or -1. */
int coh_mesh_find_axis(const coh_mesh *mesh, const char *name);

/* Convert between a rank and its coordinates, one number for each axis. */
void coh_mesh_coordinates(const coh_mesh *mesh, int32_t rank, int32_t *out_coordinates);
int32_t coh_mesh_rank(const coh_mesh *mesh, const int32_t *coordinates);

/* Returns how many ranks a group has. */
int32_t coh_mesh_group_size(const coh_mesh *mesh, coh_axis_set axes);
/* Returns the index of `rank` in its group. Indices follow rank numbers. */
int32_t coh_mesh_group_index(const coh_mesh *mesh, coh_axis_set axes, int32_t rank);
/* Returns the rank of member `index` of the group of `rank`. */
int32_t coh_mesh_group_member(const coh_mesh *mesh, coh_axis_set axes, int32_t rank, int32_t index);
/* Returns the outermost link that a group crosses; COH_LEVEL_SELF for a group of one rank. */
coh_link_level coh_mesh_group_level(const coh_mesh *mesh, coh_axis_set axes);

#endif
