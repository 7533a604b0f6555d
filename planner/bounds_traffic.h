/* bounds_traffic.h - the fewest bytes that any residency of a sequence can move, computed without
 * placing anything.
 *
 *   steps    0    1    2    3    4 | 0'          capacity at a step: memory less what it touches
 *   chunk a  W.........R.........R |             kept bytes save a fetch where the interval ends
 *   chunk b       R....W...........|.R           an era (write to last read) saves a store
 *
 * Between two accesses a chunk stays or is fetched again. Bytes need not move as whole chunks here,
 * so the optimum is to evict the farthest next use, byte by byte (Belady 1966): if the kept bytes
 * exceed the capacity of a step, those needed last are evicted. This evicts the fewest bytes over
 * any prefix of the sequence, for any capacities of the steps: by the exchange argument, it never
 * makes a later step fuller. Addresses, windows and whole chunks can only add traffic. */
#ifndef COH_PLANNER_BOUNDS_TRAFFIC_H
#define COH_PLANNER_BOUNDS_TRAFFIC_H

#include "planner/residency.h"

/* The range of time in which a step may run, in steps with a fixed order: after the first `early`
 * of these have ended and before step `late` begins. Numbers from step_count on belong to the next
 * repetition. A step with a fixed order has its own number as both; a step of unknown time has
 * COH_TRAFFIC_ANY_TIME. */
typedef struct coh_traffic_span {
    int64_t early, late;
} coh_traffic_span;

#define COH_TRAFFIC_ANY_TIME ((coh_traffic_span){ .early = INT32_MIN, .late = INT32_MAX })

/* One chunk at one step. */
typedef struct coh_traffic_access {
    uint32_t chunk;
    uint32_t keep; /* steps until its content is read next; 0: dead, or overwritten first */
    /* steps until the last read of what is written here; 0: not written, or never read */
    uint32_t era;
    uint8_t reads;  /* reads the content of the chunk */
    uint8_t leaves; /* what is written here is read in the next tier out */
    uint8_t inside; /* strictly inside an era */
    uint8_t takes;  /* written in the memory of another chunk of the step (lower.h) */
} coh_traffic_access;

/* Takes effect before a step. With keep and era 0: a step without a fixed order may have used the
 * chunk by now. Otherwise: such a step has used it, and it is kept for the next use. */
typedef struct coh_traffic_mark {
    uint32_t chunk, keep, era;
} coh_traffic_mark;

/* A repeating sequence: the chunks that each step touches, and how. */
typedef struct coh_traffic {
    uint32_t step_count, chunk_count;
    coh_traffic_access *accesses; /* of step s: [begin[s], begin[s + 1]) */
    uint32_t *begin;
    uint64_t *touched_bytes; /* by step, but for what is written in place of something else */
    uint64_t *chunk_bytes;
    coh_traffic_mark *marks; /* before step s: [mark_begin[s], mark_begin[s + 1]) */
    uint32_t *mark_begin;    /* NULL: all steps have a fixed order */
} coh_traffic;

/* Leaves pinned objects out, since they never move. Far operands (lower.h) take no capacity: the
 * data they read must be stored first, the data they write must be fetched again. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_traffic_init(const coh_layout *layout, const coh_sequence *sequence,
                            coh_traffic *out_traffic);
void coh_traffic_fini(coh_traffic *traffic); /* accepts a zeroed struct */

/* Builds the traffic of one memory that holds the far operands, too. A step whose operands are far
 * has no fixed order relative to the others, only the range spans[step]; the traffic's steps are
 * the others. Counts only bytes that move in every order:
 *
 *   steps      0    1    2 .. 7    8 | 0'   1'      W: a far step writes a chunk, at the latest
 *   chunk       <--W |==============|  <--R         before step 1; the next one reads it, at the
 *                                                   earliest after 8: it is kept over 1 .. 8
 *
 * From the latest end of one access to the earliest begin of the next, data is kept or moved in
 * every order; only there does it count against the capacity. The far steps' own memory is not
 * counted. Bytes evicted within such an interval are counted at their eviction: when fetching,
 * they are read once later; when storing, they were written once. A far step that reads between
 * two accesses of fixed-order steps (an update of what those read) ends no interval: a chunk
 * that is evicted anywhere between the two is fetched for one of them. Evicting the farthest end
 * first evicts the fewest bytes of these intervals too, so a settled repetition evicts no more
 * than any schedule moves. Fails: COH_ERR_MEMORY. */
coh_status coh_traffic_init_spans(const coh_layout *layout, const coh_sequence *sequence,
                                  const coh_traffic_span *spans, coh_traffic *out_traffic);

/* The direction that is counted. */
enum coh_traffic_way { COH_TRAFFIC_FETCH, COH_TRAFFIC_STORE };

/* Computes the fewest bytes per settled repetition with a capacity of `room_bytes`. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_traffic_least(const coh_traffic *traffic, enum coh_traffic_way way,
                             uint64_t room_bytes, uint64_t *out_bytes);

/* As coh_traffic_least, and sets after_bytes[s], by step, to the bytes that a settled repetition
 * moves up to and with step s; they mean nothing if *out_is_settled is 0, since no repetition
 * settled. Of a traffic without far operands they are no fewer than a window asks for: a window
 * assumes the best memory at its begin and evicts the fewest bytes up to every step, and the
 * settled repetition is one way to run the same steps. */
coh_status coh_traffic_settled(const coh_traffic *traffic, enum coh_traffic_way way,
                               uint64_t room_bytes, uint64_t *out_bytes, uint64_t *after_bytes,
                               int *out_is_settled);

/* Callback after each step of a window: `bytes` is the least that must have moved from the begin of
 * the window's first step until step `step` (counted on past step_count) begins. */
typedef void coh_traffic_told(void *context, uint64_t step, uint64_t bytes);

/* Runs `step_count` steps (at most one repetition) from `first_step` on, whatever the memory held
 * before. Not for sequences with far operands, whose instructions run when they can. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_traffic_window(const coh_traffic *traffic, enum coh_traffic_way way,
                              uint64_t room_bytes, uint32_t first_step, uint32_t step_count,
                              coh_traffic_told *told, void *context);

#endif
