/* turns.h - many threads make the parts of one sequence; it comes out in order.
 *
 *     thread 1   part 0 ........... part 3 ..
 *     thread 2   part 1 .. part 4 ..........        what is made before its turn waits in memory
 *     thread 3   part 2 .... part 5 .. | waits      up to a bound; then its maker waits
 *     out        000000000001122222333444...
 *
 * The part whose turn it is goes out as it is made, whatever its size: somebody always gets on. */
#ifndef COH_TEXT_TURNS_H
#define COH_TEXT_TURNS_H

#include <stddef.h>

#include "base/check.h"

/* A part that is being made. */
typedef struct coh_turn coh_turn;

typedef struct coh_turns_job {
    void *context;
    size_t part_count;
    /* Makes part `index` by calls of coh_turn_put; on thread 0..thread_count-1, of which each makes
     * one part at a time. */
    coh_status (*make)(void *context, int thread, size_t index, coh_turn *turn);
    /* Gets the bytes of part `index`, one call per put or several puts at once, then one call with
     * no bytes at its end. In order, never two at a time, on any of the threads. */
    coh_status (*take)(void *context, size_t index, const void *bytes, size_t byte_count,
                       int is_end);
    int thread_count;  /* with the caller's; fewer where the system gives no more */
    size_t most_bytes; /* bound of what waits, besides one put per thread */
} coh_turns_job;

/* Returns when all parts are out, or the first (in order) that failed is known: then its status and
 * text. All before it were taken, none behind it. */
coh_status coh_turns_run(const coh_turns_job *job);

/* Fails: as `take`; or if a part before this one has failed, so that it is not wanted. */
coh_status coh_turn_put(coh_turn *turn, const void *bytes, size_t byte_count);

#endif
