/* homes.h - fixed places of chunks at the bottom of a tier. A chunk with a home lies there whenever
 * the tier holds it, so no search places it and no move brings it to another offset. While the
 * chunk is absent, others may use its home if it is listed (residency.h). schedule.c decides which
 * chunks have homes. */
#ifndef COH_PLANNER_HOMES_H
#define COH_PLANNER_HOMES_H

#include "planner/layout.h"

/* Instead of an offset: the chunk has no home. */
#define COH_NO_HOME UINT64_MAX

/* The homes of one tier. */
typedef struct coh_homes {
    uint64_t *offset; /* by chunk; COH_NO_HOME: none; NULL: no chunk has one */
    uint32_t *list;   /* chunks whose homes others may use, from the lowest offset on */
    uint32_t list_count;
    uint64_t end_bytes; /* above all homes */
} coh_homes;

/* Gives the marked chunks offsets one after another, from `offset` on; all others get COH_NO_HOME.
 * Returns the end. */
uint64_t coh_homes_assign(const coh_layout *layout, const uint8_t *is_marked, uint64_t offset,
                          uint64_t *homes);

/* As coh_homes_assign from offset 0, but gradients last: their homes are vacant for longest, and
 * several in a row hold a larger chunk. Lists the marked chunks; homes->list has room for all. */
uint64_t coh_homes_share(const coh_layout *layout, const uint8_t *is_marked, coh_homes *homes);

/* Gives chunks of a stream homes above homes->end_bytes, up to `room`: of those with is_used and
 * without a home as many as fit, spread evenly over the stream, so that the drive moves the others
 * during the whole pass over it. Gradients get theirs from the last to the first and are listed: of
 * vacant homes the highest is taken, which is then the one that is free for longest. Returns 1 if
 * all have homes. */
int coh_homes_spread(const coh_layout *layout, const uint8_t *is_used, int stream, uint64_t room,
                     coh_homes *homes);

#endif
