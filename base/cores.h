/* cores.h - a core for each thread of a pool.
 *
 * A sleeper is often woken on its waker's core, and a scheduler may leave the two there for a
 * second while another core idles: half the speed. So each thread says where it is as a job begins,
 * and a worker that finds itself on the core of one before it goes elsewhere:
 *
 *     allowed {0 1 2}, the caller on 0        worker 1, on 0: allows itself {1 2}, then {0 1 2}
 *
 * It is pinned nowhere: between the two calls the scheduler has moved it, and after them it may go
 * where it could before. An affinity that somebody else gives the thread between the two (taskset;
 * some microseconds) is lost: the one from before comes back.
 *
 * What asks the system is a table, so that a test can put cores and a clock of its own there.
 * Threads: each calls with its own index; `at` is written by each and read by all. */
#ifndef COH_BASE_CORES_H
#define COH_BASE_CORES_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* A worker leaves a core that it shares once in this time at most: a scheduler's tick. */
#define COH_CORES_MOVE_AGAIN_NS 4000000u

typedef struct coh_core_ops {
    int (*here)(void *context); /* the calling thread's core; below 0: not known */
    /* The cores that the calling thread may use. 0, or -1 as sched_getaffinity. */
    int (*get_allowed)(void *context, cpu_set_t *out_allowed);
    int (*set_allowed)(void *context, const cpu_set_t *allowed);
    uint64_t (*now_ns)(void *context);
} coh_core_ops;

extern const coh_core_ops coh_core_ops_of_system; /* its context is NULL */

typedef struct coh_cores {
    const coh_core_ops *ops;
    void *context;
    int thread_count;
    _Atomic int *at; /* [thread_count] where each was when it last said so; -1: it has not yet */
} coh_cores;

/* Says where thread `index` is, and returns it. A core is written when it changes only, so the
 * others' copies of that line stay. */
int coh_cores_say(const coh_cores *cores, int index);

/* Says so for a worker, and moves it where one before it is on that core, another core is left and
 * *moved_ns, when that last happened (0 at first), is long enough ago. */
void coh_cores_keep_apart(const coh_cores *cores, int index, uint64_t *moved_ns);

#endif
