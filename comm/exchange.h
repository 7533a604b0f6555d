/* exchange.h - GATHER and REDUCE of a group, as lines of a link plan.
 *
 * The one idea: both are an exchange in which each member sends one part to each other member. A
 * window is p parts, one for each member of the group; member j owns part j. All have one size, but
 * the last ones end with the window: they may be shorter, or empty.
 *
 *     GATHER    member i owns part i, and sends it to all     every window is whole
 *     REDUCE    member i has a whole contribution, and        member j holds slice j of all, and
 *               sends slice j of it to member j               folds them (kernels/fold.h)
 *
 * Each member receives (p - 1) parts, as in a ring, but nothing is added on the way: the owner adds
 * all slices in the order of the fold shape, so that the bits do not depend on the route or on p.
 * REDUCE then GATHER is an all-reduce.
 *
 * On a transport that has collectives a line may be one of them (link_plan.h): the same parts, but
 * the sum is the library's, in its order. A window whose last parts are shorter has no such line,
 * since libraries have one size for all.
 *
 * Member i sends to i + 1 first, then to i + 2, ..., so that in each step every member receives
 * from one other. A group of one has lines without links. */
#ifndef COH_COMM_EXCHANGE_H
#define COH_COMM_EXCHANGE_H

#include "comm/link_plan.h"
#include "memory/mesh.h"

/* The exchange of one rank: its group is the ranks of the mesh that differ in `axes` only. */
typedef struct coh_exchange {
    const coh_mesh *mesh;
    coh_axis_set axes;
    int32_t rank;
    size_t part_bytes, window_bytes; /* window_bytes: at most p * part_bytes */
} coh_exchange;

/* Returns the bytes of a member's part. */
size_t coh_exchange_part_bytes(const coh_exchange *exchange, int32_t index);

/* Adds the line of a GATHER. `window`: p parts, of which this rank's own, at its index, is there
 * when the line starts. Fails: COH_ERR_MEMORY; COH_ERR_FULL if p * part_bytes is 2^64 or more. */
coh_status coh_exchange_gather(coh_link_plan *plan, const coh_exchange *exchange, void *window,
                               uint32_t *out_line);

/* Adds the line of a REDUCE. `contribution`: the window. `received`: room for p - 1 slices of this
 * rank's part, part_bytes apart: those of the other members, in the order of their indices. Fails:
 * as above. */
coh_status coh_exchange_reduce(coh_link_plan *plan, const coh_exchange *exchange,
                               const void *contribution, void *received, uint32_t *out_line);

/* Add a GATHER, or a REDUCE of f32, as a collective if its parts have one size, and the group more
 * than one member; else set *out_is_added 0 and only name the group, as all ranks must
 * (link_plan.h). `window`: as above; `contribution`: the window; `sum`: where this rank's part of
 * the sum goes, which may be its place in `contribution`. Fails: COH_ERR_MEMORY; COH_ERR_FULL. */
coh_status coh_exchange_gather_collective(coh_link_plan *plan, const coh_exchange *exchange,
                                          void *window, uint32_t *out_line, int *out_is_added);
coh_status coh_exchange_reduce_collective(coh_link_plan *plan, const coh_exchange *exchange,
                                          const void *contribution, void *sum, uint32_t *out_line,
                                          int *out_is_added);

/* Gives the p slices to fold when the REDUCE is done, in the order of their indices: this rank's
 * own in its contribution, the others in `received`. */
void coh_exchange_slices(const coh_exchange *exchange, const void *contribution,
                         const void *received, const void **out_slices);

#endif
