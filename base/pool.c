#include "base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "cohobate/model.h"

/* A worker enters a job under the lock and leaves it under the lock; the caller returns once no
 * worker is inside. So a worker that wakes late finds the job closed and touches nothing of it, and
 * nobody waits for a worker that never woke. */

/* About 5 us: kernel calls of one operator follow one another closer than that, and waking a
 * sleeper costs tens of microseconds. Longer spins take the core from the disk lanes. */
#define SPIN_COUNT 256

typedef struct worker {
    coh_pool *pool;
    pthread_t thread;
    char name[16];
} worker;

struct coh_pool {
    int thread_count;
    int started; /* workers to join */
    worker *workers;

    pthread_mutex_t lock;
    pthread_cond_t work, quiet;
    /* Under the lock; generation, inside and stop are also read without it while spinning. */
    coh_pool_piece piece;
    void *argument;
    int64_t piece_count;
    int open, sleeping;
    _Atomic int stop;
    _Atomic int inside;          /* workers between enter and leave */
    _Atomic uint64_t generation; /* raised when a job opens */
    char padding[64];            /* keeps what spinners read off the line that workers write */
    _Atomic int64_t next;        /* the next piece to hand out */
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void work_pieces(coh_pool *pool, coh_pool_piece piece, void *argument, int64_t piece_count)
{
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= piece_count)
            return;
        piece(argument, index);
    }
}

/* Waits for a job newer than *seen; 0 when the pool stops. */
static int wait_for_job(coh_pool *pool, uint64_t *seen)
{
    for (int i = 0; i < SPIN_COUNT; i++) {
        if (atomic_load_explicit(&pool->generation, memory_order_acquire) != *seen ||
            atomic_load_explicit(&pool->stop, memory_order_acquire))
            break;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == *seen && !atomic_load(&pool->stop)) {
        pool->sleeping++;
        pthread_cond_wait(&pool->work, &pool->lock);
        pool->sleeping--;
    }
    *seen = atomic_load(&pool->generation);
    return !atomic_load(&pool->stop); /* holds the lock */
}

static void *worker_main(void *context)
{
    coh_pool *pool = ((worker *)context)->pool;
    uint64_t seen = 0;
    while (wait_for_job(pool, &seen)) {
        if (pool->open) {
            coh_pool_piece piece = pool->piece;
            void *argument = pool->argument;
            int64_t piece_count = pool->piece_count;
            atomic_fetch_add(&pool->inside, 1);
            pthread_mutex_unlock(&pool->lock);
            work_pieces(pool, piece, argument, piece_count);
            pthread_mutex_lock(&pool->lock);
            if (atomic_fetch_sub(&pool->inside, 1) == 1 && !pool->open)
                pthread_cond_signal(&pool->quiet);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static coh_status start_workers(coh_pool *pool)
{
    /* Signals go to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    for (int i = 0; i < pool->thread_count - 1 && error == 0; i++) {
        worker *one = &pool->workers[i];
        one->pool = pool;
        error = coh_thread_start(&one->thread, worker_main, one);
        if (error == 0) {
            pool->started++;
            snprintf(one->name, sizeof(one->name), "coh-pool-%d", (i + 1) % 1000);
            pthread_setname_np(one->thread, one->name);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY,
                        "could start only %d of %d worker threads (error %d): lower --threads",
                        pool->started, pool->thread_count - 1, error);
    return COH_OK;
}

coh_status coh_pool_create(int thread_count, coh_pool **out_pool)
{
    *out_pool = NULL;
    if (thread_count < 1 || thread_count > 1024)
        return coh_fail(COH_ERR_ARGUMENT, "%d threads asked for: 1 to 1024 are possible",
                        thread_count);
    coh_pool *pool = NULL;
    COH_TRY(COH_ALLOC(1, &pool));
    pool->thread_count = thread_count;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->quiet, NULL);
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(thread_count, &pool->workers), failed);
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
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->quiet);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    coh_free(pool->workers);
    coh_free(pool);
}

static void open_job(coh_pool *pool, int64_t piece_count, coh_pool_piece piece, void *argument)
{
    pthread_mutex_lock(&pool->lock);
    pool->piece = piece;
    pool->argument = argument;
    pool->piece_count = piece_count;
    pool->open = 1;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_fetch_add(&pool->generation, 1);
    int64_t wanted = piece_count - 1;
    int wake = pool->sleeping < wanted ? pool->sleeping : (int)wanted;
    for (int i = 0; i < wake; i++)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static void close_job(coh_pool *pool)
{
    for (int i = 0; i < SPIN_COUNT && atomic_load_explicit(&pool->inside, memory_order_acquire);
         i++)
        pause_briefly();
    pthread_mutex_lock(&pool->lock);
    pool->open = 0;
    while (atomic_load(&pool->inside) > 0)
        pthread_cond_wait(&pool->quiet, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

void coh_pool_run(coh_pool *pool, int64_t piece_count, coh_pool_piece piece, void *argument)
{
    if (pool == NULL || pool->thread_count == 1 || piece_count <= 1) {
        for (int64_t i = 0; i < piece_count; i++)
            piece(argument, i);
        return;
    }
    open_job(pool, piece_count, piece, argument);
    work_pieces(pool, piece, argument, piece_count);
    close_job(pool);
}

int coh_pool_thread_count(const coh_pool *pool)
{
    return pool == NULL ? 1 : pool->thread_count;
}

void coh_parallel(void *queue, int64_t piece_count, void (*piece)(void *argument, int64_t index),
                  void *argument)
{
    coh_pool_run(queue, piece_count, piece, argument);
}
