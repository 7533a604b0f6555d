/* cores.h - keeps each thread of a pool on its own core.
 *
 * The system often wakes a thread on its waker's core, and may leave both there for a second while
 * another core idles: half the speed. So each thread records its core when a job begins, and a
 * worker that shares a core with a thread of lower index moves away:
 *
 *     allowed {0 1 2}, the caller on 0        worker 1, on 0: allows itself {1 2}, then {0 1 2}
 *
 * Nothing stays pinned: the first of the two calls makes the scheduler move the thread, the second
 * restores what it may use. If another program sets the thread's affinity between them (taskset;
 * some microseconds), that setting is lost.
 *
 * The system calls are in a table, so that a test can supply its own cores and clock.
 * Threads: each calls with its own index; each writes its entry of `at`, and all read it. */
#ifndef COH_BASE_CORES_H
#define COH_BASE_CORES_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

/* Minimum time between two moves of a worker: a scheduler's tick. */
#define COH_CORES_MOVE_AGAIN_NS 4000000u

typedef struct coh_core_ops {
    int (*here)(void *context); /* returns the calling thread's core; below 0: unknown */
    /* Gets the cores that the calling thread may use. Returns 0, or -1 as sched_getaffinity
     * does. */
    int (*get_allowed)(void *context, cpu_set_t *out_allowed);
    int (*set_allowed)(void *context, const cpu_set_t *allowed);
    uint64_t (*now_ns)(void *context);
} coh_core_ops;

extern const coh_core_ops coh_core_ops_of_system; /* use NULL as its context */

typedef struct coh_cores {
    const coh_core_ops *ops;
    void *context;
    int thread_count;
    _Atomic int *at; /* [thread_count] last recorded core of each thread; -1: none yet */
} coh_cores;

/* Records the core of thread `index`, and returns it. Writes only on a change, so that the other
 * threads' cached copies stay valid. */
int coh_cores_say(const coh_cores *cores, int index);

/* Records a worker's core, and moves the worker if a thread of lower index is on the same core, a
 * free core exists, and the last move is long enough ago. *moved_ns is the time of that move (0 at
 * first). */
void coh_cores_keep_apart(const coh_cores *cores, int index, uint64_t *moved_ns);

#endif
