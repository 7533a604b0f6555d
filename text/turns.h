/* turns.h - lets several threads make the parts of one sequence, and delivers them in order.
 *
 *     thread 1   part 0 ........... part 3 ..
 *     thread 2   part 1 .. part 4 ..........        what is made before its turn waits in memory
 *     thread 3   part 2 .... part 5 .. | waits      up to a bound; then its maker waits
 *     out        000000000001122222333444...
 *
 * The next part in order is delivered while it is being made, whatever its size, so one thread can
 * always proceed. */
#ifndef COH_TEXT_TURNS_H
#define COH_TEXT_TURNS_H

#include <stddef.h>

#include "base/check.h"

/* A part in the making. */
typedef struct coh_turn coh_turn;

typedef struct coh_turns_job {
    void *context;
    size_t part_count;
    /* Makes part `index` by calling coh_turn_put. Runs on thread 0..thread_count-1; each thread
     * makes one part at a time. */
    coh_status (*make)(void *context, int thread, size_t index, coh_turn *turn);
    /* Receives the bytes of part `index`: one call per put or for several puts, then a call without
     * bytes at the part's end. In order, never two calls at a time, on any of the threads. */
    coh_status (*take)(void *context, size_t index, const void *bytes, size_t byte_count,
                       int is_end);
    int thread_count;  /* including the caller's; fewer if the system cannot start them */
    size_t most_bytes; /* bound of waiting bytes, in addition to one put per thread */
} coh_turns_job;

/* Returns when all parts are delivered, or with the status and text of the first part (in order)
 * that failed. All parts before it were delivered, none after it. */
coh_status coh_turns_run(const coh_turns_job *job);

/* Fails: as `take`; or if an earlier part failed, so that this one is not needed. */
coh_status coh_turn_put(coh_turn *turn, const void *bytes, size_t byte_count);

/* Waits until all parts before this one are delivered. Fails: an earlier part failed. */
coh_status coh_turn_wait(coh_turn *turn);

#endif
