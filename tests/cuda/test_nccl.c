/* The transport over NCCL, on the stub driver's GPUs: what bind refuses, both lanes at once, each
 * call of NCCL and of the driver's events failing at its n-th use, and a world that stops while
 * kernels wait. test_nccl_exchange has the bits of GATHER and REDUCE, test_nccl_collectives those
 * of collectives. */
#include "tests/comm/ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/rng.h"
#include "comm/exchange.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "tests/cuda/fake_nccl.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { LINES = 6, BYTES = 4096, ROUNDS = 3, PART = 96 };

/* Lines that alternate between the lanes; in each, all ranks send to all. Then two collectives. */
typedef struct traffic {
    int32_t differing_rank;           /* whose last message is longer; -1: none */
    int32_t silent_rank, silent_line; /* which does not start that line, and stops the world; -1 */
    /* The driver's call that fails at its n-th use after all ranks have opened; n 0: none. */
    coh_stub_call call;
    uint64_t fails_at;
    atomic_int is_wrong; /* some byte was, on any rank */
} traffic;

typedef struct buffers {
    float window[RANKS_MOST * PART]; /* of which the REDUCE leaves the rank's part of the sum */
    uint32_t collectives[2];
    unsigned char sent[LINES][RANKS_MOST][BYTES + 1], received[LINES][RANKS_MOST][BYTES + 1];
} buffers;

static unsigned char byte_of(int round, int32_t from, int32_t to, int line, int i)
{
    return (unsigned char)coh_rng_u64((uint64_t)round * 100 + (uint64_t)from * 10 + (uint64_t)to,
                                      (uint64_t)line, (uint64_t)i);
}

static size_t bytes_of(int line)
{
    return (size_t)(line % 2 == 0 ? BYTES : 1 + line);
}

static coh_status list_lines(const traffic *t, const coh_transport *transport, coh_link_plan *plan,
                             buffers *room)
{
    for (uint32_t line = 0; line < LINES; line++) {
        uint32_t number;
        plan->lane = (uint8_t)(line % COH_LINK_LANES);
        COH_TRY(coh_link_plan_begin(plan, &number));
        for (int32_t peer = 0; peer < transport->rank_count; peer++) {
            const int is_longer = t->differing_rank == transport->rank && line == LINES - 1;
            if (peer == transport->rank)
                continue;
            COH_TRY(coh_link_plan_send(plan, peer, room->sent[line][peer],
                                       bytes_of((int)line) + (size_t)is_longer));
            COH_TRY(
                coh_link_plan_receive(plan, peer, room->received[line][peer], bytes_of((int)line)));
        }
    }
    return COH_OK;
}

/* Lists a REDUCE and a GATHER of one window on lane 1. */
static coh_status list_collectives(const coh_transport *transport, coh_link_plan *plan,
                                   buffers *room)
{
    const coh_axis all = { "data", transport->rank_count };
    const coh_levels levels = { { 1, 1, transport->rank_count, transport->rank_count } };
    const int32_t at = transport->rank * PART;
    coh_mesh mesh;
    int is_added[2] = { 0, 0 };
    COH_TRY(coh_mesh_init(&mesh, &all, 1, &levels));
    const coh_exchange exchange = { &mesh, 1, transport->rank, PART * sizeof(float),
                                    PART * sizeof(float) * (size_t)transport->rank_count };
    plan->lane = 1;
    COH_TRY(coh_exchange_reduce_collective(plan, &exchange, room->window, room->window + at,
                                           &room->collectives[0], &is_added[0]));
    COH_TRY(coh_exchange_gather_collective(plan, &exchange, room->window, &room->collectives[1],
                                           &is_added[1]));
    if (is_added[0] != (transport->rank_count > 1) || is_added[1] != is_added[0])
        return coh_fail(COH_ERR_INTERNAL, "a collective is left out");
    return COH_OK;
}

/* Sums small integers, so every order has one result. */
static coh_status run_collectives(traffic *t, coh_transport *transport, buffers *room, int round)
{
    const int32_t count = transport->rank_count;
    for (int32_t i = 0; i < count * PART; i++)
        room->window[i] = (float)((transport->rank + 1) * (i + round));
    for (int i = 0; i < 2; i++) {
        COH_TRY(coh_transport_start(transport, room->collectives[i]));
        COH_TRY(coh_transport_wait(transport, room->collectives[i]));
    }
    for (int32_t i = 0; i < count * PART; i++)
        if (room->window[i] != (float)(count * (count + 1) / 2 * (i + round)))
            t->is_wrong = 1;
    return COH_OK;
}

static void fill(const coh_transport *transport, buffers *room, int round)
{
    for (int line = 0; line < LINES; line++)
        for (int32_t peer = 0; peer < transport->rank_count; peer++)
            for (int i = 0; i < (int)bytes_of(line); i++)
                room->sent[line][peer][i] = byte_of(round, transport->rank, peer, line, i);
}

static int is_right(const coh_transport *transport, const buffers *room, int round)
{
    for (int line = 0; line < LINES; line++)
        for (int32_t peer = 0; peer < transport->rank_count; peer++)
            for (int i = 0; peer != transport->rank && i < (int)bytes_of(line); i++)
                if (room->received[line][peer][i] != byte_of(round, peer, transport->rank, line, i))
                    return 0;
    return 1;
}

/* Starts two lines of each lane before it waits for the first. */
static coh_status run_round(traffic *t, coh_transport *transport, buffers *room, int round)
{
    fill(transport, room, round);
    for (uint32_t line = 0; line < LINES; line += 2) {
        for (uint32_t i = line; i < line + 2; i++) {
            if (t->silent_rank == transport->rank && t->silent_line == (int32_t)i)
                return coh_transport_stop(transport, COH_ERR_IO, "made to give up");
            COH_TRY(coh_transport_start(transport, i));
        }
        for (uint32_t i = line; i < line + 2; i++) {
            int is_done = 0;
            COH_TRY(coh_transport_test(transport, i, &is_done));
            COH_TRY(coh_transport_wait(transport, i));
            COH_TRY(coh_transport_test(transport, i, &is_done));
            if (!is_done)
                t->is_wrong = 1;
        }
    }
    if (!is_right(transport, room, round))
        t->is_wrong = 1;
    if (transport->rank_count > 1 && round == 0)
        COH_TRY(run_collectives(t, transport, room, round));
    return coh_transport_gather(transport, NULL, 0, NULL);
}

static coh_status exchange_all(coh_transport *transport, void *argument)
{
    traffic *t = argument;
    buffers *room = calloc(1, sizeof(*room));
    coh_link_plan plan = { 0 };
    if (transport->rank == 0)
        coh_stub_fail_nth(t->call, t->fails_at, CUDA_ERROR_LAUNCH_TIMEOUT);
    coh_status status = list_lines(t, transport, &plan, room);
    if (status == COH_OK)
        status = list_collectives(transport, &plan, room);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    for (int round = 0; round < ROUNDS && status == COH_OK; round++)
        status = run_round(t, transport, room, round);
    coh_transport_close(transport);
    coh_link_plan_fini(&plan);
    free(room);
    return status;
}

static const traffic plain = { .differing_rank = -1, .silent_rank = -1, .silent_line = -1 };

static void lines_of_both_lanes_bring_every_byte(void **state)
{
    (void)state;
    for (int32_t count = 1; count <= RANKS_MOST; count++) {
        ranks_end ends[RANKS_MOST];
        traffic t = plain;
        fake_nccl_reset();
        ranks_run(count, exchange_all, &t, ends);
        ranks_expect(count, ends, COH_OK, "");
        assert_int_equal(t.is_wrong, 0);
        assert_int_equal(fake_nccl_live_count(), 0);
    }
}

static void plans_that_differ_are_refused_before_any_message(void **state)
{
    (void)state;
    ranks_end ends[RANKS_MOST];
    traffic t = plain;
    t.differing_rank = 2;
    fake_nccl_reset();
    ranks_run(3, exchange_all, &t, ends);
    ranks_expect(3, ends, COH_ERR_ARGUMENT, "does not list the same messages");
}

static void a_rank_that_gives_up_ends_the_kernels_of_the_others(void **state)
{
    (void)state;
    for (int32_t line = 0; line < LINES; line++) {
        ranks_end ends[RANKS_MOST];
        traffic t = plain;
        t.silent_rank = 1;
        t.silent_line = line;
        fake_nccl_reset();
        ranks_run(3, exchange_all, &t, ends);
        ranks_expect(3, ends, COH_ERR_IO, "rank 1: made to give up");
        assert_int_equal(fake_nccl_live_count(), 0);
    }
}

/* A failed finalize is no failure of the world: the communicator is aborted. */
static void each_call_of_nccl_that_fails_ends_all_ranks_with_one_sentence(void **state)
{
    (void)state;
    for (int call = 0; call < FAKE_NCCL_CALL_COUNT; call++)
        for (uint64_t n = 1;; n += n < 4 || !test_is_brief() ? 1 : 7) {
            ranks_end ends[RANKS_MOST];
            traffic t = plain;
            fake_nccl_reset();
            fake_nccl_fail_nth((fake_nccl_call)call, n);
            ranks_run(3, exchange_all, &t, ends);
            const int was_hit = fake_nccl_fault_was_hit();
            fake_nccl_fail_nth((fake_nccl_call)call, 0);
            assert_int_equal(fake_nccl_live_count(), 0);
            assert_int_equal(t.is_wrong, 0); /* no line is done without its bytes */
            assert_true(n > 1 || was_hit);
            const int ends_well = ends[0].status == COH_OK;
            if (ends_well) /* not hit, or hit while communicators were ended */
                ranks_expect(3, ends, COH_OK, "");
            else
                ranks_expect(3, ends, COH_ERR_DEVICE, "made to fail");
            if (ends_well && (!was_hit || call == FAKE_NCCL_ASYNC_ERROR))
                break;
        }
}

static void each_call_of_the_driver_that_fails_ends_all_ranks(void **state)
{
    (void)state;
    static const coh_stub_call calls[] = { COH_STUB_cuEventQuery, COH_STUB_cuEventRecord,
                                           COH_STUB_cuDeviceGetPCIBusId };
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
        for (uint64_t n = 1; n < 12; n++) {
            ranks_end ends[RANKS_MOST];
            traffic t = plain;
            t.call = calls[c];
            t.fails_at = n;
            fake_nccl_reset();
            ranks_run(3, exchange_all, &t, ends);
            const int was_hit = coh_stub_fault_was_hit();
            coh_stub_fail_nth(calls[c], 0, CUDA_SUCCESS);
            ranks_expect(3, ends, was_hit ? COH_ERR_DEVICE : COH_OK,
                         was_hit ? coh_stub_call_name(calls[c]) : "");
        }
}

static void two_ranks_on_one_gpu_are_refused(void **state)
{
    (void)state;
    ranks_end ends[RANKS_MOST];
    traffic t = plain;
    fake_nccl_reset();
    coh_stub_share_gpus(1);
    ranks_run(3, exchange_all, &t, ends);
    coh_stub_share_gpus(0);
    ranks_expect(3, ends, COH_ERR_ARGUMENT, "ranks 0 and 1 both compute on GPU 0000:01:00.0");
}

/* Rank 0 sends a few bytes, which are gone at once, and ends; only then rank 1 receives them. */
static coh_status send_and_end(coh_transport *transport, void *argument)
{
    _Atomic int *has_begun_to_end = argument;
    const unsigned char sent[4] = { 1, 2, 3, 4 };
    unsigned char received[4] = { 0 };
    coh_link_plan plan = { 0 };
    const int32_t rank = transport->rank;
    uint32_t line;
    coh_status status = coh_link_plan_begin(&plan, &line);
    if (status == COH_OK)
        status = rank == 0 ? coh_link_plan_send(&plan, 1, sent, sizeof(sent))
                           : coh_link_plan_receive(&plan, 0, received, sizeof(sent));
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    while (rank == 1 && !atomic_load(has_begun_to_end))
        sched_yield();
    if (status == COH_OK)
        status = coh_transport_start(transport, line);
    if (status == COH_OK)
        status = coh_transport_wait(transport, line);
    atomic_store(has_begun_to_end, 1);
    coh_transport_close(transport);
    coh_link_plan_fini(&plan);
    if (status == COH_OK && rank == 1 && memcmp(sent, received, sizeof(sent)) != 0)
        status = coh_fail(COH_ERR_CORRUPT, "other bytes came");
    return status;
}

static void a_rank_that_ends_first_waits_until_its_messages_are_received(void **state)
{
    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        ranks_end ends[RANKS_MOST];
        _Atomic int has_begun_to_end = 0;
        fake_nccl_reset();
        ranks_run(2, send_and_end, &has_begun_to_end, ends);
        ranks_expect(2, ends, COH_OK, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_both_lanes_bring_every_byte),
        cmocka_unit_test(plans_that_differ_are_refused_before_any_message),
        cmocka_unit_test(a_rank_that_gives_up_ends_the_kernels_of_the_others),
        cmocka_unit_test(each_call_of_nccl_that_fails_ends_all_ranks_with_one_sentence),
        cmocka_unit_test(each_call_of_the_driver_that_fails_ends_all_ranks),
        cmocka_unit_test(two_ranks_on_one_gpu_are_refused),
        cmocka_unit_test(a_rank_that_ends_first_waits_until_its_messages_are_received),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
