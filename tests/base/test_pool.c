#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/pool.h"
#include "base/thread.h"
#include "cohobate/model.h"
#include "tests/faults/alloc_faults.h"

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

/* One job directly after another: a worker that is late for the first must not run the second's
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

/* Two pieces that wait for each other only end if two threads run at the same time. */
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

/* Between two jobs a worker spins, falls asleep or sleeps: tests every pause from none to longer
 * than it spins. A lost wake-up ends in a hang. */
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

/* Pieces that open jobs themselves: OUTER times INNER of them. */
enum { OUTER = 40, INNER = 25 };

typedef struct nest {
    coh_pool *pool;
    tally t;
    pthread_t threads[OUTER];
    int moved; /* inner pieces on another thread than their piece's */
} nest;

typedef struct inner {
    nest *of;
    int64_t outer;
} inner;

static void count_inner(void *argument, int64_t index)
{
    const inner *in = argument;
    count_piece(&in->of->t, in->outer * INNER + index);
    if (!pthread_equal(pthread_self(), in->of->threads[in->outer]))
        in->of->moved = 1;
}

static void open_inner(void *argument, int64_t index)
{
    nest *n = argument;
    inner in = { n, index };
    n->threads[index] = pthread_self();
    coh_parallel(n->pool, INNER, count_inner, &in);
}

static void a_job_of_a_piece_runs_on_its_thread(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        static nest n;
        coh_pool *pool;
        assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        for (int repeat = 0; repeat < 40; repeat++) {
            n = (nest){ .pool = pool };
            coh_parallel(pool, OUTER, open_inner, &n);
            for (int i = 0; i < OUTER * INNER; i++)
                assert_int_equal(n.t.ran[i], 1);
            assert_false(n.moved);
        }
        check_counts(pool, 50); /* jobs are run by all threads again */
        coh_pool_destroy(pool);
    }
}

/* The worker is still busy when the caller has no pieces left. */
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
    int blocked[2], sees_faults[2];
} names;

static void note_name(void *argument, int64_t index)
{
    names *n = argument;
    sigset_t set;
    pthread_getname_np(pthread_self(), n->of[index], sizeof(n->of[index]));
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    n->blocked[index] = sigismember(&set, SIGTERM) && sigismember(&set, SIGUSR1);
    n->sees_faults[index] = !sigismember(&set, SIGSEGV) && !sigismember(&set, SIGBUS);
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
    assert_true(n.sees_faults[worker]);
    assert_false(n.blocked[1 - worker]);
    pthread_barrier_destroy(&n.barrier);
    coh_pool_destroy(pool);
}

static void *note_mask(void *set)
{
    pthread_sigmask(SIG_BLOCK, NULL, set);
    return NULL;
}

/* Not of a pool only: also those of an engine's lanes, of a save, of a store. */
static void a_thread_of_the_library_takes_no_signals_but_its_faults(void **state)
{
    (void)state;
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
    static const int others[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM };
    sigset_t before, after, mask;
    pthread_t thread;
    note_mask(&before);
    assert_int_equal(coh_thread_start(&thread, note_mask, &mask), 0);
    pthread_join(thread, NULL);
    note_mask(&after);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        assert_false(sigismember(&mask, faults[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_true(sigismember(&mask, others[i]));
    for (int signal = 1; signal < SIGRTMAX; signal++)
        assert_int_equal(sigismember(&before, signal), sigismember(&after, signal));
}

/* The default is the `ulimit -s` at the start; a small one is set here instead. */
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

/* A mock of cores and clock for the test; every thread is on `core`. */
typedef struct stage {
    _Atomic int core;
    _Atomic uint64_t now_ns;
    cpu_set_t allowed;
    int set_fails;
    pthread_mutex_t lock;
    int set_count;
    cpu_set_t sets[8]; /* affinity masks set by threads, in order */
} stage;

static int stage_here(void *context)
{
    return atomic_load(&((stage *)context)->core);
}

static int stage_get_allowed(void *context, cpu_set_t *out_allowed)
{
    *out_allowed = ((stage *)context)->allowed;
    return 0;
}

static int stage_set_allowed(void *context, const cpu_set_t *allowed)
{
    stage *s = context;
    pthread_mutex_lock(&s->lock);
    if (s->set_count < (int)(sizeof(s->sets) / sizeof(s->sets[0])))
        s->sets[s->set_count] = *allowed;
    s->set_count++;
    pthread_mutex_unlock(&s->lock);
    return s->set_fails ? -1 : 0;
}

static uint64_t stage_now_ns(void *context)
{
    return atomic_load(&((stage *)context)->now_ns);
}

static const coh_core_ops stage_ops = { .here = stage_here,
                                        .get_allowed = stage_get_allowed,
                                        .set_allowed = stage_set_allowed,
                                        .now_ns = stage_now_ns };

/* Returns cores [0, count). */
static cpu_set_t first_cores(int count)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++)
        CPU_SET((size_t)i, &set);
    return set;
}

static stage make_stage(int core, int core_count)
{
    return (stage){ .core = core,
                    .now_ns = COH_CORES_MOVE_AGAIN_NS,
                    .allowed = first_cores(core_count),
                    .lock = PTHREAD_MUTEX_INITIALIZER };
}

/* Returns the number of masks set so far; threads may still be setting one, but request no new
 * ones. */
static int set_count(stage *s)
{
    pthread_mutex_lock(&s->lock);
    const int count = s->set_count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

/* Runs two jobs with a piece for each thread: before the second, a worker has looked up its core
 * after the caller reported its own. */
static void run_twice(coh_pool *pool)
{
    pthread_barrier_t barrier;
    const int threads = coh_pool_thread_count(pool);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < 2; i++)
        coh_pool_run(pool, threads, meet, &barrier);
    pthread_barrier_destroy(&barrier);
}

static void a_worker_excludes_the_callers_core_and_allows_it_again_every_4_ms_at_most(void **state)
{
    (void)state;
    coh_pool *pool;
    stage s = make_stage(1, 3);
    cpu_set_t others = s.allowed;
    CPU_CLR(1, &others);
    assert_int_equal(coh_pool_create_on(2, &stage_ops, &s, &pool), COH_OK);
    run_twice(pool);
    assert_int_equal(set_count(&s), 2);
    atomic_fetch_add(&s.now_ns, COH_CORES_MOVE_AGAIN_NS - 1);
    run_twice(pool);
    assert_int_equal(set_count(&s), 2);
    atomic_fetch_add(&s.now_ns, 1);
    run_twice(pool);
    assert_int_equal(set_count(&s), 4);
    for (int i = 0; i < 4; i += 2) {
        assert_true(CPU_EQUAL(&s.sets[i], &others));
        assert_true(CPU_EQUAL(&s.sets[i + 1], &s.allowed));
    }
    coh_pool_destroy(pool);
}

/* Core 1 would be free, but with three threads on two cores no thread has a core alone. */
static void with_more_threads_than_cores_nobody_moves(void **state)
{
    (void)state;
    coh_pool *pool;
    stage s = make_stage(0, 2);
    assert_int_equal(coh_pool_create_on(3, &stage_ops, &s, &pool), COH_OK);
    run_twice(pool);
    assert_int_equal(set_count(&s), 0);
    coh_pool_destroy(pool);
}

static void a_worker_moves_for_those_before_it_and_only_where_a_core_is_left(void **state)
{
    (void)state;
    _Atomic int at[3] = { 0, -1, -1 };
    stage s = make_stage(1, 3);
    const coh_cores cores = { .ops = &stage_ops, .context = &s, .thread_count = 3, .at = at };
    uint64_t moved_ns[3] = { 0 };
    cpu_set_t last = s.allowed;
    CPU_CLR(0, &last);
    CPU_CLR(1, &last);
    coh_cores_keep_apart(&cores, 1, &moved_ns[1]); /* on 1, the caller on 0 */
    assert_int_equal(s.set_count, 0);
    assert_int_equal(at[1], 1);
    coh_cores_keep_apart(&cores, 2, &moved_ns[2]); /* on 1 as well: it moves, */
    coh_cores_keep_apart(&cores, 1, &moved_ns[1]); /* and the one before it stays */
    assert_int_equal(s.set_count, 2);
    assert_true(CPU_EQUAL(&s.sets[0], &last));
    assert_true(CPU_EQUAL(&s.sets[1], &s.allowed));
    assert_true(moved_ns[2] == s.now_ns && moved_ns[1] == 0);
    s.allowed = first_cores(2);
    moved_ns[2] = 0;
    coh_cores_keep_apart(&cores, 2, &moved_ns[2]); /* both are taken */
    assert_int_equal(s.set_count, 2);
    s.allowed = first_cores(3);
    s.set_fails = 1;
    moved_ns[2] = 0;
    coh_cores_keep_apart(&cores, 2, &moved_ns[2]); /* an unchanged mask is not restored */
    assert_int_equal(s.set_count, 3);
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
        alloc_fail_nth(n);
        coh_status status = coh_pool_create(3, &pool);
        int hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
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
    uint64_t before = alloc_count();
    for (int i = 0; i < 100; i++)
        check_counts(pool, 50);
    assert_int_equal(alloc_count(), before);
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
        cmocka_unit_test(a_job_of_a_piece_runs_on_its_thread),
        cmocka_unit_test(the_return_waits_for_the_slowest_piece),
        cmocka_unit_test(workers_have_names_and_take_no_signals),
        cmocka_unit_test(a_thread_of_the_library_takes_no_signals_but_its_faults),
        cmocka_unit_test(a_thread_has_room_for_tiles_whatever_the_limit),
        cmocka_unit_test(a_worker_excludes_the_callers_core_and_allows_it_again_every_4_ms_at_most),
        cmocka_unit_test(with_more_threads_than_cores_nobody_moves),
        cmocka_unit_test(a_worker_moves_for_those_before_it_and_only_where_a_core_is_left),
        cmocka_unit_test(bad_thread_counts_are_refused_with_a_sentence),
        cmocka_unit_test(create_survives_the_failure_of_each_of_its_allocations),
        cmocka_unit_test(running_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
