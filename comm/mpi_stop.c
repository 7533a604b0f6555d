/* Control messages between ranks that are processes, and the thread that receives them. Read
 * mpi_stop.h first. */
#include "comm/mpi_stop.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/transport.h"

enum { REQUEST, VERDICT, LEAVE, GONE };

/* 200 looks a second cost 0.4 % of a core (docs/ranks.md). */
#define LISTEN_NAP_NS 5000000
#define SHORT_NAP_NS  50000

static void nap(long ns)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* ---- send ---- */

/* Returns a place for a message, or NULL: too many ranks hang. */
static coh_mpi_delivery *claim(coh_mpi_stop *stop)
{
    for (int i = 0; i < COH_MPI_DELIVERIES; i++)
        if (atomic_exchange(&stop->deliveries[i].is_used, 1) == 0)
            return &stop->deliveries[i];
    return NULL;
}

/* A message ends with its sentence: MPI buffers short ones, also for a process that hangs. */
static size_t bytes_of(const coh_mpi_control *control)
{
    return offsetof(coh_mpi_control, sentence) + strlen(control->sentence) + 1;
}

/* Sends a message to one rank. Its thread receives it, so this does not wait for its other threads.
 * A process that hangs receives nothing: then a message that MPI has not buffered is given up, and
 * MPI keeps its place. */
static int deliver(coh_mpi_stop *stop, const coh_mpi_control *control, int32_t to)
{
    const uint64_t begin_ns = coh_clock_ns();
    coh_mpi_delivery *made = claim(stop);
    if (made == NULL)
        return 0;
    made->control = *control;
    const coh_mpi_message message = { .communicator = stop->communicator,
                                      .from = &made->control,
                                      .bytes = bytes_of(control),
                                      .peer = to,
                                      .tag = COH_MPI_TAG_CONTROL };
    int is_done = 0;
    int code = stop->calls->post(&message, made->request);
    while (code == 0 && !is_done && coh_clock_ns() - begin_ns < COH_MPI_PATIENCE_NS) {
        code = stop->calls->test_all(1, made->request, &is_done);
        if (code == 0 && !is_done)
            nap(SHORT_NAP_NS);
    }
    if (code != 0 || is_done)
        atomic_store(&made->is_used, 0);
    return code;
}

/* Sends a message to all others, also if one of them cannot be reached. */
static int deliver_all(coh_mpi_stop *stop, const coh_mpi_control *control)
{
    int first_code = 0;
    for (int32_t step = 1; step < stop->rank_count; step++) {
        const int code = deliver(stop, control, (stop->rank + step) % stop->rank_count);
        first_code = first_code != 0 ? first_code : code;
    }
    return first_code;
}

/* ---- stop ---- */

static coh_mpi_control failure_of(coh_status status, int32_t by, const char *sentence)
{
    coh_mpi_control made = { .kind = REQUEST, .status = (int32_t)status, .rank = by };
    (void)snprintf(made.sentence, sizeof(made.sentence), "rank %" PRId32 ": %s", by, sentence);
    return made;
}

/* Keeps the first failure. Returns 1 if it is this one. */
static int keep(coh_mpi_stop *stop, const coh_mpi_control *failure)
{
    pthread_mutex_lock(&stop->lock);
    const int is_first = !coh_mpi_is_stopped(stop);
    if (is_first) {
        stop->why = *failure;
        atomic_store_explicit(&stop->is_stopped, 1, memory_order_release);
    }
    pthread_mutex_unlock(&stop->lock);
    return is_first;
}

/* Rank 0: the first failure becomes that of all. */
static int decide(coh_mpi_stop *stop, const coh_mpi_control *failure)
{
    coh_mpi_control verdict = *failure;
    verdict.kind = VERDICT;
    return keep(stop, &verdict) ? deliver_all(stop, &verdict) : 0;
}

coh_status coh_mpi_stopped(const coh_mpi_stop *stop)
{
    return coh_fail((coh_status)stop->why.status, "%s", stop->why.sentence);
}

/* Asks rank 0, which may be gone or ended: then this rank ends with its own sentence. */
static void ask(coh_mpi_stop *stop, const coh_mpi_control *failure)
{
    const uint64_t begin_ns = coh_clock_ns();
    const int code = deliver(stop, failure, 0);
    while (code == 0 && !coh_mpi_is_stopped(stop) &&
           coh_clock_ns() - begin_ns < COH_MPI_PATIENCE_NS)
        nap(SHORT_NAP_NS);
    (void)keep(stop, failure);
}

coh_status coh_mpi_stop_all(coh_mpi_stop *stop, coh_status status, int32_t by, const char *sentence)
{
    const coh_mpi_control failure = failure_of(status, by, sentence);
    if (!coh_mpi_is_stopped(stop) && stop->rank == 0)
        (void)decide(stop, &failure);
    else if (!coh_mpi_is_stopped(stop))
        ask(stop, &failure);
    return coh_mpi_stopped(stop);
}

int coh_mpi_is_over(const coh_mpi_stop *stop, uint32_t meeting)
{
    return coh_mpi_is_stopped(stop) ||
           (atomic_load_explicit(&stop->left_rank, memory_order_acquire) >= 0 &&
            meeting > atomic_load_explicit(&stop->left_meetings, memory_order_relaxed));
}

coh_status coh_mpi_over(coh_mpi_stop *stop)
{
    if (coh_mpi_is_stopped(stop))
        return coh_mpi_stopped(stop);
    return coh_mpi_stop_all(stop, COH_ERR_ARGUMENT, atomic_load(&stop->left_rank),
                            COH_TRANSPORT_LEFT);
}

/* ---- the thread ---- */

static int post_receive(coh_mpi_stop *stop)
{
    return stop->calls->post(&(coh_mpi_message){ .communicator = stop->communicator,
                                                 .to = &stop->received,
                                                 .bytes = sizeof(stop->received),
                                                 .peer = COH_MPI_ANY_PEER,
                                                 .tag = COH_MPI_TAG_CONTROL },
                             stop->request);
}

static void note_left(coh_mpi_stop *stop, const coh_mpi_control *leave)
{
    const int is_first = atomic_load_explicit(&stop->left_count, memory_order_relaxed) == 0;
    if (is_first ||
        leave->meeting_count < atomic_load_explicit(&stop->left_meetings, memory_order_relaxed)) {
        atomic_store_explicit(&stop->left_meetings, leave->meeting_count, memory_order_relaxed);
        atomic_store_explicit(&stop->left_rank, leave->rank, memory_order_release);
    }
    atomic_fetch_add_explicit(&stop->left_count, 1, memory_order_release);
}

static int take(coh_mpi_stop *stop)
{
    switch (stop->received.kind) {
    case REQUEST:
        return decide(stop, &stop->received);
    case VERDICT:
        (void)keep(stop, &stop->received);
        break;
    case LEAVE:
        note_left(stop, &stop->received);
        break;
    case GONE:
        atomic_fetch_add_explicit(&stop->gone_count, 1, memory_order_release);
        break;
    }
    return 0;
}

static int are_all_gone(const coh_mpi_stop *stop)
{
    return atomic_load_explicit(&stop->gone_count, memory_order_acquire) == stop->rank_count - 1;
}

static void break_down(coh_mpi_stop *stop, int code)
{
    char text[COH_ERROR_TEXT_BYTES / 2], sentence[COH_ERROR_TEXT_BYTES / 2 + 64];
    stop->calls->describe(code, text, sizeof(text));
    (void)snprintf(sentence, sizeof(sentence), "MPI cannot receive control messages (%s)", text);
    const coh_mpi_control failure = failure_of(COH_ERR_DEVICE, stop->rank, sentence);
    (void)keep(stop, &failure);
    atomic_store(&stop->is_broken, 1);
}

static void *listen(void *argument)
{
    coh_mpi_stop *stop = argument;
    int code = post_receive(stop);
    (void)pthread_setname_np(pthread_self(), "coh-ranks");
    coh_thread_be_brief();
    while (code == 0 && !are_all_gone(stop) && !atomic_load(&stop->is_closed)) {
        int is_done = 0;
        code = stop->calls->test_all(1, stop->request, &is_done);
        if (code == 0 && is_done)
            code = take(stop);
        if (code == 0 && is_done && !are_all_gone(stop))
            code = post_receive(stop);
        if (code == 0 && !is_done)
            nap(atomic_load(&stop->is_leaving) ? SHORT_NAP_NS : LISTEN_NAP_NS);
    }
    if (code != 0)
        break_down(stop, code);
    return NULL;
}

coh_status coh_mpi_stop_open(coh_mpi_stop *stop, const coh_mpi_calls *calls,
                             coh_mpi_communicator communicator, const coh_mpi_facts *facts)
{
    stop->calls = calls;
    stop->communicator = communicator;
    stop->rank = facts->rank;
    stop->rank_count = facts->rank_count;
    atomic_store(&stop->left_rank, -1);
    if (pthread_mutex_init(&stop->lock, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "cannot create a mutex for the ranks");
    if (coh_thread_start(&stop->thread, listen, stop) == 0)
        return COH_OK;
    pthread_mutex_destroy(&stop->lock);
    return coh_fail(COH_ERR_MEMORY, "cannot create the thread coh-ranks: raise the limit of "
                                    "threads (ulimit -u)");
}

/* ---- close ---- */

/* Tells all others, once, then waits for the message of each. After a failure some have it, who
 * would count this rank twice, so it is not sent again, and nobody is waited for. */
static int tell_all(coh_mpi_stop *stop, const coh_mpi_control *control, coh_mpi_told *told,
                    const _Atomic int32_t *told_count)
{
    uint64_t stopped_ns = 0;
    if (atomic_load(&stop->is_broken))
        return 0;
    if (*told == COH_MPI_NOT_TOLD)
        *told = deliver_all(stop, control) == 0 ? COH_MPI_TOLD : COH_MPI_CANNOT_TELL;
    if (*told == COH_MPI_CANNOT_TELL)
        return 0;
    while (atomic_load_explicit(told_count, memory_order_acquire) < stop->rank_count - 1) {
        const uint64_t now_ns = coh_clock_ns();
        if (stopped_ns == 0 && coh_mpi_is_stopped(stop))
            stopped_ns = now_ns;
        if (atomic_load(&stop->is_broken) ||
            (stopped_ns != 0 && now_ns - stopped_ns > COH_MPI_PATIENCE_NS))
            return 0;
        nap(SHORT_NAP_NS);
    }
    return 1;
}

int coh_mpi_leave(coh_mpi_stop *stop, uint32_t meeting_count)
{
    const coh_mpi_control leave = { .kind = LEAVE,
                                    .rank = stop->rank,
                                    .meeting_count = meeting_count };
    atomic_store(&stop->is_leaving, 1);
    return tell_all(stop, &leave, &stop->told_leave, &stop->left_count);
}

int coh_mpi_be_gone(coh_mpi_stop *stop)
{
    return tell_all(stop, &(coh_mpi_control){ .kind = GONE, .rank = stop->rank }, &stop->told_gone,
                    &stop->gone_count);
}

void coh_mpi_stop_close(coh_mpi_stop *stop)
{
    atomic_store(&stop->is_closed, 1);
    (void)pthread_join(stop->thread, NULL);
    pthread_mutex_destroy(&stop->lock);
}
