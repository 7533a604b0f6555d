/* bounds_traffic.h - the fewest bytes that any residency of a sequence can
 * move, without placing anything.
 *
 *   steps    0    1    2    3    4 | 0'          capacity at a step: room less
 * what it touches chunk a  W.........R.........R |             kept bytes save
 * a fetch where the interval ends chunk b       R....W...........|.R an era
 * (write to last read) saves a store
 *
 * Between two accesses a chunk stays or is fetched again. Bytes need not move
 * as whole chunks here, so the best choice is farthest next use, byte by byte
 * (Belady 1966): where the kept bytes exceed the room of a step, those that are
 * wanted last leave. It drops the fewest bytes of any prefix of the sequence,
 * whatever the capacities of the steps: an exchange never makes a later step
 * fuller. Addresses, windows and whole chunks only add to it. */
#ifndef COH_PLANNER_BOUNDS_TRAFFIC_H
#define COH_PLANNER_BOUNDS_TRAFFIC_H

#include "planner/residency.h"

/* When a step of a sequence runs, told in the steps that keep their order: after the first `early`
 * of them have ended, before step `late` begins (counted through: from step_count on, of the
 * repetition after). A step that keeps its order has its own number as both; one of which nothing
 * is known, COH_TRAFFIC_ANY_TIME. */
typedef struct coh_traffic_span {
    int64_t early, late;
} coh_traffic_span;

#define COH_TRAFFIC_ANY_TIME ((coh_traffic_span){ .early = INT32_MIN, .late = INT32_MAX })

/* One chunk at one step. */
typedef struct coh_traffic_access {
    uint32_t chunk;
    uint32_t keep;  /* steps until its content is read next; 0: it is dead, or
                     overwritten first */
    uint32_t era;   /* steps until what is written here is read last; 0: not
                     written, or unread */
    uint8_t reads;  /* wants what the chunk holds */
    uint8_t leaves; /* what is written here is read in the next tier out */
    uint8_t inside; /* strictly inside an era */
} coh_traffic_access;

/* Before a step: what was kept for a step that does not keep its order may have been used by now
 * (keep and era 0), or has been, and is kept for the next. */
typedef struct coh_traffic_mark {
    uint32_t chunk, keep, era;
} coh_traffic_mark;

/* A sequence that repeats: what each step touches, and what for. */
typedef struct coh_traffic {
    uint32_t step_count, chunk_count;
    coh_traffic_access *accesses; /* of step s: [begin[s], begin[s + 1]) */
    uint32_t *begin;
    uint64_t *touched_bytes; /* by step */
    uint64_t *chunk_bytes;
    coh_traffic_mark *marks; /* before step s: [mark_begin[s], mark_begin[s + 1]) */
    uint32_t *mark_begin;    /* NULL: all steps keep their order */
} coh_traffic;

/* Pinned objects are left out: they never move. Far needs (lower.h) take no
 * room: what they read must be stored, what they write must be fetched again.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_traffic_init(const coh_layout *layout, const coh_sequence *sequence,
                            coh_traffic *out_traffic);
void coh_traffic_fini(coh_traffic *traffic); /* accepts a zeroed struct */

/* Of one room in which the far needs stand as well: their steps (those whose needs are far) keep no
 * order with the others but for spans[step], and the traffic's steps are the others. Nothing is
 * counted that some order would spare:
 *
 *   steps      0    1    2 .. 7    8 | 0'   1'      W: a far step writes a chunk, at the latest
 *   chunk       <--W |==============|  <--R         before step 1; the next one reads it, at the
 *                                                   earliest after 8: it is kept over 1 .. 8
 *
 * What lies between the latest end of one access and the earliest begin of the next is kept or
 * moved in every order, and only there does it take room; the far steps' own room is not counted.
 * Bytes that leave such an interval are counted as they leave: for fetching they come back once,
 * for storing they went out once. A far step that reads amid two accesses of the others (an update
 * of what they read) is no end: who drops the chunk anywhere between the two fetches it for one of
 * them. Farthest end first drops the fewest bytes of these intervals too, so a repetition that
 * settles drops no more than any schedule's own moves. Fails: COH_ERR_MEMORY. */
coh_status coh_traffic_init_spans(const coh_layout *layout, const coh_sequence *sequence,
                                  const coh_traffic_span *spans, coh_traffic *out_traffic);

/* Which direction is counted. */
enum coh_traffic_way { COH_TRAFFIC_FETCH, COH_TRAFFIC_STORE };

/* The fewest bytes per repetition, settled, in `room_bytes`. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_traffic_least(const coh_traffic *traffic, enum coh_traffic_way way,
                             uint64_t room_bytes, uint64_t *out_bytes);

/* Told after each step of a window with the fewest bytes that must have moved
 * since the window's first step began and before step `step` (counted through)
 * begins. */
typedef void coh_traffic_told(void *context, uint64_t step, uint64_t bytes);

/* One repetition from `first_step` on, whatever stood in the room before. Not
 * for sequences with far needs, whose lines run when they can. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_traffic_window(const coh_traffic *traffic, enum coh_traffic_way way,
                              uint64_t room_bytes, uint32_t first_step, coh_traffic_told *told,
                              void *context);

#endif
