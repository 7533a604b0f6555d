/* Ranks that are threads of the test, each with a GPU of the stub driver; their lines go through
 * NCCL's double. Read tests/comm/ranks.h first. */
#include "tests/comm/ranks.h"

#include <pthread.h>

#include "base/thread.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "memory/device_cuda.h"
#include "tests/cuda/fake_nccl.h"
#include "tests/cuda/stub_driver.h"

#define GPU_BYTES ((size_t)1 << 32)

int ranks_set_up(void **state)
{
    (void)state;
    coh_stub_reset(GPU_BYTES);
    coh_stub_set_gpu_count(RANKS_MOST);
    coh_stub_start(1);
    return 0;
}

int ranks_tear_down(void **state)
{
    (void)state;
    coh_stub_stop();
    return coh_stub_live_count() != 0 || fake_nccl_live_count() != 0;
}

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
    coh_transport *host, *transport;
    coh_device *device;
    coh_queue *queues[COH_LINK_LANES];
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

static void open_one(rank_thread *one, int32_t rank)
{
    const coh_device_config config = { .index = rank,
                                       .thread_count = 1,
                                       .driver = &coh_stub_driver };
    assert_int_equal(coh_device_cuda.create(&config, &one->device), COH_OK);
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        assert_int_equal(coh_device_cuda.queue_create(
                             one->device, (coh_lane)(COH_LANE_COMM0 + lane), &one->queues[lane]),
                         COH_OK);
    const coh_nccl_options options = { .host = one->host,
                                       .calls = &fake_nccl,
                                       .queues = { one->queues[0], one->queues[1] } };
    assert_int_equal(coh_nccl_open(&options, &one->transport), COH_OK);
    transport_faults_put(one->transport);
}

static void close_one(const rank_thread *one)
{
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        coh_device_cuda.queue_destroy(one->queues[lane]);
    coh_device_cuda.destroy(one->device);
    coh_transport_close(one->host);
}

void ranks_run(int32_t rank_count, ranks_body *body, void *argument, ranks_end *ends)
{
    coh_transport *hosts[RANKS_MOST];
    rank_thread threads[RANKS_MOST];
    assert_int_equal(coh_threads_open(rank_count, hosts), COH_OK);
    for (int32_t i = 0; i < rank_count; i++) {
        threads[i] =
            (rank_thread){ .host = hosts[i], .body = body, .argument = argument, .end = &ends[i] };
        open_one(&threads[i], i);
    }
    for (int32_t i = 0; i < rank_count; i++)
        assert_int_equal(coh_thread_start(&threads[i].thread, run_one, &threads[i]), 0);
    for (int32_t i = 0; i < rank_count; i++)
        assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
    for (int32_t i = 0; i < rank_count; i++)
        close_one(&threads[i]);
}
