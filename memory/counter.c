/* A counter that threads wait for. The writer stores the value, then wakes sleepers only if one of
 * them waits for a number that is reached (`wanted`). Read counter.h first for the ordering
 * rules. */
#include "memory/counter.h"

#include <assert.h>
#include <time.h>

#include "base/clock.h"

#define NOBODY UINT64_MAX

/* Looks at the value this often before sleeping: 1-2 us, about the cost of a wake-up. */
#define SPIN_COUNT 64

/* ---- threads that are awake ---- */

coh_status coh_awake_init(coh_awake *awake)
{
    *awake = (coh_awake){ .count = 1 };
    if (pthread_mutex_init(&awake->mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex for a count of threads");
    if (pthread_cond_init(&awake->changed, NULL) != 0) {
        pthread_mutex_destroy(&awake->mutex);
        return coh_fail(COH_ERR_MEMORY, "the system gives no condition variable for a count of "
                                        "threads");
    }
    return COH_OK;
}

void coh_awake_fini(coh_awake *awake)
{
    pthread_cond_destroy(&awake->changed);
    pthread_mutex_destroy(&awake->mutex);
}

void coh_awake_add(coh_awake *awake, int count)
{
    if (awake == NULL)
        return;
    pthread_mutex_lock(&awake->mutex);
    awake->count += count;
    if (awake->count == 0)
        pthread_cond_signal(&awake->changed);
    pthread_mutex_unlock(&awake->mutex);
}

int coh_awake_wait(coh_awake *awake)
{
    pthread_mutex_lock(&awake->mutex);
    while (awake->count > 0 && !awake->closed)
        pthread_cond_wait(&awake->changed, &awake->mutex);
    const int is_open = !awake->closed;
    pthread_mutex_unlock(&awake->mutex);
    return is_open;
}

void coh_awake_close(coh_awake *awake)
{
    pthread_mutex_lock(&awake->mutex);
    awake->closed = 1;
    pthread_cond_signal(&awake->changed);
    pthread_mutex_unlock(&awake->mutex);
}

/* ---- the counter ---- */

/* On a clock that nobody sets, for waits with a limit. Returns 0 or an errno. */
static int init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

coh_status coh_counter_init(coh_counter *counter)
{
    atomic_init(&counter->value, 0);
    atomic_init(&counter->wanted, NOBODY);
    atomic_init(&counter->closed, 0);
    atomic_init(&counter->mirror, NULL);
    counter->awake = NULL;
    counter->sleeper_count = counter->wake_count = 0;
    if (pthread_mutex_init(&counter->mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex for a counter");
    if (init_condition(&counter->condition) != 0) {
        pthread_mutex_destroy(&counter->mutex);
        return coh_fail(COH_ERR_MEMORY, "the system gives no condition variable for a counter");
    }
    return COH_OK;
}

void coh_counter_fini(coh_counter *counter)
{
    pthread_cond_destroy(&counter->condition);
    pthread_mutex_destroy(&counter->mutex);
}

/* Wakes all sleepers; those whose number is not reached set `wanted` again. */
static void wake_all(coh_counter *counter)
{
    pthread_mutex_lock(&counter->mutex);
    atomic_store(&counter->wanted, NOBODY);
    coh_awake_add(counter->awake, (int)counter->sleeper_count);
    counter->sleeper_count = 0;
    counter->wake_count++;
    pthread_cond_broadcast(&counter->condition);
    pthread_mutex_unlock(&counter->mutex);
}

void coh_counter_set_mirror(coh_counter *counter, _Atomic uint64_t *mirror)
{
    atomic_store(&counter->mirror, mirror);
    if (mirror != NULL)
        coh_word_lift(mirror, coh_counter_read(counter));
}

void coh_counter_set_awake(coh_counter *counter, coh_awake *awake)
{
    counter->awake = awake;
}

/* No wake-up is lost: the value is stored before `wanted` is read, and a waiter lowers `wanted`
 * before it reads the value. All four are in one total order, so at least one side sees the
 * other. */
static void tell(coh_counter *counter, uint64_t value)
{
    _Atomic uint64_t *mirror = atomic_load_explicit(&counter->mirror, memory_order_relaxed);
    if (mirror != NULL)
        coh_word_lift(mirror, value);
    if (atomic_load(&counter->wanted) <= value)
        wake_all(counter);
}

void coh_counter_raise(coh_counter *counter, uint64_t value)
{
    assert(atomic_load_explicit(&counter->value, memory_order_relaxed) <= value);
    atomic_store(&counter->value, value);
    tell(counter, value);
}

void coh_counter_add(coh_counter *counter)
{
    tell(counter, atomic_fetch_add(&counter->value, 1) + 1);
}

void coh_counter_close(coh_counter *counter)
{
    atomic_store(&counter->closed, 1);
    wake_all(counter);
}

static void rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleeps until woken; the mutex is locked. A thread that is counted as awake is no longer counted
 * meanwhile. */
static void sleep_once(coh_counter *counter)
{
    if (counter->awake == NULL) {
        pthread_cond_wait(&counter->condition, &counter->mutex);
        return;
    }
    const uint32_t woken = counter->wake_count;
    counter->sleeper_count++;
    coh_awake_add(counter->awake, -1);
    while (counter->wake_count == woken)
        pthread_cond_wait(&counter->condition, &counter->mutex);
}

/* Returns 1 once there is nothing to wait for, 0 after a while. */
static int spin_for(const coh_counter *counter, uint64_t value)
{
    for (int spin = 0; spin < SPIN_COUNT; spin++) {
        if (coh_counter_is_closed(counter) || coh_counter_read(counter) >= value)
            return 1;
        rest();
    }
    return 0;
}

/* Asks to be woken at `value`; the mutex is locked. Returns 1 if there is nothing to wait for. */
static int want(coh_counter *counter, uint64_t value)
{
    if (atomic_load(&counter->wanted) > value)
        atomic_store(&counter->wanted, value); /* under the mutex: no other waiter lowers it */
    return atomic_load(&counter->closed) || atomic_load(&counter->value) >= value;
}

int coh_counter_wait(coh_counter *counter, uint64_t value)
{
    if (spin_for(counter, value))
        return !coh_counter_is_closed(counter);
    pthread_mutex_lock(&counter->mutex);
    while (!want(counter, value))
        sleep_once(counter);
    pthread_mutex_unlock(&counter->mutex);
    return !coh_counter_is_closed(counter);
}

int coh_counter_wait_for(coh_counter *counter, uint64_t value, uint64_t limit_ns)
{
    const uint64_t end_ns = coh_clock_ns() + limit_ns;
    const struct timespec end = { .tv_sec = (time_t)(end_ns / 1000000000u),
                                  .tv_nsec = (long)(end_ns % 1000000000u) };
    int is_over = 0, is_there;
    if (spin_for(counter, value))
        return 1;
    pthread_mutex_lock(&counter->mutex);
    while (!(is_there = want(counter, value)) && !is_over)
        is_over = pthread_cond_timedwait(&counter->condition, &counter->mutex, &end) != 0;
    pthread_mutex_unlock(&counter->mutex);
    return is_there;
}
