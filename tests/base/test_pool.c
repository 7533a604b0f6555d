#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/pool.h"
#include "base/thread.h"
#include "cohobate/model.h"

#define PIECES_MOST 1000

typedef struct tally {
    _Atomic int ran[PIECES_MOST];
    int plain[PIECES_MOST]; /* written without atomics: the pool must order it before the return */
} tally;

static void count_piece(void *argument, int64_t index)
{
    tally *t = argument;
    atomic_fetch_add(&t->ran[index], 1);
    t->plain[index] = (int)index + 1;
}

static void check_counts(coh_pool *pool, int64_t piece_count)
{
    static tally t;
    memset(&t, 0, sizeof(t));
    coh_pool_run(pool, piece_count, count_piece, &t);
    for (int64_t i = 0; i < PIECES_MOST; i++) {
        assert_int_equal(t.ran[i], i < piece_count);
        assert_int_equal(t.plain[i], i < piece_count ? i + 1 : 0);
    }
}

static void every_piece_runs_exactly_once_and_before_the_return(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 64, 1000 };
    for (int threads = 1; threads <= 5; threads++) {
        coh_pool *pool;
        assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        assert_int_equal(coh_pool_thread_count(pool), threads);
        for (int repeat = 0; repeat < 40; repeat++)
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                check_counts(pool, counts[i]);
        coh_pool_destroy(pool);
    }
}

static void no_pool_runs_in_the_caller(void **state)
{
    (void)state;
    check_counts(NULL, 17);
    assert_int_equal(coh_pool_thread_count(NULL), 1);
    coh_pool_destroy(NULL);
}

/* A job on the heels of another: a worker that is late for the first must not take the second's
 * pieces with the first's function. */
typedef struct turn {
    int64_t number;
    _Atomic int64_t wrong, done;
} turn;

static _Atomic int64_t turn_now;

static void check_turn(void *argument, int64_t index)
{
    (void)index;
    turn *t = argument;
    if (t->number != atomic_load(&turn_now))
        atomic_fetch_add(&t->wrong, 1);
    atomic_fetch_add(&t->done, 1);
}

static void jobs_in_quick_succession_never_mix(void **state)
{
    (void)state;
    coh_pool *pool;
    assert_int_equal(coh_pool_create(4, &pool), COH_OK);
    for (int64_t i = 0; i < 5000; i++) {
        turn t = { .number = i };
        atomic_store(&turn_now, i);
        coh_parallel(pool, 2 + i % 5, check_turn, &t);
        assert_int_equal(t.wrong, 0);
        assert_int_equal(t.done, 2 + i % 5);
    }
    coh_pool_destroy(pool);
}

/* Two pieces that wait for each other can only end if two threads run at a time. */
static void meet(void *argument, int64_t index)
{
    (void)index;
    pthread_barrier_wait(argument);
}

static void pieces_run_at_the_same_time(void **state)
{
    (void)state;
    coh_pool *pool;
    pthread_barrier_t barrier;
    assert_int_equal(coh_pool_create(3, &pool), COH_OK);
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < 50; i++)
        coh_pool_run(pool, 3, meet, &barrier);
    pthread_barrier_destroy(&barrier);
    coh_pool_destroy(pool);
}

/* Between two jobs a worker looks, falls asleep or sleeps: every pause from none to longer than it
 * looks. A wake-up lost at any of these ends in a hang. */
static void a_worker_is_found_looking_falling_asleep_or_asleep(void **state)
{
    (void)state;
    coh_pool *pool;
    pthread_barrier_t barrier;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    for (uint64_t pause_ns = 0; pause_ns < 80000; pause_ns += 100) {
        uint64_t begin_ns = coh_clock_ns();
        while (coh_clock_ns() - begin_ns < pause_ns)
            ;
        coh_pool_run(pool, 2, meet, &barrier);
    }
    pthread_barrier_destroy(&barrier);
    coh_pool_destroy(pool);
}

/* The worker is still busy when the caller has run out of pieces. */
typedef struct slow {
    pthread_barrier_t barrier;
    pthread_t caller;
    int finished[2]; /* no atomics: the return must order them */
} slow;

static void finish_late(void *argument, int64_t index)
{
    slow *s = argument;
    pthread_barrier_wait(&s->barrier);
    for (volatile int i = 0; i < 300000 && !pthread_equal(pthread_self(), s->caller);)
        i = i + 1;
    s->finished[index] = 1;
}

static void the_return_waits_for_the_slowest_piece(void **state)
{
    (void)state;
    coh_pool *pool;
    slow s = { .caller = pthread_self() };
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    pthread_barrier_init(&s.barrier, NULL, 2);
    for (int i = 0; i < 20; i++) {
        s.finished[0] = s.finished[1] = 0;
        coh_pool_run(pool, 2, finish_late, &s);
        assert_true(s.finished[0] && s.finished[1]);
    }
    pthread_barrier_destroy(&s.barrier);
    coh_pool_destroy(pool);
}

typedef struct names {
    pthread_barrier_t barrier;
    char of[2][32];
    int blocked[2];
} names;

static void note_name(void *argument, int64_t index)
{
    names *n = argument;
    sigset_t set;
    pthread_getname_np(pthread_self(), n->of[index], sizeof(n->of[index]));
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    n->blocked[index] = sigismember(&set, SIGTERM);
    pthread_barrier_wait(&n->barrier);
}

static void workers_have_names_and_take_no_signals(void **state)
{
    (void)state;
    coh_pool *pool;
    names n = { 0 };
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    pthread_barrier_init(&n.barrier, NULL, 2);
    coh_pool_run(pool, 2, note_name, &n);
    int worker = strcmp(n.of[0], "coh-pool-1") == 0 ? 0 : 1;
    assert_string_equal(n.of[worker], "coh-pool-1");
    assert_true(n.blocked[worker]);
    assert_false(n.blocked[1 - worker]);
    pthread_barrier_destroy(&n.barrier);
    coh_pool_destroy(pool);
}

/* The default is what `ulimit -s` was at the start: too little is asked for here in its place. */
static void *note_stack(void *argument)
{
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return NULL;
    (void)pthread_attr_getstacksize(&attributes, argument);
    pthread_attr_destroy(&attributes);
    return NULL;
}

static void a_thread_has_room_for_tiles_whatever_the_limit(void **state)
{
    (void)state;
    pthread_attr_t usual, small;
    pthread_t thread;
    size_t stack_bytes = 0;
    pthread_getattr_default_np(&usual);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (size_t)256 << 10);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(coh_thread_start(&thread, note_stack, &stack_bytes), 0);
    pthread_join(thread, NULL);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_true(stack_bytes >= COH_THREAD_STACK_BYTES);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&usual);
}

/* Two threads of a pool, as their pieces see them. */
typedef struct seats {
    pthread_t caller;
    const cpu_set_t *worker_set; /* what the worker sets itself to; NULL: nothing */
    _Atomic int caller_core, worker_core;
    cpu_set_t worker_allowed;
} seats;

static void take_seat(void *argument, int64_t index)
{
    (void)index;
    seats *s = argument;
    const uint64_t end_ns = coh_clock_ns() + 500000u;
    if (pthread_equal(pthread_self(), s->caller)) {
        atomic_store(&s->caller_core, sched_getcpu());
    } else {
        if (s->worker_set != NULL)
            assert_int_equal(sched_setaffinity(0, sizeof(cpu_set_t), s->worker_set), 0);
        assert_int_equal(sched_getaffinity(0, sizeof(s->worker_allowed), &s->worker_allowed), 0);
        atomic_store(&s->worker_core, sched_getcpu());
    }
    while (coh_clock_ns() < end_ns) {
    }
}

/* Runs jobs until the worker had a piece and the two are on one core, or are not. */
static int sit(coh_pool *pool, seats *s, int together)
{
    for (int i = 0; i < 4000; i++) {
        atomic_store(&s->worker_core, -1);
        coh_pool_run(pool, 4, take_seat, s);
        if (s->worker_core >= 0 && (s->worker_core == s->caller_core) == together)
            return 1;
    }
    return 0;
}

static void a_worker_leaves_the_callers_core_and_is_as_free_as_before(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2)
        skip();
    coh_pool *pool;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    seats s = { .caller = pthread_self() };
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    s.worker_set = &one;
    assert_true(sit(pool, &s, 1));
    s.worker_set = &all; /* nothing makes it move but the pool, or a scheduler in its own time */
    assert_true(sit(pool, &s, 0) || sit(pool, &s, 0));
    s.worker_set = NULL;
    assert_true(sit(pool, &s, 0));
    assert_true(CPU_EQUAL(&s.worker_allowed, &all));
    coh_pool_destroy(pool);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

static void bad_thread_counts_are_refused_with_a_sentence(void **state)
{
    (void)state;
    static const int counts[] = { 0, -1, 1025 };
    for (int i = 0; i < 3; i++) {
        coh_pool *pool = (coh_pool *)&i;
        assert_int_equal(coh_pool_create(counts[i], &pool), COH_ERR_ARGUMENT);
        assert_null(pool);
        assert_true(coh_last_error()[0] != '\0');
    }
}

static void create_survives_the_failure_of_each_of_its_allocations(void **state)
{
    (void)state;
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        coh_pool *pool;
        coh_alloc_fail_nth(n);
        coh_status status = coh_pool_create(3, &pool);
        int hit = coh_alloc_fault_was_hit();
        coh_alloc_fail_nth(0);
        if (!hit) {
            assert_int_equal(status, COH_OK);
            coh_pool_destroy(pool);
            break;
        }
        failures++;
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_null(pool);
    }
    assert_int_equal(failures, 3);
}

static void running_allocates_nothing(void **state)
{
    (void)state;
    coh_pool *pool;
    assert_int_equal(coh_pool_create(3, &pool), COH_OK);
    uint64_t before = coh_alloc_count();
    for (int i = 0; i < 100; i++)
        check_counts(pool, 50);
    assert_int_equal(coh_alloc_count(), before);
    coh_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_runs_exactly_once_and_before_the_return),
        cmocka_unit_test(no_pool_runs_in_the_caller),
        cmocka_unit_test(jobs_in_quick_succession_never_mix),
        cmocka_unit_test(pieces_run_at_the_same_time),
        cmocka_unit_test(a_worker_is_found_looking_falling_asleep_or_asleep),
        cmocka_unit_test(the_return_waits_for_the_slowest_piece),
        cmocka_unit_test(workers_have_names_and_take_no_signals),
        cmocka_unit_test(a_thread_has_room_for_tiles_whatever_the_limit),
        cmocka_unit_test(a_worker_leaves_the_callers_core_and_is_as_free_as_before),
        cmocka_unit_test(bad_thread_counts_are_refused_with_a_sentence),
        cmocka_unit_test(create_survives_the_failure_of_each_of_its_allocations),
        cmocka_unit_test(running_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
