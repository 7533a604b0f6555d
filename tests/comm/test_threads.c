/* Properties of the transport of threads alone: it copies under a lock, which a stop must respect,
 * and it makes its own world. test_transport.c has what every transport does. */
#include "tests/comm/ranks.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "comm/threads.h"
#include "tests/faults/alloc_faults.h"

/* Rank 1 copies two messages, each of which takes longer than to wake a thread. During the first
 * one rank 0, which has started its side, stops the world, closes and frees both. */
static coh_status stop_within_a_copy(coh_transport *transport, void *argument)
{
    enum { MESSAGE_BYTES = 1 << 25, BOTH = 2 };
    const struct timespec moment = { .tv_nsec = 1000000 };
    sem_t *begins = argument;
    unsigned char *memory = calloc(BOTH, MESSAGE_BYTES);
    coh_link_plan plan = { 0 };
    uint32_t line;
    coh_status status = coh_link_plan_begin(&plan, &line);
    for (size_t i = 0; i < BOTH && status == COH_OK; i++) {
        unsigned char *message = memory + i * MESSAGE_BYTES;
        status = transport->rank == 0 ? coh_link_plan_send(&plan, 1, message, MESSAGE_BYTES)
                                      : coh_link_plan_receive(&plan, 0, message, MESSAGE_BYTES);
    }
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_link_plan_fini(&plan);
    if (status == COH_OK && transport->rank == 0)
        status = coh_transport_start(transport, line);
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    if (status == COH_OK && transport->rank == 1) {
        (void)sem_post(begins);
        status = coh_transport_start(transport, line);
        if (status == COH_OK)
            status = coh_transport_gather(transport, NULL, 0, NULL);
    } else if (status == COH_OK) {
        (void)sem_wait(begins);
        (void)nanosleep(&moment, NULL);
        status = coh_transport_stop(transport, COH_ERR_STOPPED, "within a copy");
    }
    coh_transport_close(transport);
    free(memory);
    return status;
}

static void a_stop_within_a_copy_leaves_no_memory_behind(void **state)
{
    (void)state;
    for (int times = 0; times < 4; times++) {
        ranks_end ends[RANKS_MOST];
        sem_t begins;
        assert_int_equal(sem_init(&begins, 0, 0), 0);
        ranks_run(2, stop_within_a_copy, &begins, ends);
        ranks_expect(2, ends, COH_ERR_STOPPED, "rank 0: within a copy");
        (void)sem_destroy(&begins);
    }
}

static void a_world_has_1_to_1024_ranks(void **state)
{
    (void)state;
    static coh_transport *transports[COH_THREADS_RANKS_MOST];
    assert_int_equal(coh_threads_open(0, transports), COH_ERR_ARGUMENT);
    assert_int_equal(coh_threads_open(-1, transports), COH_ERR_ARGUMENT);
    assert_int_equal(coh_threads_open(COH_THREADS_RANKS_MOST + 1, transports), COH_ERR_ARGUMENT);
    assert_int_equal(coh_threads_open(COH_THREADS_RANKS_MOST, transports), COH_OK);
    for (int32_t i = 0; i < COH_THREADS_RANKS_MOST; i++) {
        assert_int_equal(transports[i]->rank, i);
        assert_int_equal(transports[i]->rank_count, COH_THREADS_RANKS_MOST);
        coh_transport_close(transports[i]);
    }
    coh_transport_close(NULL);
    alloc_fail_nth(1);
    assert_int_equal(coh_threads_open(1, transports), COH_ERR_MEMORY);
    alloc_fail_nth(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_within_a_copy_leaves_no_memory_behind),
        cmocka_unit_test(a_world_has_1_to_1024_ranks),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
