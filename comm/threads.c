/* Ranks of one process. The rank that starts the second side of a message copies it, with memcpy,
 * and counts it off on both sides' lines. The last message of a line raises the line's counter, on
 * which its thread sleeps (memory/counter.h).
 *
 *     rank 0   start: is first ....................... done (counter)
 *     rank 1            computes ... start: is second, copies, done
 *
 * So a line needs no thread that makes progress, and a rank that is late delays its peers by one
 * copy. Each message has a lock, which is held during the copy: a rank that is stopped may close,
 * and free its memory, only when no other rank copies from it. Read transport.h first. */
#include "comm/threads.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "memory/counter.h"

typedef struct message message;
typedef struct world world;

typedef struct line {
    coh_counter done;      /* how often it was done: raised with its last message */
    uint64_t start_count;  /* of the rank's own thread; others read it while the line is started */
    _Atomic uint32_t left; /* messages that are not copied yet: both sides subtract (acq_rel) */
    message **messages;
    uint32_t message_count;
} line;

/* Belongs to the receiver, which makes it; the sender fills in its side during bind. */
struct message {
    int32_t sender;
    size_t bytes;
    const void *from;
    void *to;
    line *send_line, *receive_line;
    pthread_mutex_t lock;
    int is_started; /* under the lock: by one side */
    int is_closed;  /* under the lock: by a rank that takes its memory with it */
};

/* The lines and messages of a rank; published as a whole, under the world's lock. */
typedef struct bound {
    line *lines;
    size_t line_count;
    message *receives; /* in the order of the plan */
    size_t receive_count;
    message **messages; /* of all links; a send's: NULL until it is matched */
    size_t link_count;
} bound;

/* A rank's call of a meeting. */
typedef struct call {
    coh_meeting meeting;
    const void *data;
} call;

typedef struct rank {
    coh_transport base;
    world *world;
    bound bound;
    coh_counter met; /* its own thread raises, the others wait: twice a meeting */
    uint64_t met_count;
    /* Held while another rank reads the offer, so that a rank that fails does not leave with data
     * that is being copied. */
    pthread_mutex_t offer_lock;
    const call *offer; /* under its lock; NULL: between meetings */
} rank;

struct world {
    _Atomic int is_stopped; /* set under the lock (release), read by all (acquire) */
    pthread_mutex_t lock;   /* of stop, close and publishing: guards all below, not the ranks */
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
    int32_t open_count;
    int32_t rank_count;
    rank ranks[];
};

/* ---- stop ---- */

static int is_stopped(world *all)
{
    return atomic_load_explicit(&all->is_stopped, memory_order_acquire);
}

/* Status and sentence never change once is_stopped is set. */
static coh_status stopped(world *all)
{
    return coh_fail(all->status, "%s", all->sentence);
}

static void close_counters(rank *of)
{
    coh_counter_close(&of->met);
    for (size_t i = 0; i < of->bound.line_count; i++)
        coh_counter_close(&of->bound.lines[i].done);
}

static void stop_all(world *all, coh_status status, int32_t by, const char *sentence)
{
    pthread_mutex_lock(&all->lock);
    if (!is_stopped(all)) {
        all->status = status;
        (void)snprintf(all->sentence, sizeof(all->sentence), "rank %" PRId32 ": %s", by, sentence);
        atomic_store_explicit(&all->is_stopped, 1, memory_order_release);
        for (int32_t i = 0; i < all->rank_count; i++)
            close_counters(&all->ranks[i]);
    }
    pthread_mutex_unlock(&all->lock);
}

static coh_status threads_stop(coh_transport *transport, coh_status status, const char *sentence)
{
    world *all = ((rank *)transport)->world;
    stop_all(all, status, transport->rank, sentence);
    return stopped(all);
}

static coh_status threads_look(coh_transport *transport)
{
    world *all = ((rank *)transport)->world;
    return is_stopped(all) ? stopped(all) : COH_OK;
}

/* Sleeps until a counter has a value. One that has it counts as such, also in a stopped world. */
static coh_status wait_for(world *all, coh_counter *counter, uint64_t value)
{
    if (coh_counter_read(counter) >= value || coh_counter_wait(counter, value) ||
        coh_counter_read(counter) >= value)
        return COH_OK;
    return stopped(all);
}

/* ---- meetings ---- */

/* Waits until all ranks have come as far. */
static coh_status meet(rank *self)
{
    world *all = self->world;
    if (is_stopped(all))
        return stopped(all);
    coh_counter_raise(&self->met, ++self->met_count);
    for (int32_t i = 0; i < all->rank_count; i++)
        COH_TRY(wait_for(all, &all->ranks[i].met, self->met_count));
    return COH_OK;
}

/* Shows the other ranks this rank's call; NULL: takes it back. */
static void offer(rank *self, const call *made)
{
    pthread_mutex_lock(&self->offer_lock);
    self->offer = made;
    pthread_mutex_unlock(&self->offer_lock);
}

/* Compares the call of another rank with this rank's, and copies its data (NULL: does not). A call
 * that was taken back belongs to a rank that has failed and will stop the world. */
static coh_status take(rank *from, const call *own, void *to)
{
    coh_status status = COH_OK;
    pthread_mutex_lock(&from->offer_lock);
    const call *other = from->offer;
    const size_t bytes = own->meeting.bytes;
    if (other != NULL)
        status = coh_meeting_compare(&own->meeting, &other->meeting, from->base.rank);
    if (other != NULL && status == COH_OK && to != NULL && to != other->data && bytes > 0)
        memcpy(to, other->data, bytes);
    pthread_mutex_unlock(&from->offer_lock);
    return status;
}

/* Meets all ranks, which must make the same call, and copies the data of the first `count`. */
static coh_status meet_with(rank *self, const call *own, int32_t count, void *out)
{
    world *all = self->world;
    offer(self, own);
    coh_status status = meet(self);
    for (int32_t i = 0; i < all->rank_count && status == COH_OK; i++) {
        void *to = i < count ? (unsigned char *)out + (size_t)i * own->meeting.bytes : NULL;
        status = take(&all->ranks[i], own, to);
    }
    if (status == COH_OK)
        status = meet(self);
    offer(self, NULL);
    return status;
}

static coh_status threads_gather(coh_transport *transport, const void *record, size_t bytes,
                                 void *out_records)
{
    const call own = { { COH_MEETING_GATHER, bytes }, record };
    return meet_with((rank *)transport, &own, bytes > 0 ? transport->rank_count : 0, out_records);
}

static coh_status threads_share(coh_transport *transport, void *bytes, size_t count)
{
    const call own = { { COH_MEETING_SHARE, count }, bytes };
    return meet_with((rank *)transport, &own, 1, bytes);
}

/* ---- bind ---- */

static void bound_fini(bound *made)
{
    for (size_t i = 0; i < made->line_count; i++)
        coh_counter_fini(&made->lines[i].done);
    for (size_t i = 0; i < made->receive_count; i++)
        pthread_mutex_destroy(&made->receives[i].lock);
    coh_free(made->lines);
    coh_free(made->receives);
    coh_free(made->messages);
    *made = (bound){ 0 };
}

/* Makes the receive of a link. */
static coh_status add_receive(bound *made, const coh_link *link, line *receive_line)
{
    message *receive = &made->receives[made->receive_count];
    *receive = (message){
        .sender = link->peer, .bytes = link->bytes, .to = link->to, .receive_line = receive_line
    };
    if (pthread_mutex_init(&receive->lock, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "cannot create a mutex for a message");
    made->receive_count++;
    return COH_OK;
}

/* Makes lines and receives; sends are matched later. On failure `made` is to be freed, too. */
static coh_status bound_make(const rank *self, const coh_link_plan *plan, bound *made)
{
    size_t receive_count = 0;
    COH_TRY(coh_link_plan_check(plan, self->base.rank, self->base.rank_count));
    for (size_t i = 0; i < plan->link_count; i++)
        receive_count += plan->links[i].to != NULL;
    COH_TRY(COH_ALLOC(plan->line_count, &made->lines));
    COH_TRY(COH_ALLOC(receive_count, &made->receives));
    COH_TRY(COH_ALLOC(plan->link_count, &made->messages));
    made->link_count = plan->link_count;
    for (size_t number = 0; number < plan->line_count; number++) {
        line *of = &made->lines[number];
        const size_t first = coh_link_plan_first(plan, number), end = plan->line_ends[number];
        COH_TRY(coh_counter_init(&of->done));
        made->line_count++;
        of->messages = made->messages + first;
        of->message_count = (uint32_t)(end - first);
        for (size_t i = first; i < end; i++)
            if (plan->links[i].to != NULL) {
                made->messages[i] = &made->receives[made->receive_count];
                COH_TRY(add_receive(made, &plan->links[i], of));
            }
    }
    return COH_OK;
}

/* Publishes what was made to stop_all and to the other ranks. */
static void publish(rank *self, const bound *made)
{
    pthread_mutex_lock(&self->world->lock);
    self->bound = *made;
    pthread_mutex_unlock(&self->world->lock);
}

static size_t number_of(const rank *of, const line *at)
{
    return (size_t)(at - of->bound.lines);
}

/* Fills in the sender's side of the peer's next receive from this rank. */
static coh_status match(rank *self, const coh_link *link, line *send_line, size_t *next,
                        message **out_message)
{
    rank *peer = &self->world->ranks[link->peer];
    const bound *there = &peer->bound;
    while (*next < there->receive_count && there->receives[*next].sender != self->base.rank)
        ++*next;
    const coh_link_side own = { number_of(self, send_line), link->bytes };
    if (*next == there->receive_count)
        return coh_link_match(link->peer, &own, NULL);
    message *found = &there->receives[(*next)++];
    COH_TRY(coh_link_match(link->peer, &own,
                           &(coh_link_side){ number_of(peer, found->receive_line), found->bytes }));
    found->from = link->from;
    found->send_line = send_line;
    *out_message = found;
    return COH_OK;
}

static coh_status match_sends(rank *self, const coh_link_plan *plan)
{
    coh_status status = COH_OK;
    size_t *next; /* by peer: its first receive that is not matched */
    COH_TRY(COH_ALLOC(self->base.rank_count, &next));
    for (size_t number = 0; number < plan->line_count; number++)
        for (size_t i = coh_link_plan_first(plan, number); i < plan->line_ends[number]; i++)
            if (plan->links[i].from != NULL)
                COH_TRY_GOTO(status,
                             match(self, &plan->links[i], &self->bound.lines[number],
                                   &next[plan->links[i].peer], &self->bound.messages[i]),
                             done);
done:
    coh_free(next);
    return status;
}

static coh_status check_receives(const rank *self)
{
    for (size_t i = 0; i < self->bound.receive_count; i++) {
        const message *receive = &self->bound.receives[i];
        if (receive->send_line == NULL)
            return coh_link_refuse_receive(
                receive->sender,
                &(coh_link_side){ number_of(self, receive->receive_line), receive->bytes });
    }
    return COH_OK;
}

static coh_status threads_bind(coh_transport *transport, const coh_link_plan *plan)
{
    rank *self = (rank *)transport;
    bound made = { 0 };
    if (self->bound.lines != NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a transport binds one link plan, and this one has one");
    const coh_status status = bound_make(self, plan, &made);
    if (status != COH_OK)
        bound_fini(&made);
    COH_TRY(status);
    publish(self, &made);
    COH_TRY(meet_with(self, &(call){ { COH_MEETING_BIND, 0 }, NULL }, 0,
                      NULL)); /* all receives are there */
    COH_TRY(match_sends(self, plan));
    COH_TRY(meet(self)); /* all sends are matched */
    COH_TRY(check_receives(self));
    return meet(self); /* all ranks agree */
}

/* ---- lines ---- */

static void count_off(line *of)
{
    if (atomic_fetch_sub_explicit(&of->left, 1, memory_order_acq_rel) == 1)
        coh_counter_raise(&of->done, of->start_count);
}

/* Starts one side of a message; the second copies. A closed message is never done, and its world
 * has stopped. */
static void start_message(message *of)
{
    pthread_mutex_lock(&of->lock);
    const int copies = of->is_started && !of->is_closed;
    of->is_started = !of->is_started;
    if (copies)
        memcpy(of->to, of->from, of->bytes);
    pthread_mutex_unlock(&of->lock);
    if (copies) {
        count_off(of->send_line);
        count_off(of->receive_line);
    }
}

static coh_status find_line(rank *self, uint32_t number, line **out_line)
{
    if (number >= self->bound.line_count)
        return coh_fail(COH_ERR_ARGUMENT, "there is no line %" PRIu32 ": %zu lines are bound",
                        number, self->bound.line_count);
    *out_line = &self->bound.lines[number];
    return COH_OK;
}

static int is_done(const line *of)
{
    return coh_counter_read(&of->done) >= of->start_count;
}

static coh_status threads_start(coh_transport *transport, uint32_t number)
{
    rank *self = (rank *)transport;
    line *of;
    COH_TRY(find_line(self, number, &of));
    if (is_stopped(self->world))
        return stopped(self->world);
    if (!is_done(of))
        return coh_fail(COH_ERR_ARGUMENT, "line %" PRIu32 " is started again before it is done",
                        number);
    of->start_count++;
    /* One more than there are messages: a line without messages is done, too. */
    atomic_store_explicit(&of->left, of->message_count + 1, memory_order_relaxed);
    for (uint32_t i = 0; i < of->message_count; i++)
        start_message(of->messages[i]);
    count_off(of);
    return COH_OK;
}

static coh_status threads_test(coh_transport *transport, uint32_t number, int *out_is_done)
{
    rank *self = (rank *)transport;
    line *of;
    COH_TRY(find_line(self, number, &of));
    *out_is_done = is_done(of);
    return *out_is_done || !is_stopped(self->world) ? COH_OK : stopped(self->world);
}

static coh_status threads_wait(coh_transport *transport, uint32_t number)
{
    rank *self = (rank *)transport;
    line *of;
    COH_TRY(find_line(self, number, &of));
    return wait_for(self->world, &of->done, of->start_count);
}

/* ---- open and close ---- */

static void free_world(world *all)
{
    for (int32_t i = 0; i < all->rank_count; i++) {
        bound_fini(&all->ranks[i].bound);
        coh_counter_fini(&all->ranks[i].met);
        pthread_mutex_destroy(&all->ranks[i].offer_lock);
    }
    pthread_mutex_destroy(&all->lock);
    coh_free(all);
}

static int threads_unbind(coh_transport *transport)
{
    const rank *self = (rank *)transport;
    for (size_t i = 0; i < self->bound.link_count; i++) {
        message *of = self->bound.messages[i];
        if (of == NULL)
            continue;
        pthread_mutex_lock(&of->lock);
        of->is_closed = 1;
        pthread_mutex_unlock(&of->lock);
    }
    return 1;
}

static void threads_close(coh_transport *transport)
{
    rank *self = (rank *)transport;
    world *all = self->world;
    stop_all(all, COH_ERR_ARGUMENT, transport->rank, COH_TRANSPORT_LEFT);
    (void)threads_unbind(transport);
    pthread_mutex_lock(&all->lock);
    const int is_last = --all->open_count == 0;
    pthread_mutex_unlock(&all->lock);
    if (is_last)
        free_world(all);
}

const coh_transport_ops coh_transport_threads = {
    .name = "threads",
    .bind = threads_bind,
    .start = threads_start,
    .test = threads_test,
    .wait = threads_wait,
    .gather = threads_gather,
    .share = threads_share,
    .stop = threads_stop,
    .look = threads_look,
    .unbind = threads_unbind,
    .close = threads_close,
};

static coh_status rank_init(world *all, int32_t number)
{
    rank *made = &all->ranks[number];
    if (pthread_mutex_init(&made->offer_lock, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "cannot create a mutex for a rank");
    const coh_status status = coh_counter_init(&made->met);
    if (status != COH_OK) {
        pthread_mutex_destroy(&made->offer_lock);
        return status;
    }
    made->base = (coh_transport){ .ops = &coh_transport_threads, .rank = number };
    made->world = all;
    return COH_OK;
}

coh_status coh_threads_open(int32_t rank_count, coh_transport **out_transports)
{
    world *all;
    coh_status status = COH_OK;
    COH_TRY(coh_check_integer("the number of ranks of a process", rank_count, 1,
                              COH_THREADS_RANKS_MOST));
    COH_TRY(coh_alloc(1, sizeof(*all) + (size_t)rank_count * sizeof(rank), (void **)&all));
    if (pthread_mutex_init(&all->lock, NULL) != 0) {
        coh_free(all);
        return coh_fail(COH_ERR_MEMORY, "cannot create a mutex for a world of ranks");
    }
    while (all->rank_count < rank_count && status == COH_OK) {
        status = rank_init(all, all->rank_count);
        all->rank_count += status == COH_OK;
    }
    if (status != COH_OK) {
        free_world(all);
        return status;
    }
    all->open_count = rank_count;
    for (int32_t i = 0; i < rank_count; i++) {
        all->ranks[i].base.rank_count = rank_count;
        out_transports[i] = &all->ranks[i].base;
    }
    return COH_OK;
}
