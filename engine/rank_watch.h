/* rank_watch.h - ends a run in which a rank waits too long for the others in a step.
 *
 *   comm lane   begin(REDUCE) ... the transport waits ... end
 *   coh-watch   every quarter of the limit: how long has each lane waited? -> stop the world
 *
 * The one idea: a rank that hangs says nothing, so those that wait for it have to. A thread next to
 * the lanes looks, because a lane that waits cannot; the transport then ends the waits of all ranks
 * with one sentence. Meetings (coh_world_barrier and the like) may take any time, and so may every
 * program but the body and the drain: in a save the others wait for rank 0's drive.
 *
 * Threads: begin and end by the comm lanes, the others by the thread that creates the step. */
#ifndef COH_ENGINE_RANK_WATCH_H
#define COH_ENGINE_RANK_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "comm/world.h"
#include "planner/plan.h"

enum { COH_WATCHED_LANES = 2 };

/* The wait of a lane. */
typedef struct coh_watched_lane {
    _Atomic uint64_t begin_ns; /* 0: it does not wait */
    const coh_program *_Atomic program;
    _Atomic uint32_t instruction;
} coh_watched_lane;

typedef struct coh_rank_watch {
    coh_world *world;
    const coh_plan *plan;
    uint64_t limit_ns; /* 0: there is no thread */
    coh_watched_lane lanes[COH_WATCHED_LANES];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int ends; /* under the mutex */
    int is_started;
} coh_rank_watch;

/* Starts the thread, unless limit_s is 0. Fails: COH_ERR_MEMORY. */
coh_status coh_rank_watch_start(coh_rank_watch *watch, coh_world *world, const coh_plan *plan,
                                double limit_s);
void coh_rank_watch_stop(coh_rank_watch *watch); /* accepts a zeroed struct */

/* Says that a lane of the watch begins to wait in an instruction, and that it ends. Ignores
 * programs that may take any time. */
void coh_rank_watch_begin(coh_rank_watch *watch, coh_lane lane, const coh_program *program,
                          const coh_instruction *instruction);
void coh_rank_watch_end(coh_rank_watch *watch, coh_lane lane);

#endif
