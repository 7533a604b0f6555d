/* counter.h - a number that only grows, and threads that sleep until it is large enough.
 *
 * The one idea: all that one thread must know of another is how far it has come. A lane's
 * `retired`, a ring's `pushed` and `popped`, and the number of submitted runs are such numbers. The
 * step's threads wait for one another in no other way.
 *
 *   writer   ... write the data ... raise(n)          release
 *   reader   wait(n) ... read the data ...            acquire
 *
 * A waiter spins for about a microsecond, then sleeps, because spinning would take a core from
 * compute. It is woken when its number is reached, not at every raise before, because lanes wait
 * hundreds of instructions ahead. Closing wakes all waiters for good; a failure stops every thread
 * this way.
 *
 * In a rehearsal (engine/phantom.h) time advances only while every thread sleeps. A coh_awake
 * counts the threads that do not. A raise counts the sleepers that it wakes before they run, so the
 * count is 0 only if none can go on.
 *
 * Threads: one writer at a time, any number of readers. Nothing is allocated. */
#ifndef COH_MEMORY_COUNTER_H
#define COH_MEMORY_COUNTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/check.h"

/* Raises a word that several threads may raise, and never lowers it. Raising it above every value
 * releases all its waiters. Release order. */
static inline void coh_word_lift(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(
                               word, &seen, value, memory_order_release, memory_order_relaxed)) {
    }
}

/* The threads that are awake, of those that wait for counters of one group. */
typedef struct coh_awake {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* count is 0, or closed is 1 */
    int count, closed;      /* under the mutex */
} coh_awake;

/* Starts with one thread, the calling one. Fails: COH_ERR_MEMORY. */
coh_status coh_awake_init(coh_awake *awake);
void coh_awake_fini(coh_awake *awake); /* no thread may be waiting */
/* Counts `count` more threads, before they run. NULL: does nothing. */
void coh_awake_add(coh_awake *awake, int count);
/* Waits until all threads of the group sleep. Returns 0 once it is closed. */
int coh_awake_wait(coh_awake *awake);
void coh_awake_close(coh_awake *awake);

typedef struct coh_counter {
    _Atomic uint64_t value; /* its writer raises (release), anyone reads (acquire) */
    /* lowest value a sleeper waits for: waiters lower it, raise reads it */
    _Atomic uint64_t wanted;
    _Atomic uint32_t closed; /* close sets, waiters read */
    /* A copy of `value` for a reader without access to this struct: a word that a GPU polls. NULL:
     * none. */
    _Atomic uint64_t *_Atomic mirror;
    coh_awake *awake; /* of its readers; NULL: they are not counted */
    /* Under the mutex, with `awake`: sleepers, and how often they were all woken. */
    uint32_t sleeper_count, wake_count;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} coh_counter;

/* Initialises the counter to 0, open. Fails: COH_ERR_MEMORY. */
coh_status coh_counter_init(coh_counter *counter);
void coh_counter_fini(coh_counter *counter); /* no thread may be waiting */

/* Makes raise keep *mirror at least at the counter's value; nothing lowers it. NULL ends that. Call
 * it before other threads raise the counter, or after they stopped. */
void coh_counter_set_mirror(coh_counter *counter, _Atomic uint64_t *mirror);

/* Counts the counter's readers in `awake` (NULL: not). Before any thread waits. */
void coh_counter_set_awake(coh_counter *counter, coh_awake *awake);

/* Raises the counter to `value`, which must be at least the present value. */
void coh_counter_raise(coh_counter *counter, uint64_t value);

/* Raises the counter by 1. All threads that change the counter must do so by this call; several may
 * at once. */
void coh_counter_add(coh_counter *counter);

/* Waits for `value`. Returns 1 once the counter has reached it; returns 0 if the counter is closed,
 * whatever its value. */
int coh_counter_wait(coh_counter *counter, uint64_t value);

/* As coh_counter_wait, but at most `limit_ns`. Returns 0 if the time is over, else 1: the counter
 * has reached `value`, or is closed. Not for a counter whose readers are counted. */
int coh_counter_wait_for(coh_counter *counter, uint64_t value, uint64_t limit_ns);

void coh_counter_close(coh_counter *counter);

static inline uint64_t coh_counter_read(const coh_counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_acquire);
}

static inline int coh_counter_is_closed(const coh_counter *counter)
{
    return (int)atomic_load_explicit(&counter->closed, memory_order_acquire);
}

#endif
