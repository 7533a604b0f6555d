/* exchange.h - GATHER and REDUCE of a group, as lines of a link plan.
 *
 * The one idea: both are an exchange in which each member sends one part to each other member. A
 * window is p equal parts, one for each member of the group; member j owns part j.
 *
 *     GATHER    member i owns part i, and sends it to all     every window is whole
 *     REDUCE    member i has a whole contribution, and        member j holds slice j of all, and
 *               sends slice j of it to member j               folds them (kernels/fold.h)
 *
 * Each member receives (p - 1) parts, as in a ring, but nothing is added on the way: the owner adds
 * all slices in the order of the fold shape, so that the bits do not depend on the route or on p.
 * REDUCE then GATHER is an all-reduce.
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
    size_t part_bytes;
} coh_exchange;

/* Adds the line of a GATHER. `window`: p parts, of which this rank's own, at its index, is there
 * when the line starts. Fails: COH_ERR_MEMORY; COH_ERR_FULL if the window has more than 2^64
 * bytes. */
coh_status coh_exchange_gather(coh_link_plan *plan, const coh_exchange *exchange, void *window,
                               uint32_t *out_line);

/* Adds the line of a REDUCE. `contribution`: p slices of part_bytes. `received`: room for p - 1 of
 * them: those of this rank's part from the other members, in the order of their indices. Fails: as
 * above. */
coh_status coh_exchange_reduce(coh_link_plan *plan, const coh_exchange *exchange,
                               const void *contribution, void *received, uint32_t *out_line);

/* Gives the p slices to fold when the REDUCE is done, in the order of their indices: this rank's
 * own in its contribution, the others in `received`. */
void coh_exchange_slices(const coh_exchange *exchange, const void *contribution,
                         const void *received, const void **out_slices);

#endif
