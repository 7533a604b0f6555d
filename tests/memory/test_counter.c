/* Waiting for a number: every waiter whose number is reached continues, none is woken before. A
 * forgotten waiter hangs the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>

#include "memory/counter.h"

enum { WAITERS = 3, LAST = 20000 };

typedef struct waiter {
    pthread_t thread;
    coh_counter *counter;
    uint64_t stride, reached; /* waits for stride, 2 stride, ... up to LAST */
} waiter;

static void *wait_on(void *argument)
{
    waiter *w = argument;
    for (uint64_t n = w->stride; n <= LAST && coh_counter_wait(w->counter, n); n += w->stride)
        w->reached = n;
    return NULL;
}

static void start(waiter *w, coh_counter *counter, uint64_t stride)
{
    *w = (waiter){ .counter = counter, .stride = stride };
    assert_int_equal(pthread_create(&w->thread, NULL, wait_on, w), 0);
}

static void everyone_whose_number_has_come_goes_on(void **state)
{
    (void)state;
    static const uint64_t strides[WAITERS] = { 1, 7, 400 };
    coh_counter counter;
    waiter waiters[WAITERS];
    assert_int_equal(coh_counter_init(&counter), COH_OK);
    for (int i = 0; i < WAITERS; i++)
        start(&waiters[i], &counter, strides[i]);
    for (uint64_t n = 1; n <= LAST; n++) {
        coh_counter_raise(&counter, n);
        if (n % 64 == 0)
            sched_yield(); /* lets waiters catch up and sleep */
    }
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].reached, LAST / strides[i] * strides[i]);
    }
    coh_counter_fini(&counter);
}

static void wait_until_asleep(const coh_counter *counter, uint64_t value)
{
    while (atomic_load(&counter->wanted) != value)
        sched_yield();
}

static void a_sleeper_is_not_woken_before_its_number(void **state)
{
    (void)state;
    coh_counter counter;
    waiter w;
    assert_int_equal(coh_counter_init(&counter), COH_OK);
    start(&w, &counter, LAST);
    wait_until_asleep(&counter, LAST);
    for (uint64_t n = 1; n < LAST; n++) {
        coh_counter_raise(&counter, n);
        assert_int_equal(atomic_load(&counter.wanted), LAST); /* a wake-up would clear it */
    }
    coh_counter_raise(&counter, LAST);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.reached, LAST);
    coh_counter_fini(&counter);
}

static void closing_wakes_whoever_waits_for_anything(void **state)
{
    (void)state;
    coh_counter counter;
    waiter w;
    assert_int_equal(coh_counter_init(&counter), COH_OK);
    start(&w, &counter, 9);
    wait_until_asleep(&counter, 9);
    coh_counter_close(&counter);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.reached, 0);
    assert_int_equal(coh_counter_wait(&counter, 0), 0); /* however large it is */
    coh_counter_fini(&counter);
}

static void *raise_to_9(void *counter)
{
    wait_until_asleep(counter, 9);
    coh_counter_raise(counter, 8);
    coh_counter_raise(counter, 9);
    return NULL;
}

static void *close_it(void *counter)
{
    wait_until_asleep(counter, 10);
    coh_counter_close(counter);
    return NULL;
}

static void a_wait_with_a_limit_ends_by_its_time_its_number_or_a_close(void **state)
{
    (void)state;
    const uint64_t hour_ns = (uint64_t)3600 * 1000000000u;
    coh_counter counter;
    pthread_t thread;
    assert_int_equal(coh_counter_init(&counter), COH_OK);
    assert_int_equal(coh_counter_wait_for(&counter, 0, 0), 1);
    assert_int_equal(coh_counter_wait_for(&counter, 1, 0), 0);
    assert_int_equal(coh_counter_wait_for(&counter, 50, 1000000), 0);
    coh_counter_raise(&counter, 1);
    assert_int_equal(pthread_create(&thread, NULL, raise_to_9, &counter), 0);
    assert_int_equal(coh_counter_wait_for(&counter, 9, hour_ns), 1);
    pthread_join(thread, NULL);
    assert_int_equal(coh_counter_read(&counter), 9);
    coh_counter_fini(&counter); /* whoever was woken may leave `wanted` at its number */
    assert_int_equal(coh_counter_init(&counter), COH_OK);
    assert_int_equal(pthread_create(&thread, NULL, close_it, &counter), 0);
    assert_int_equal(coh_counter_wait_for(&counter, 10, hour_ns), 1);
    pthread_join(thread, NULL);
    coh_counter_fini(&counter);
}

/* While all sleep, each has done what its number allows, and none can go on. */
static void a_group_sleeps_only_when_nobody_can_go_on(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    coh_awake awake;
    coh_counter counters[WAITERS];
    waiter waiters[WAITERS];
    assert_int_equal(coh_awake_init(&awake), COH_OK);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(coh_counter_init(&counters[i]), COH_OK);
        coh_counter_set_awake(&counters[i], &awake);
        coh_awake_add(&awake, 1);
        start(&waiters[i], &counters[i], 1);
    }
    coh_awake_add(&awake, -1); /* this thread is the clock */
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        assert_int_equal(coh_awake_wait(&awake), 1);
        for (int i = 0; i < WAITERS; i++)
            assert_int_equal(waiters[i].reached, n - 1);
        for (int i = 0; i < WAITERS; i++)
            coh_counter_raise(&counters[i], n);
    }
    coh_awake_close(&awake);
    assert_int_equal(coh_awake_wait(&awake), 0);
    for (int i = 0; i < WAITERS; i++) {
        coh_counter_close(&counters[i]);
        pthread_join(waiters[i].thread, NULL);
        coh_counter_fini(&counters[i]);
    }
    coh_awake_fini(&awake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_whose_number_has_come_goes_on),
        cmocka_unit_test(a_sleeper_is_not_woken_before_its_number),
        cmocka_unit_test(closing_wakes_whoever_waits_for_anything),
        cmocka_unit_test(a_wait_with_a_limit_ends_by_its_time_its_number_or_a_close),
        cmocka_unit_test(a_group_sleeps_only_when_nobody_can_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
