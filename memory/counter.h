/* counter.h - a number that only grows, and threads that sleep until it is large enough.
 *
 * The one idea: everything that one thread must know of another is "how far are you?". A lane's
 * `retired`, a ring's `pushed` and `popped`, the number of submitted runs are all such numbers;
 * there is no other way in which the step's threads wait for one another.
 *
 *   writer   ... write the data ... raise(n)          release
 *   reader   wait(n) ... read the data ...            acquire
 *
 * A waiter spins for about a microsecond, then sleeps: it would otherwise take a core from compute.
 * It is woken when its number has come, not at every raise on the way: lanes wait hundreds of lines
 * ahead.
 * Closing wakes all waiters for good; that is how a failure stops every thread.
 *
 * Threads: one writer at a time, any number of readers. Nothing is allocated. */
#ifndef COH_MEMORY_COUNTER_H
#define COH_MEMORY_COUNTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/check.h"

/* Raises a word that several may raise, never lowers it: who releases all that wait for it sets it
 * above every value. Release. */
static inline void coh_word_lift(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(
                               word, &seen, value, memory_order_release, memory_order_relaxed)) {
    }
}

typedef struct coh_counter {
    _Atomic uint64_t value;  /* its writer raises (release), anyone reads (acquire) */
    _Atomic uint64_t wanted; /* the least that a sleeper waits for: waiters lower it, raise reads */
    _Atomic uint32_t closed; /* close sets, waiters read */
    /* A copy of `value` for who cannot look here: a word that a GPU watches. NULL: none. */
    _Atomic uint64_t *_Atomic mirror;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} coh_counter;

/* 0, open. Fails: COH_ERR_MEMORY. */
coh_status coh_counter_init(coh_counter *counter);
void coh_counter_fini(coh_counter *counter); /* nobody may wait any more */

/* From now on *mirror is at least the counter's value: raise lifts it, nothing lowers it. NULL ends
 * that. Before others raise the counter, and after. */
void coh_counter_set_mirror(coh_counter *counter, _Atomic uint64_t *mirror);

/* `value` is at least the present one. */
void coh_counter_raise(coh_counter *counter, uint64_t value);

/* 1 once the counter is at least `value`; 0 as soon as it is closed, however large it is. */
int coh_counter_wait(coh_counter *counter, uint64_t value);

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
