/* The worker pool of the host: threads that take pieces of one job from a shared counter, spin
 * briefly between jobs, and sleep on futexes otherwise. Read pool.h first; the comment below
 * explains the protocol. */
#include "base/pool.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/float_mode.h"
#include "base/queue_head.h"
#include "base/thread.h"
#include "cohobate/model.h"
#include "cohobate/terms.h"

/* One job at a time, described by two numbers: pieces not taken, pieces not done.
 *
 *   caller   left = unfinished = n, jobs + 1   takes pieces ..., waits until unfinished is 0
 *   worker                                     takes pieces ..., unfinished - (number it did)
 *
 * Taking a piece is one subtraction from `left`. A thread that finds it above 0 owns a piece of the
 * job that is open now. That job stays open, and its fields unchanged, until the owner subtracts
 * its pieces from `unfinished`. A thread that finds no piece has changed nothing that another
 * thread waits for. */

/* Spinning time before a waiter sleeps. A wake-up costs the waker 4 us, and the sleeper 4 to 15 us
 * until it runs (benchmarks/pool.c prints the cost of a job). Spinning a few times longer costs
 * little if it is in vain, and the calls of one step follow one another in less time. */
#define PATIENCE_NS 30000u
/* Polls between two readings of the clock. */
#define LOOKS 8

typedef struct worker {
    coh_pool *pool;
    pthread_t thread;
    int index; /* the caller is 0 */
    uint64_t moved_ns;
    char name[16];
} worker;

struct coh_pool {
    coh_queue_head head; /* first member: a pool is a queue of the host */
    int thread_count;
    int started; /* workers to join */
    worker *workers;
    uint64_t patience_ns; /* spinning time; 0 if there are more threads than cores */
    coh_cores cores;      /* core of the caller and of each worker at its last job */

    /* The caller writes these while no piece is left or unfinished. */
    coh_pool_piece piece;
    void *argument;
    int64_t piece_count;
    _Atomic int stop;

    /* Separate cache lines: spinners read `jobs` and `unfinished`, all threads write `left`. */
    char line_before[64];
    _Atomic uint32_t jobs;     /* raised when a job opens and at stop; a futex */
    _Atomic uint32_t sleeping; /* workers asleep on jobs, or about to be */
    char line_between[64];
    _Atomic int64_t left; /* below 0: the number of threads that found no piece */
    char line_behind[64];
    _Atomic int64_t unfinished;
    _Atomic uint32_t ends; /* raised when a job ends and its caller sleeps; a futex */
    _Atomic int caller_sleeps;
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, uint32_t count)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int has_new_job(const coh_pool *pool, uint32_t seen)
{
    return atomic_load(&pool->jobs) != seen;
}

static int is_finished(const coh_pool *pool, uint32_t unused)
{
    (void)unused;
    return atomic_load(&pool->unfinished) == 0;
}

/* Spins; returns 1 if the event came meanwhile. */
static int look_for(int (*has_come)(const coh_pool *, uint32_t), const coh_pool *pool,
                    uint32_t seen)
{
    uint64_t begin_ns = 0;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (has_come(pool, seen))
                return 1;
            pause_briefly();
        }
        if (begin_ns == 0)
            begin_ns = coh_clock_ns();
    } while (coh_clock_ns() - begin_ns < pool->patience_ns);
    return 0;
}

/* 1 while this thread runs pieces: a job that it opens then would overwrite the one that it
 * works on. */
static _Thread_local int is_in_piece;

/* Runs pieces until none is left. Returns their number: all belong to one job, which cannot end
 * before they are subtracted from `unfinished`. */
static int64_t work_pieces(coh_pool *pool)
{
    int64_t done = 0;
    is_in_piece = 1;
    while (atomic_load_explicit(&pool->left, memory_order_relaxed) > 0) {
        int64_t left = atomic_fetch_sub_explicit(&pool->left, 1, memory_order_acquire);
        if (left <= 0)
            break;
        pool->piece(pool->argument, pool->piece_count - left);
        done++;
    }
    is_in_piece = 0;
    return done;
}

/* Subtracts `done`; returns 1 if nothing of the job is unfinished. */
static int take_off(coh_pool *pool, int64_t done)
{
    return atomic_fetch_sub(&pool->unfinished, done) == done;
}

/* ---- the workers ---- */

/* No wake-up is lost: the caller raises `jobs`, then reads `sleeping`; the worker raises
 * `sleeping`, then the kernel compares `jobs`. All four are in one total order, so at least one
 * side sees the other. */
static void sleep_until_job(coh_pool *pool, uint32_t seen)
{
    atomic_fetch_add(&pool->sleeping, 1);
    sleep_on(&pool->jobs, seen);
    atomic_fetch_sub(&pool->sleeping, 1);
}

static void *worker_main(void *context)
{
    worker *self = context;
    coh_pool *pool = self->pool;
    for (;;) {
        uint32_t seen = atomic_load(&pool->jobs);
        if (atomic_load(&pool->stop))
            return NULL;
        if (pool->patience_ns > 0)
            coh_cores_keep_apart(&pool->cores, self->index, &self->moved_ns);
        int64_t done = work_pieces(pool);
        coh_float_mode_restore();
        if (done > 0 && take_off(pool, done) && atomic_load(&pool->caller_sleeps)) {
            atomic_fetch_add(&pool->ends, 1);
            wake(&pool->ends, 1);
        }
        if (!look_for(has_new_job, pool, seen))
            sleep_until_job(pool, seen);
    }
}

static coh_status start_workers(coh_pool *pool)
{
    int error = 0;
    for (int i = 0; i < pool->thread_count - 1 && error == 0; i++) {
        worker *one = &pool->workers[i];
        one->pool = pool;
        one->index = i + 1;
        error = coh_thread_start(&one->thread, worker_main, one);
        if (error == 0) {
            pool->started++;
            snprintf(one->name, sizeof(one->name), "coh-pool-%d", (i + 1) % 1000);
            pthread_setname_np(one->thread, one->name);
        }
    }
    if (error != 0)
        return coh_fail(
            COH_ERR_MEMORY, "could start only %d of %d worker threads (error %d): lower %s",
            pool->started, pool->thread_count - 1, error, coh_term_text(COH_TERM_THREADS));
    return COH_OK;
}

/* Returns the spinning time. A spinning thread occupies a core; with fewer cores than threads, a
 * thread with a piece would wait for that core. */
static uint64_t choose_patience(const coh_cores *cores)
{
    cpu_set_t allowed;
    if (cores->ops->get_allowed(cores->context, &allowed) == 0 &&
        CPU_COUNT(&allowed) < cores->thread_count)
        return 0;
    return PATIENCE_NS;
}

coh_status coh_pool_create(int thread_count, coh_pool **out_pool)
{
    return coh_pool_create_on(thread_count, &coh_core_ops_of_system, NULL, out_pool);
}

coh_status coh_pool_create_on(int thread_count, const coh_core_ops *ops, void *context,
                              coh_pool **out_pool)
{
    *out_pool = NULL;
    if (thread_count < 1 || thread_count > COH_THREADS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%d threads asked for: 1 to %d are possible",
                        thread_count, COH_THREADS_MOST);
    coh_pool *pool = NULL;
    COH_TRY(COH_ALLOC(1, &pool));
    pool->thread_count = thread_count;
    pool->cores = (coh_cores){ .ops = ops, .context = context, .thread_count = thread_count };
    pool->patience_ns = choose_patience(&pool->cores);
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(thread_count, &pool->workers), failed);
    COH_TRY_GOTO(status, COH_ALLOC(thread_count, &pool->cores.at), failed);
    for (int i = 0; i < thread_count; i++)
        atomic_store(&pool->cores.at[i], -1);
    COH_TRY_GOTO(status, start_workers(pool), failed);
    *out_pool = pool;
    return COH_OK;
failed:
    coh_pool_destroy(pool);
    return status;
}

void coh_pool_destroy(coh_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->stop, 1);
    atomic_fetch_add(&pool->jobs, 1);
    wake(&pool->jobs, (uint32_t)pool->thread_count);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    coh_free(pool->workers);
    coh_free(pool->cores.at);
    coh_free(pool);
}

/* ---- the caller ---- */

static void open_job(coh_pool *pool, int64_t piece_count, coh_pool_piece piece, void *argument)
{
    pool->piece = piece;
    pool->argument = argument;
    pool->piece_count = piece_count;
    atomic_store_explicit(&pool->unfinished, piece_count, memory_order_relaxed);
    atomic_store_explicit(&pool->left, piece_count, memory_order_release);
    atomic_fetch_add(&pool->jobs, 1);
    uint32_t sleeping = atomic_load(&pool->sleeping);
    if (sleeping > 0)
        wake(&pool->jobs, piece_count <= sleeping ? (uint32_t)piece_count - 1 : sleeping);
}

/* Spins, then sleeps, so that a worker with a piece can use the caller's core. */
static void wait_for_end(coh_pool *pool)
{
    if (look_for(is_finished, pool, 0))
        return;
    /* set before reading `unfinished`; the worker reads it after writing `unfinished` */
    atomic_store(&pool->caller_sleeps, 1);
    for (;;) {
        uint32_t seen = atomic_load(&pool->ends);
        if (is_finished(pool, 0))
            break;
        sleep_on(&pool->ends, seen);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

void coh_pool_run(coh_pool *pool, int64_t piece_count, coh_pool_piece piece, void *argument)
{
    if (pool == NULL || pool->thread_count == 1 || piece_count <= 1 || is_in_piece) {
        for (int64_t i = 0; i < piece_count; i++)
            piece(argument, i);
        return;
    }
    (void)coh_cores_say(&pool->cores, 0);
    open_job(pool, piece_count, piece, argument);
    if (!take_off(pool, work_pieces(pool)))
        wait_for_end(pool);
}

int coh_pool_thread_count(const coh_pool *pool)
{
    return pool == NULL ? 1 : pool->thread_count;
}

void coh_parallel(void *queue, int64_t piece_count, void (*piece)(void *argument, int64_t index),
                  void *argument)
{
    if (piece == NULL)
        return;
    coh_pool_run(queue, piece_count, piece, argument);
}
