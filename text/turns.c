/* Runs threads that make parts, and delivers the parts in order. The one idea: the next part in
 * order is delivered at once; later parts wait in memory up to a bound. Next: turns.h for the
 * drawing, token_build.c for the caller. */
#include "text/turns.h"

#include <pthread.h>
#include <stdio.h>

#include "base/thread.h"
#include "text/lists.h"

typedef struct part {
    coh_byte_list waiting; /* made, not yet delivered */
    int is_made;
} part;

/* All fields are protected by `lock`. Only the maker of part `turn`, or the thread that finished
 * the part before it if it is made already, calls `take`; the lock is released during the call. */
typedef struct turns {
    const coh_turns_job *job;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* signals a change of `turn`, of waiting bytes, or a failure */
    part *parts;
    size_t next;   /* the first part that no thread has begun */
    size_t turn;   /* the first part not fully delivered */
    size_t failed; /* the first part that failed; part_count: none */
    size_t waiting_bytes;
    coh_status status; /* of `failed` */
    char text[COH_ERROR_TEXT_BYTES];
} turns;

struct coh_turn {
    turns *all;
    size_t index;
};

typedef struct worker {
    turns *all;
    int number;
    pthread_t thread;
} worker;

static void fail_part(turns *t, size_t index, coh_status status)
{
    if (index >= t->failed)
        return;
    t->failed = index;
    t->status = status;
    coh_error_save(t->text);
}

/* Delivers the waiting bytes of part `turn`. Called with the lock held; releases it during
 * `take`. */
static coh_status take_waiting(turns *t)
{
    size_t index = t->turn;
    coh_byte_list out = t->parts[index].waiting;
    coh_status status = COH_OK;
    t->parts[index].waiting = (coh_byte_list){ 0 };
    t->waiting_bytes -= out.count;
    pthread_mutex_unlock(&t->lock);
    if (out.count)
        status = t->job->take(t->job->context, index, out.bytes, out.count, 0);
    coh_free(out.bytes);
    pthread_mutex_lock(&t->lock);
    return status;
}

coh_status coh_turn_put(coh_turn *turn, const void *bytes, size_t byte_count)
{
    turns *t = turn->all;
    part *own = &t->parts[turn->index];
    coh_status status = COH_OK;
    pthread_mutex_lock(&t->lock);
    while (t->turn != turn->index && t->waiting_bytes >= t->job->most_bytes &&
           t->failed > turn->index)
        pthread_cond_wait(&t->moved, &t->lock);
    if (t->failed < turn->index) {
        status = coh_fail(COH_ERR_INTERNAL, "a part before this one has failed");
    } else if (t->turn != turn->index) {
        status = coh_byte_list_add(&own->waiting, bytes, byte_count);
        if (status == COH_OK)
            t->waiting_bytes += byte_count;
    } else {
        status = take_waiting(t);
        pthread_cond_broadcast(&t->moved);
        pthread_mutex_unlock(&t->lock);
        if (status == COH_OK && byte_count)
            status = t->job->take(t->job->context, turn->index, bytes, byte_count, 0);
        return status;
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

coh_status coh_turn_wait(coh_turn *turn)
{
    turns *t = turn->all;
    pthread_mutex_lock(&t->lock);
    while (t->turn != turn->index && t->failed > turn->index)
        pthread_cond_wait(&t->moved, &t->lock);
    const int is_needed = t->failed >= turn->index;
    pthread_mutex_unlock(&t->lock);
    return is_needed ? COH_OK : coh_fail(COH_ERR_INTERNAL, "a part before this one has failed");
}

/* Delivers all finished parts, from `turn` on. */
static void advance(turns *t)
{
    while (t->turn < t->failed && t->parts[t->turn].is_made) {
        coh_status status = take_waiting(t);
        pthread_mutex_unlock(&t->lock);
        if (status == COH_OK)
            status = t->job->take(t->job->context, t->turn, NULL, 0, 1);
        pthread_mutex_lock(&t->lock);
        if (status != COH_OK)
            fail_part(t, t->turn, status);
        else
            t->turn++;
    }
    pthread_cond_broadcast(&t->moved);
}

static void *work(void *argument)
{
    const worker *w = argument;
    turns *t = w->all;
    pthread_mutex_lock(&t->lock);
    while (t->next < t->failed) {
        coh_turn turn = { t, t->next++ };
        pthread_mutex_unlock(&t->lock);
        coh_status status = t->job->make(t->job->context, w->number, turn.index, &turn);
        pthread_mutex_lock(&t->lock);
        if (status != COH_OK)
            fail_part(t, turn.index, status);
        t->parts[turn.index].is_made = status == COH_OK;
        if (t->turn == turn.index)
            advance(t);
        pthread_cond_broadcast(&t->moved);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void *work_named(void *argument)
{
    char name[16];
    snprintf(name, sizeof(name), "coh-text-%d", ((const worker *)argument)->number);
    pthread_setname_np(pthread_self(), name);
    return work(argument);
}

static void run(turns *t, worker *workers)
{
    int started = 1;
    for (int i = 0; i < t->job->thread_count; i++)
        workers[i] = (worker){ .all = t, .number = i };
    while (started < t->job->thread_count &&
           coh_thread_start(&workers[started].thread, work_named, &workers[started]) == 0)
        started++;
    work(&workers[0]);
    for (int i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
}

coh_status coh_turns_run(const coh_turns_job *job)
{
    turns *t;
    worker *workers = NULL;
    COH_TRY(COH_ALLOC(1, &t));
    *t = (turns){ .job = job, .failed = job->part_count };
    coh_status status = COH_ALLOC(job->part_count, &t->parts);
    if (status == COH_OK)
        status = COH_ALLOC(job->thread_count, &workers);
    if (status == COH_OK) {
        pthread_mutex_init(&t->lock, NULL);
        pthread_cond_init(&t->moved, NULL);
        run(t, workers);
        pthread_cond_destroy(&t->moved);
        pthread_mutex_destroy(&t->lock);
        status = t->status;
        if (status != COH_OK)
            coh_error_restore(t->text);
        for (size_t i = 0; i < job->part_count; i++)
            coh_free(t->parts[i].waiting.bytes);
    }
    coh_free(workers);
    coh_free(t->parts);
    coh_free(t);
    return status;
}
