/* Ranks that are threads of the test, each with a GPU of the stub driver; their lines go through
 * NCCL's double. Read tests/comm/rank_end.h first. */
#include "tests/comm/rank_end.h"

#include <stdlib.h>

#include "comm/nccl.h"
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

typedef struct rank_gpu {
    coh_transport *host;
    coh_device *device;
    coh_queue *queues[COH_LINK_LANES];
} rank_gpu;

coh_transport *rank_end_open(coh_transport *host, int32_t rank, void **out_kept)
{
    const coh_device_config config = { .index = rank,
                                       .thread_count = 1,
                                       .driver = &coh_stub_driver };
    coh_transport *transport;
    rank_gpu *one = calloc(1, sizeof(*one));
    assert_non_null(one);
    one->host = host;
    assert_int_equal(coh_device_cuda.create(&config, &one->device), COH_OK);
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        assert_int_equal(coh_device_cuda.queue_create(
                             one->device, (coh_lane)(COH_LANE_COMM0 + lane), &one->queues[lane]),
                         COH_OK);
    const coh_nccl_options options = { .host = host,
                                       .calls = &fake_nccl,
                                       .queues = { one->queues[0], one->queues[1] } };
    assert_int_equal(coh_nccl_open(&options, &transport), COH_OK);
    *out_kept = one;
    return transport;
}

void rank_end_close(void *kept)
{
    rank_gpu *one = kept;
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        coh_device_cuda.queue_destroy(one->queues[lane]);
    coh_device_cuda.destroy(one->device);
    coh_transport_close(one->host);
    free(one);
}
