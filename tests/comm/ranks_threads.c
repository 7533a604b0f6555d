/* Ranks that are threads of the test. Read ranks.h and rank_end.h first. */
#include "tests/comm/rank_end.h"

#include <pthread.h>

#include "base/thread.h"
#include "comm/threads.h"

int ranks_can(int32_t rank_count)
{
    return rank_count <= RANKS_MOST;
}

int32_t ranks_pick(int32_t wanted)
{
    return wanted;
}

int ranks_are_here(int32_t rank)
{
    (void)rank;
    return 1;
}

int ranks_any(int is_so)
{
    return is_so;
}

typedef struct rank_thread {
    pthread_t thread;
    coh_transport *transport;
    void *kept; /* of rank_end_open */
    ranks_body *body;
    void *argument;
    ranks_end *end;
} rank_thread;

static void *run_one(void *argument)
{
    const rank_thread *one = argument;
    *one->end = ranks_run_one(one->transport, one->body, one->argument);
    return NULL;
}

void ranks_run(int32_t rank_count, ranks_body *body, void *argument, ranks_end *ends)
{
    coh_transport *hosts[RANKS_MOST];
    rank_thread threads[RANKS_MOST];
    assert_int_equal(coh_threads_open(rank_count, hosts), COH_OK);
    for (int32_t i = 0; i < rank_count; i++) {
        threads[i] = (rank_thread){ .body = body, .argument = argument, .end = &ends[i] };
        threads[i].transport = rank_end_open(hosts[i], i, &threads[i].kept);
        transport_faults_put(threads[i].transport);
    }
    for (int32_t i = 0; i < rank_count; i++)
        assert_int_equal(coh_thread_start(&threads[i].thread, run_one, &threads[i]), 0);
    for (int32_t i = 0; i < rank_count; i++)
        assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
    for (int32_t i = 0; i < rank_count; i++)
        rank_end_close(threads[i].kept);
}
