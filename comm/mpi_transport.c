/* Ranks that are processes: lines of persistent requests, and meetings. Read mpi_transport.h
 * first. */
#include "comm/mpi_transport.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/nap.h"
#include "comm/mpi_stop.h"

enum { TAG_MEETING = COH_MPI_TAG_CONTROL + 1, TAG_LINES };

/* The shortest pause of a wait (base/nap.h). Waking up costs 15 us of a core (docs/ranks.md). */
enum { NAP_LEAST_NS = 20000 };

/* Messages of a meeting that one rank sends to another at a time. */
enum { STAGE_BYTES = 1 << 15 };

/* Of a wait for a line: any rank that has left ends it, as lines come before the last meeting. */
#define NO_MEETING UINT32_MAX

/* Its requests: one for each piece of a message, receives first. */
typedef struct line {
    size_t first;
    int32_t receive_count, count;
    int is_active; /* started, and not yet seen to be done */
} line;

/* This rank's end of the world. */
typedef struct endpoint {
    coh_transport base;
    coh_mpi *mpi;
    const coh_mpi_calls *calls;
    coh_mpi_communicator communicator;
    int32_t tag_most;
    coh_mpi_stop stop;
    line *lines;
    size_t line_count;
    unsigned char *requests; /* [request_count] times calls->request_bytes, line after line */
    size_t request_count;
    uint32_t meeting_count; /* those that are completed */
    /* A meeting's messages pass through here, so that one that fails leaves no message that
     * touches the caller's memory. At most a receive, then a send. */
    unsigned char received[STAGE_BYTES], sent[STAGE_BYTES];
    _Alignas(COH_MPI_REQUEST_BYTES_MOST) unsigned char posted[2 * COH_MPI_REQUEST_BYTES_MOST];
    int32_t posted_receive_count, posted_count;
    int have_receives_ended, have_all_left; /* see leave */
} endpoint;

static coh_status failed(const coh_mpi_calls *calls, const char *what, int code)
{
    char text[COH_ERROR_TEXT_BYTES / 2];
    calls->describe(code, text, sizeof(text));
    return coh_fail(COH_ERR_DEVICE, "MPI cannot %s (%s)", what, text);
}

static unsigned char *request_at(const endpoint *self, unsigned char *requests, size_t number)
{
    return requests + number * self->calls->request_bytes;
}

/* Looks once whether requests are done; fails if they never will be. */
static coh_status look(endpoint *self, int32_t count, unsigned char *requests, uint32_t meeting,
                       int *out_are_done)
{
    const int is_over = coh_mpi_is_over(&self->stop, meeting);
    const int code = self->calls->test_all(count, requests, out_are_done);
    if (code != 0)
        return failed(self->calls, "test messages", code);
    return !*out_are_done && is_over ? coh_mpi_over(&self->stop) : COH_OK;
}

static coh_status wait_for(endpoint *self, int32_t count, unsigned char *requests, uint32_t meeting)
{
    const uint64_t begin_ns = coh_clock_ns();
    for (;;) {
        int are_done = 0;
        COH_TRY(look(self, count, requests, meeting, &are_done));
        if (are_done)
            return COH_OK;
        coh_nap(begin_ns, NAP_LEAST_NS);
    }
}

/* ---- meetings ---- */

/* Bytes to one rank and bytes from one, at the same time; 0 bytes: none. */
typedef struct passage {
    int32_t to, from;
    const void *sent;
    void *received;
    size_t sent_bytes, received_bytes;
} passage;

static coh_status post(endpoint *self, coh_mpi_message message)
{
    message.communicator = self->communicator;
    message.tag = TAG_MEETING;
    if (message.bytes == 0)
        return COH_OK;
    const int code =
        self->calls->post(&message, request_at(self, self->posted, (size_t)self->posted_count));
    if (code != 0)
        return failed(self->calls, "start a message of a meeting", code);
    self->posted_count++;
    self->posted_receive_count += message.to != NULL;
    return COH_OK;
}

static size_t piece_bytes(size_t all_bytes, size_t at, size_t most)
{
    const size_t left = at < all_bytes ? all_bytes - at : 0;
    return left < most ? left : most;
}

static coh_status pass(endpoint *self, const passage *all)
{
    for (size_t at = 0; at < all->sent_bytes || at < all->received_bytes; at += STAGE_BYTES) {
        const size_t sent = piece_bytes(all->sent_bytes, at, STAGE_BYTES);
        const size_t received = piece_bytes(all->received_bytes, at, STAGE_BYTES);
        if (sent > 0)
            memcpy(self->sent, (const unsigned char *)all->sent + at, sent);
        COH_TRY(post(self, (coh_mpi_message){ .to = self->received,
                                              .bytes = (int32_t)received,
                                              .peer = all->from }));
        COH_TRY(post(self, (coh_mpi_message){
                               .from = self->sent, .bytes = (int32_t)sent, .peer = all->to }));
        COH_TRY(wait_for(self, self->posted_count, self->posted, self->meeting_count + 1));
        self->posted_count = self->posted_receive_count = 0;
        if (received > 0)
            memcpy((unsigned char *)all->received + at, self->received, received);
    }
    return COH_OK;
}

/* In step s of an exchange each rank sends to the s-th rank after it. */
static passage step_of(const endpoint *self, int32_t step)
{
    const int32_t count = self->base.rank_count;
    return (passage){ .to = (self->base.rank + step) % count,
                      .from = (self->base.rank + count - step) % count };
}

/* Compares this rank's call with those of all others: when it returns, all have made it. */
static coh_status meet(endpoint *self, coh_meeting_kind kind, size_t bytes)
{
    const coh_meeting own = { kind, bytes };
    if (coh_mpi_is_stopped(&self->stop))
        return coh_mpi_stopped(&self->stop);
    for (int32_t step = 1; step < self->base.rank_count; step++) {
        passage one = step_of(self, step);
        coh_meeting other;
        one.sent = &own;
        one.received = &other;
        one.sent_bytes = one.received_bytes = sizeof(own);
        COH_TRY(pass(self, &one));
        COH_TRY(coh_meeting_compare(&own, &other, one.from));
    }
    return COH_OK;
}

static coh_status mpi_gather(coh_transport *transport, const void *record, size_t bytes,
                             void *out_records)
{
    endpoint *self = (endpoint *)transport;
    unsigned char *out = out_records;
    COH_TRY(meet(self, COH_MEETING_GATHER, bytes));
    for (int32_t step = 1; step < transport->rank_count && bytes > 0; step++) {
        passage one = step_of(self, step);
        one.sent = record;
        one.received = out + (size_t)one.from * bytes;
        one.sent_bytes = one.received_bytes = bytes;
        COH_TRY(pass(self, &one));
    }
    if (bytes > 0)
        memmove(out + (size_t)transport->rank * bytes, record, bytes);
    self->meeting_count++;
    return COH_OK;
}

/* A tree: rank r gets the bytes from r without its lowest bit, then passes them to r plus each
 * lower bit. */
static coh_status mpi_share(coh_transport *transport, void *bytes, size_t count)
{
    endpoint *self = (endpoint *)transport;
    const int32_t rank = transport->rank, rank_count = transport->rank_count;
    int32_t bit = 1;
    COH_TRY(meet(self, COH_MEETING_SHARE, count));
    while (bit < rank_count && (rank & bit) == 0)
        bit *= 2;
    if (rank != 0)
        COH_TRY(pass(self,
                     &(passage){ .from = rank - bit, .received = bytes, .received_bytes = count }));
    for (bit /= 2; bit > 0; bit /= 2)
        if (rank + bit < rank_count)
            COH_TRY(pass(self, &(passage){ .to = rank + bit, .sent = bytes, .sent_bytes = count }));
    self->meeting_count++;
    return COH_OK;
}

/* ---- bind: the two sides of every message ---- */

/* The links of each peer, in the order of the plan. */
typedef struct by_peer {
    size_t *firsts; /* [rank_count]: 1 + a peer's first link; 0: none */
    size_t *nexts;  /* [link_count]: 1 + the next link of the same peer */
    size_t *lines;  /* [link_count] */
    coh_link_side *own, *other;
    size_t own_capacity, other_capacity;
} by_peer;

static void by_peer_fini(by_peer *links)
{
    coh_free(links->firsts);
    coh_free(links->nexts);
    coh_free(links->lines);
    coh_free(links->own);
    coh_free(links->other);
}

static coh_status by_peer_make(const coh_link_plan *plan, int32_t rank_count, by_peer *out)
{
    COH_TRY(COH_ALLOC(rank_count, &out->firsts));
    COH_TRY(COH_ALLOC(plan->link_count, &out->nexts));
    COH_TRY(COH_ALLOC(plan->link_count, &out->lines));
    for (size_t number = plan->line_count; number-- > 0;)
        for (size_t i = plan->line_ends[number]; i-- > coh_link_plan_first(plan, number);) {
            size_t *first = &out->firsts[plan->links[i].peer];
            out->lines[i] = number;
            out->nexts[i] = *first;
            *first = i + 1;
        }
    return COH_OK;
}

/* Lists this rank's receives from a peer, or its sends there. */
static coh_status list_sides(const coh_link_plan *plan, by_peer *links, int32_t peer,
                             int are_receives, size_t *out_count)
{
    *out_count = 0;
    for (size_t i = links->firsts[peer]; i > 0; i = links->nexts[i - 1]) {
        if ((plan->links[i - 1].to != NULL) != are_receives)
            continue;
        COH_TRY(COH_GROW(&links->own, &links->own_capacity, *out_count + 1));
        links->own[(*out_count)++] =
            (coh_link_side){ links->lines[i - 1], plan->links[i - 1].bytes };
    }
    return COH_OK;
}

/* Each rank tells its receives to the rank that sends them, which compares. */
static coh_status match_step(endpoint *self, const coh_link_plan *plan, by_peer *links,
                             int32_t step)
{
    passage one = step_of(self, step);
    const int32_t peer = one.from;
    size_t counts[2], other_counts[2]; /* of sends, of receives */
    COH_TRY(list_sides(plan, links, one.to, 0, &counts[0]));
    COH_TRY(list_sides(plan, links, one.to, 1, &counts[1]));
    one.sent = counts;
    one.received = other_counts;
    one.sent_bytes = one.received_bytes = sizeof(counts);
    COH_TRY(pass(self, &one));
    COH_TRY(COH_GROW(&links->other, &links->other_capacity, other_counts[1]));
    one.sent = links->own;
    one.received = links->other;
    one.sent_bytes = counts[1] * sizeof(*links->own);
    one.received_bytes = other_counts[1] * sizeof(*links->other);
    COH_TRY(pass(self, &one));
    COH_TRY(list_sides(plan, links, peer, 0, &counts[0]));
    for (size_t i = 0; i < counts[0]; i++)
        COH_TRY(
            coh_link_match(peer, &links->own[i], i < other_counts[1] ? &links->other[i] : NULL));
    COH_TRY(list_sides(plan, links, peer, 1, &counts[1]));
    return counts[1] > other_counts[0] ? coh_link_refuse_receive(peer, &links->own[other_counts[0]])
                                       : COH_OK;
}

static coh_status match(endpoint *self, const coh_link_plan *plan)
{
    by_peer links = { 0 };
    coh_status status = by_peer_make(plan, self->base.rank_count, &links);
    for (int32_t step = 1; step < self->base.rank_count && status == COH_OK; step++)
        status = match_step(self, plan, &links, step);
    by_peer_fini(&links);
    return status;
}

/* ---- bind: requests ---- */

static size_t piece_count(const endpoint *self, size_t bytes)
{
    const size_t most = (size_t)self->calls->message_bytes_most;
    return bytes / most + (bytes % most > 0);
}

/* Makes the requests of one message, with the next tags of its peer and direction. */
static coh_status prepare(endpoint *self, const coh_link *link, int32_t *next_tag)
{
    const size_t most = (size_t)self->calls->message_bytes_most;
    for (size_t at = 0; at < link->bytes; at += most) {
        const coh_mpi_message message = {
            .communicator = self->communicator,
            .from = link->from != NULL ? (const unsigned char *)link->from + at : NULL,
            .to = link->to != NULL ? (unsigned char *)link->to + at : NULL,
            .bytes = (int32_t)piece_bytes(link->bytes, at, most),
            .peer = link->peer,
            .tag = *next_tag,
        };
        if (*next_tag == self->tag_most)
            return coh_fail(COH_ERR_DEVICE,
                            "more than %" PRId32 " messages to rank %" PRId32
                            " in a plan: this MPI has no more tags",
                            self->tag_most - TAG_LINES, link->peer);
        const int code =
            self->calls->prepare(&message, request_at(self, self->requests, self->request_count));
        if (code != 0)
            return failed(self->calls, "make a persistent request", code);
        self->request_count++;
        ++*next_tag;
    }
    return COH_OK;
}

/* Makes the receives or the sends of a line. */
static coh_status prepare_side(endpoint *self, const coh_link_plan *plan, size_t number,
                               int are_receives, int32_t *next_tags)
{
    for (size_t i = coh_link_plan_first(plan, number); i < plan->line_ends[number]; i++)
        if ((plan->links[i].to != NULL) == are_receives)
            COH_TRY(prepare(self, &plan->links[i], &next_tags[plan->links[i].peer]));
    return COH_OK;
}

static coh_status prepare_lines(endpoint *self, const coh_link_plan *plan, int32_t *send_tags,
                                int32_t *receive_tags)
{
    for (int32_t i = 0; i < self->base.rank_count; i++)
        send_tags[i] = receive_tags[i] = TAG_LINES;
    for (size_t number = 0; number < plan->line_count; number++) {
        line *of = &self->lines[number];
        of->first = self->request_count;
        COH_TRY(prepare_side(self, plan, number, 1, receive_tags));
        of->receive_count = (int32_t)(self->request_count - of->first);
        COH_TRY(prepare_side(self, plan, number, 0, send_tags));
        of->count = (int32_t)(self->request_count - of->first);
        self->line_count++;
    }
    return COH_OK;
}

static coh_status make_lines(endpoint *self, const coh_link_plan *plan)
{
    size_t pieces = 0;
    int32_t *tags;
    for (size_t i = 0; i < plan->link_count; i++)
        pieces += piece_count(self, plan->links[i].bytes);
    COH_TRY(coh_alloc(pieces, self->calls->request_bytes, (void **)&self->requests));
    COH_TRY(COH_ALLOC(2 * (size_t)self->base.rank_count, &tags));
    const coh_status status = prepare_lines(self, plan, tags, tags + self->base.rank_count);
    coh_free(tags);
    return status;
}

static coh_status mpi_bind(coh_transport *transport, const coh_link_plan *plan)
{
    endpoint *self = (endpoint *)transport;
    if (self->lines != NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a transport binds one link plan, and this one has one");
    COH_TRY(coh_link_plan_check(plan, transport->rank, transport->rank_count));
    COH_TRY(COH_ALLOC(plan->line_count, &self->lines));
    COH_TRY(meet(self, COH_MEETING_BIND, 0));
    COH_TRY(match(self, plan));
    COH_TRY(make_lines(self, plan));
    COH_TRY(meet(self, COH_MEETING_BIND, 0)); /* all ranks agree */
    self->meeting_count++;
    return COH_OK;
}

/* ---- lines ---- */

static coh_status find_line(endpoint *self, uint32_t number, line **out_line)
{
    if (number >= self->line_count)
        return coh_fail(COH_ERR_ARGUMENT, "there is no line %" PRIu32 ": %zu lines are bound",
                        number, self->line_count);
    *out_line = &self->lines[number];
    return COH_OK;
}

static coh_status mpi_test(coh_transport *transport, uint32_t number, int *out_is_done)
{
    endpoint *self = (endpoint *)transport;
    line *of;
    COH_TRY(find_line(self, number, &of));
    *out_is_done = !of->is_active;
    if (of->is_active)
        COH_TRY(look(self, of->count, request_at(self, self->requests, of->first), NO_MEETING,
                     out_is_done));
    of->is_active = !*out_is_done;
    return COH_OK;
}

static coh_status mpi_start(coh_transport *transport, uint32_t number)
{
    endpoint *self = (endpoint *)transport;
    line *of;
    int is_done = 0;
    COH_TRY(find_line(self, number, &of));
    if (coh_mpi_is_stopped(&self->stop))
        return coh_mpi_stopped(&self->stop);
    COH_TRY(mpi_test(transport, number, &is_done));
    if (!is_done)
        return coh_fail(COH_ERR_ARGUMENT, "line %" PRIu32 " is started again before it is done",
                        number);
    of->is_active = 1;
    const int code = self->calls->start_all(of->count, request_at(self, self->requests, of->first));
    return code == 0 ? COH_OK : failed(self->calls, "start a line", code);
}

static coh_status mpi_wait(coh_transport *transport, uint32_t number)
{
    endpoint *self = (endpoint *)transport;
    line *of;
    COH_TRY(find_line(self, number, &of));
    if (of->is_active)
        COH_TRY(wait_for(self, of->count, request_at(self, self->requests, of->first), NO_MEETING));
    of->is_active = 0;
    return COH_OK;
}

/* ---- stop and close ---- */

static coh_status mpi_stop(coh_transport *transport, coh_status status, const char *sentence)
{
    return coh_mpi_stop_all(&((endpoint *)transport)->stop, status, transport->rank, sentence);
}

static coh_status mpi_look(coh_transport *transport)
{
    const coh_mpi_stop *stop = &((endpoint *)transport)->stop;
    return coh_mpi_is_stopped(stop) ? coh_mpi_stopped(stop) : COH_OK;
}

/* Ends receives, so that nothing is written to their memory any more: each one gets a message that
 * is already on its way, or none. Returns 0 if one does not end. */
static int end_receives(const endpoint *self, int32_t count, unsigned char *requests)
{
    const uint64_t begin_ns = coh_clock_ns();
    int are_done = 0;
    for (int32_t i = 0; i < count; i++)
        if (self->calls->cancel(request_at(self, requests, (size_t)i)) != 0)
            return 0;
    while (!are_done && coh_clock_ns() - begin_ns < COH_MPI_PATIENCE_NS) {
        if (self->calls->test_all(count, requests, &are_done) != 0)
            return 0;
        if (!are_done)
            coh_nap(begin_ns, NAP_LEAST_NS);
    }
    return are_done;
}

static int end_lines(const endpoint *self)
{
    int are_done = 1;
    for (size_t i = 0; i < self->line_count; i++) {
        line *of = &self->lines[i];
        if (!of->is_active)
            continue;
        const int is_done =
            end_receives(self, of->receive_count, request_at(self, self->requests, of->first));
        of->is_active = !is_done;
        are_done &= is_done;
    }
    return are_done;
}

static int end_all_receives(endpoint *self)
{
    if (!self->have_receives_ended)
        self->have_receives_ended =
            end_receives(self, self->posted_receive_count, (unsigned char *)self->posted) &
            end_lines(self);
    return self->have_receives_ended;
}

/* Leaves the world together with all others; returns 1 if no memory of this rank is touched from
 * now on. If a rank has not come, a second call waits for it once more. */
static int leave(endpoint *self)
{
    if (!self->have_all_left)
        self->have_all_left = coh_mpi_leave(&self->stop, self->meeting_count) &&
                              end_all_receives(self) && coh_mpi_be_gone(&self->stop);
    return self->have_all_left;
}

/* Without a stop all lines are done, and the world goes on. In a stopped one a peer may be in the
 * middle of a message, also of one that this rank sends. */
static int mpi_unbind(coh_transport *transport)
{
    endpoint *self = (endpoint *)transport;
    if (self->line_count == 0)
        return 1;
    return coh_mpi_is_stopped(&self->stop) ? leave(self) : end_lines(self);
}

/* Sends that nobody has received keep their requests within MPI; no rank reads their memory. */
static void free_endpoint(endpoint *self)
{
    for (int32_t i = self->posted_receive_count; i < self->posted_count; i++)
        (void)self->calls->release(request_at(self, self->posted, (size_t)i));
    for (size_t i = 0; i < self->request_count; i++)
        (void)self->calls->release(request_at(self, self->requests, i));
    (void)self->calls->close(self->communicator);
    coh_free(self->requests);
    coh_free(self->lines);
    coh_free(self);
}

static void mpi_close(coh_transport *transport)
{
    endpoint *self = (endpoint *)transport;
    const int have_all_left = leave(self);
    coh_mpi_stop_close(&self->stop);
    if (have_all_left)
        free_endpoint(self);
    else /* MPI may still write to its memory */
        self->mpi->is_abandoned = 1;
}

static const coh_transport_ops mpi_ops = {
    .name = "mpi",
    .bind = mpi_bind,
    .start = mpi_start,
    .test = mpi_test,
    .wait = mpi_wait,
    .gather = mpi_gather,
    .share = mpi_share,
    .stop = mpi_stop,
    .look = mpi_look,
    .unbind = mpi_unbind,
    .close = mpi_close,
};

/* ---- start and open ---- */

coh_status coh_mpi_start(const coh_mpi_calls *calls, coh_mpi *out_mpi)
{
    coh_mpi_beginning beginning;
    const int code = calls->begin(&beginning);
    if (code != 0)
        return failed(calls, "start", code);
    switch (beginning) {
    case COH_MPI_BEGUN:
    case COH_MPI_WAS_RUNNING:
        break;
    case COH_MPI_WAS_ENDED:
        return coh_fail(COH_ERR_ARGUMENT,
                        "MPI has ended in this process and cannot start again: open one world of "
                        "processes, and keep it until the end");
    case COH_MPI_LACKS_THREADS:
        return coh_fail(COH_ERR_DEVICE,
                        "this MPI has no MPI_THREAD_MULTIPLE: use an MPI built with threads, and "
                        "ask MPI_Init_thread for it if the program itself starts MPI");
    }
    *out_mpi = (coh_mpi){ .calls = calls, .is_ours = beginning == COH_MPI_BEGUN };
    return COH_OK;
}

void coh_mpi_end(coh_mpi *mpi)
{
    if (mpi->is_ours && !mpi->is_abandoned)
        (void)mpi->calls->end();
}

static coh_status open_endpoint(endpoint *self)
{
    coh_mpi_facts facts;
    const int code = self->calls->open(&self->communicator, &facts);
    if (code != 0)
        return failed(self->calls, "connect the ranks", code);
    self->base.rank = facts.rank;
    self->base.rank_count = facts.rank_count;
    self->tag_most = facts.tag_most;
    return coh_mpi_stop_open(&self->stop, self->calls, self->communicator, &facts);
}

coh_status coh_mpi_open(coh_mpi *mpi, coh_transport **out_transport)
{
    endpoint *self;
    coh_status status = COH_ALLOC(1, &self);
    *out_transport = NULL;
    if (status == COH_OK) {
        self->base.ops = &mpi_ops;
        self->mpi = mpi;
        self->calls = mpi->calls;
        status = open_endpoint(self);
    }
    if (status == COH_OK)
        *out_transport = &self->base;
    else {
        coh_free(self);
        mpi->is_abandoned = 1;
    }
    return status;
}
