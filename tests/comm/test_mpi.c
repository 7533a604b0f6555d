/* Properties of the transport of processes alone: each call of MPI that fails once, messages in
 * pieces, large messages that a stop leaves behind, and an MPI that cannot be used. Runs under
 * mpirun. */
#include "tests/comm/ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "comm/mpi_stop.h"
#include "comm/mpi_transport.h"
#include "tests/faults/mpi_faults.h"

static ranks_end ends[RANKS_MOST];
static int is_unprotected; /* the system did not forbid memory */

/* One line, in which each rank sends a window to the next rank. */
typedef struct ring {
    size_t bytes;
    unsigned char *sent, *received;
    int step_count;
} ring;

static unsigned char byte_of(int32_t rank, int step, size_t i)
{
    return (unsigned char)((size_t)rank * 31 + (size_t)step * 7 + i * 13 + i / 251);
}

static coh_status bind_ring(coh_transport *transport, const ring *all)
{
    const int32_t count = transport->rank_count;
    coh_link_plan plan = { 0 };
    uint32_t line;
    coh_status status = coh_link_plan_begin(&plan, &line);
    if (status == COH_OK)
        status = coh_link_plan_send(&plan, (transport->rank + 1) % count, all->sent, all->bytes);
    if (status == COH_OK)
        status = coh_link_plan_receive(&plan, (transport->rank + count - 1) % count, all->received,
                                       all->bytes);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    return status;
}

static coh_status start_step(coh_transport *transport, const ring *all, int step)
{
    for (size_t i = 0; i < all->bytes; i++)
        all->sent[i] = byte_of(transport->rank, step, i);
    return coh_transport_start(transport, 0);
}

static coh_status run_step(coh_transport *transport, const ring *all, int step)
{
    const int32_t from = (transport->rank + transport->rank_count - 1) % transport->rank_count;
    COH_TRY(start_step(transport, all, step));
    COH_TRY(coh_transport_wait(transport, 0));
    for (size_t i = 0; i < all->bytes; i++)
        if (all->received[i] != byte_of(from, step, i))
            return coh_transport_stop(transport, COH_ERR_INTERNAL, "received other bytes");
    return COH_OK;
}

static coh_status run_steps(coh_transport *transport, const ring *all)
{
    coh_status status = bind_ring(transport, all);
    for (int step = 0; step < all->step_count && status == COH_OK; step++)
        status = run_step(transport, all, step);
    return status;
}

static coh_status finish(coh_transport *transport, coh_status status)
{
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_transport_close(transport);
    return status;
}

static ring make_ring(size_t bytes, int step_count)
{
    ring made = { bytes, calloc(1, bytes), calloc(1, bytes), step_count };
    assert_non_null(made.sent);
    assert_non_null(made.received);
    return made;
}

static void free_ring(ring *all)
{
    free(all->sent);
    free(all->received);
}

/* ---- pieces ---- */

static coh_status turn_ring(coh_transport *transport, void *argument)
{
    return finish(transport, run_steps(transport, argument));
}

static void a_message_longer_than_mpi_can_count_arrives_whole(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        int32_t piece_bytes;
    } cases[] = { { 1000, 1 },    { 1000, 999 }, { 1000, 1000 },
                  { 1000, 1001 }, { 1000, 7 },   { 300000, 65536 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ring all = make_ring(cases[i].bytes, 3);
        mpi_faults_cut(cases[i].piece_bytes);
        ranks_run(ranks_pick(2), turn_ring, &all, ends);
        ranks_expect(ranks_pick(2), ends, COH_OK, "");
        free_ring(&all);
    }
    mpi_faults_cut(0);
}

/* ---- failures of MPI ---- */

typedef struct failing {
    ring all;
    int32_t rank;
    mpi_fault call;
    int64_t n;
} failing;

static coh_status fail_once(coh_transport *transport, void *argument)
{
    const failing *one = argument;
    if (transport->rank == one->rank)
        mpi_fail_nth(one->call, one->n);
    const coh_status status = run_steps(transport, &one->all);
    mpi_fail_nth(one->call, -1); /* a failure in the last meeting need not reach all */
    return finish(transport, status);
}

/* Calls of a kind are made to fail one after the other, until a run has fewer of them. How often a
 * rank tests depends on the others, so the first tests stand for all. */
static void each_call_of_mpi_that_fails_gives_all_ranks_one_sentence(void **state)
{
    (void)state;
    static const int64_t mosts[MPI_FAULTS] = { [MPI_FAULT_POST] = INT64_MAX,
                                               [MPI_FAULT_PREPARE] = INT64_MAX,
                                               [MPI_FAULT_START] = INT64_MAX,
                                               [MPI_FAULT_TEST] = 6 };
    const int32_t count = ranks_pick(2);
    failing one = { .all = make_ring(100000, 2) };
    for (one.rank = 0; one.rank < count; one.rank += count - 1)
        for (one.call = MPI_FAULT_POST; one.call < MPI_FAULTS; one.call++)
            for (one.n = 0; one.n < mosts[one.call]; one.n++) {
                char part[64];
                (void)snprintf(part, sizeof(part), "rank %d: MPI cannot ", one.rank);
                ranks_run(count, fail_once, &one, ends);
                if (!ranks_any(ranks_are_here(one.rank) && mpi_fault_was_hit())) {
                    ranks_expect(count, ends, COH_OK, "");
                    assert_true(one.n >= 2);
                    break;
                }
                ranks_expect(count, ends, COH_ERR_DEVICE, part);
                ranks_expect(count, ends, COH_ERR_DEVICE, "(injected)");
            }
    free_ring(&one.all);
}

/* ---- ranks that leave ---- */

/* The last rank reaches the barrier slowly, one message after the other: rank 0 has all of them,
 * and leaves, long before the others have. */
static coh_status meet_slowly(coh_transport *transport, void *argument)
{
    (void)argument;
    mpi_delay_posts(transport->rank == transport->rank_count - 1 ? 30 : 0);
    const coh_status status = coh_transport_gather(transport, NULL, 0, NULL);
    mpi_delay_posts(0);
    coh_transport_close(transport);
    return status;
}

static void a_rank_that_leaves_after_a_meeting_does_not_end_it(void **state)
{
    (void)state;
    ranks_run(ranks_pick(2), meet_slowly, NULL, ends);
    ranks_expect(ranks_pick(2), ends, COH_OK, "");
}

/* ---- large messages ---- */

/* Each rank stops somewhere: some when a neighbour has started its line and they have not, in every
 * other run when all have. */
static coh_status stop_somewhere(coh_transport *transport, void *argument)
{
    const ring *all = argument;
    const int step_count =
        all->step_count % 2 == 0
            ? 0
            : (int)coh_rng_below(11, (uint64_t)all->step_count, (uint64_t)transport->rank, 4);
    coh_status status = bind_ring(transport, all);
    for (int step = 0; step < step_count && status == COH_OK; step++)
        status = run_step(transport, all, step);
    if (status == COH_OK && (all->step_count % 2 == 0 || transport->rank % 2 == 0))
        status = start_step(transport, all, step_count);
    if (status == COH_OK)
        status = coh_transport_stop(transport, COH_ERR_STOPPED, "enough");
    coh_transport_close(transport); /* from here on nobody may touch the memory */
    memset(all->sent, 0x3c, all->bytes);
    memset(all->received, 0x3c, all->bytes);
    return status;
}

static int is_touched(const ring *all)
{
    for (size_t i = 0; i < all->bytes; i++)
        if (all->sent[i] != 0x3c || all->received[i] != 0x3c)
            return 1;
    return 0;
}

/* Messages this large wait at their sender until they are received. */
static void a_stop_leaves_no_large_message_behind(void **state)
{
    (void)state;
    enum { TIMES = 12, BYTES = 3 << 20 };
    ring all[TIMES];
    const int32_t count = ranks_pick(2);
    for (int i = 0; i < TIMES; i++) {
        all[i] = make_ring(BYTES, i);
        ranks_run(count, stop_somewhere, &all[i], ends);
        ranks_expect(count, ends, COH_ERR_STOPPED, ": enough");
    }
    for (int i = 0; i < TIMES; i++) { /* whatever later worlds have moved */
        assert_false(ranks_any(is_touched(&all[i])));
        free_ring(&all[i]);
    }
}

/* ---- memory that goes between unbind and close ---- */

/* A line of one message from rank 0 to rank 1, in memory of its own pages. */
typedef struct window {
    size_t bytes;
    void *memory;
} window;

static coh_status bind_window(coh_transport *transport, const window *of)
{
    coh_link_plan plan = { 0 };
    uint32_t line;
    coh_status status = coh_link_plan_begin(&plan, &line);
    if (status == COH_OK && transport->rank == 0)
        status = coh_link_plan_send(&plan, 1, of->memory, of->bytes);
    if (status == COH_OK && transport->rank == 1)
        status = coh_link_plan_receive(&plan, 0, of->memory, of->bytes);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    return status;
}

/* The world stops when the message has begun, and each rank forbids its memory as soon as unbind
 * allows it. */
static coh_status forbid_after_unbind(coh_transport *transport, void *argument)
{
    const window *of = argument;
    coh_status status = bind_window(transport, of);
    if (status == COH_OK)
        status = coh_transport_start(transport, 0);
    if (status == COH_OK && transport->rank == 1)
        status = coh_transport_stop(transport, COH_ERR_STOPPED, "enough");
    while (status == COH_OK)
        status = coh_transport_look(transport);
    const int is_ours = coh_transport_unbind(transport);
    if (is_ours && mprotect(of->memory, of->bytes, PROT_NONE) != 0)
        is_unprotected = 1;
    coh_transport_close(transport);
    return is_ours ? status : COH_ERR_INTERNAL;
}

static void memory_that_unbind_gave_back_is_not_touched(void **state)
{
    (void)state;
    enum { TIMES = 4 };
    const int32_t count = ranks_pick(2);
    window of = { .bytes = (size_t)64 << 20 };
    for (int i = 0; i < TIMES; i++) {
        of.memory =
            mmap(NULL, of.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(of.memory, MAP_FAILED);
        memset(of.memory, 0x3c, of.bytes);
        ranks_run(count, forbid_after_unbind, &of, ends);
        ranks_expect(count, ends, COH_ERR_STOPPED, "rank 1: enough");
        assert_false(ranks_any(is_unprotected));
        munmap(of.memory, of.bytes);
    }
}

/* ---- an MPI that cannot be used ---- */

static coh_mpi_beginning found;

static int begin(coh_mpi_beginning *out_beginning)
{
    *out_beginning = found;
    return 0;
}

static int fail_to_begin(coh_mpi_beginning *out_beginning)
{
    (void)out_beginning;
    return 5;
}

static void describe(int code, char *out_text, int text_bytes)
{
    (void)snprintf(out_text, (size_t)text_bytes, "error %d", code);
}

static void an_mpi_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    coh_mpi_calls calls = { .begin = begin, .describe = describe };
    coh_mpi mpi;
    found = COH_MPI_LACKS_THREADS;
    assert_int_equal(coh_mpi_start(&calls, &mpi), COH_ERR_DEVICE);
    assert_non_null(strstr(coh_last_error(), "MPI_THREAD_MULTIPLE"));
    found = COH_MPI_WAS_ENDED;
    assert_int_equal(coh_mpi_start(&calls, &mpi), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "cannot start again"));
    found = COH_MPI_WAS_RUNNING;
    assert_int_equal(coh_mpi_start(&calls, &mpi), COH_OK);
    coh_mpi_end(&mpi); /* the program's own: not ended here */
    calls.begin = fail_to_begin;
    assert_int_equal(coh_mpi_start(&calls, &mpi), COH_ERR_DEVICE);
    assert_string_equal(coh_last_error(), "MPI cannot start (error 5)");
}

/* ---- an MPI that fails while ranks leave ---- */

static _Atomic int sent_to[3];

/* Sends are done at once, but the one to rank 2 fails; nothing is received. */
static int post_but_to_last(const coh_mpi_message *message, void *out_request)
{
    *(unsigned char *)out_request = message->from != NULL;
    if (message->from == NULL)
        return 0;
    atomic_fetch_add(&sent_to[message->peer], 1);
    return message->peer == 2 ? 5 : 0;
}

static int test_sends(int32_t count, void *requests, int *out_are_done)
{
    (void)count;
    *out_are_done = *(unsigned char *)requests;
    return 0;
}

static void a_rank_tells_once_that_it_leaves(void **state)
{
    (void)state;
    static coh_mpi_stop stop;
    const coh_mpi_calls calls = { .post = post_but_to_last,
                                  .test_all = test_sends,
                                  .describe = describe };
    const coh_mpi_facts facts = { .rank = 0, .rank_count = 3 };
    assert_int_equal(coh_mpi_stop_open(&stop, &calls, (coh_mpi_communicator){ 0 }, &facts), COH_OK);
    for (int i = 0; i < 2; i++) {
        assert_false(coh_mpi_leave(&stop, 1));
        assert_int_equal(atomic_load(&sent_to[1]), 1); /* it counts the ranks that leave */
    }
    coh_mpi_stop_close(&stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_longer_than_mpi_can_count_arrives_whole),
        cmocka_unit_test(each_call_of_mpi_that_fails_gives_all_ranks_one_sentence),
        cmocka_unit_test(a_rank_that_leaves_after_a_meeting_does_not_end_it),
        cmocka_unit_test(a_stop_leaves_no_large_message_behind),
        cmocka_unit_test(memory_that_unbind_gave_back_is_not_touched),
        cmocka_unit_test(an_mpi_that_cannot_be_used_is_refused),
        cmocka_unit_test(a_rank_tells_once_that_it_leaves),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
