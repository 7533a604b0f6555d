/* NCCL on the GPU at hand: the transport of a world of one rank, and a communicator of one that
 * sends to itself on both comm lanes, between a kernel that makes the bytes and one that adds what
 * came. Two ranks need two GPUs, which this does not ask for. */
#include "tests/cuda/gpu_check.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/nccl.h"
#include "comm/nccl_calls.h"
#include "comm/threads.h"
#include "kernels/kernels.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda_state.h"

enum { LANES = COH_LINK_LANES, ROUNDS = 4, MESSAGES = 3 };
#define COUNT ((int64_t)1 << 20) /* floats of a message */

static coh_nccl_calls calls;

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void must_nccl(int result, const char *what)
{
    if (result != COH_NCCL_SUCCESS && result != COH_NCCL_IN_PROGRESS)
        fail_msg("%s: %s: %s", what, calls.ncclGetErrorString(result),
                 calls.ncclGetLastError(NULL));
}

static int open_lanes(void **state)
{
    static coh_queue *queues[LANES];
    for (int lane = 0; lane < LANES; lane++)
        if (coh_device_cuda.queue_create(gpu.device, (coh_lane)(COH_LANE_COMM0 + lane),
                                         &queues[lane]) != COH_OK) {
            printf("%s\n", coh_last_error());
            return 1;
        }
    *state = queues;
    return 0;
}

static int close_lanes(void **state)
{
    coh_queue **queues = *state;
    for (int lane = 0; lane < LANES; lane++)
        coh_device_cuda.queue_destroy(queues[lane]);
    return 0;
}

/* Communicators are made, lines without messages are done, and everything ends. */
static void a_world_of_one_rank_is_bound_and_ends(void **state)
{
    coh_queue **queues = *state;
    coh_transport *host, *own;
    coh_link_plan plan = { 0 };
    assert_int_equal(coh_threads_open(1, &host), COH_OK);
    const coh_nccl_options options = { .host = host,
                                       .calls = &calls,
                                       .queues = { queues[0], queues[1] } };
    must(coh_nccl_open(&options, &own));
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t line;
        plan.lane = (uint8_t)lane;
        must(coh_link_plan_begin(&plan, &line));
    }
    must(coh_transport_bind(own, &plan));
    for (uint32_t line = 0; line < LANES; line++) {
        must(coh_transport_start(own, line));
        must(coh_transport_wait(own, line));
    }
    coh_transport_close(own);
    coh_transport_close(host);
    coh_link_plan_fini(&plan);
}

/* ---- to itself ---- */

static void settle(coh_nccl_communicator *communicator, const char *what)
{
    int now = COH_NCCL_IN_PROGRESS;
    for (int look = 0; now == COH_NCCL_IN_PROGRESS && look < 60000; look++) {
        must_nccl(calls.ncclCommGetAsyncError(communicator, &now), what);
        if (now == COH_NCCL_IN_PROGRESS)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    if (now != COH_NCCL_SUCCESS)
        fail_msg("%s: %s", what,
                 now == COH_NCCL_IN_PROGRESS ? "still in progress after a minute"
                                             : calls.ncclGetErrorString(now));
}

static coh_nccl_communicator *connect(void)
{
    coh_nccl_config config = { .struct_bytes = sizeof(config),
                               .magic = COH_NCCL_CONFIG_MAGIC,
                               .version = COH_NCCL_CONFIG_VERSION,
                               .cluster_size = COH_NCCL_CONFIG_DEFAULT,
                               .blocks_least = COH_NCCL_CONFIG_DEFAULT,
                               .blocks_most = COH_NCCL_BLOCKS_MOST,
                               .shares_split = COH_NCCL_CONFIG_DEFAULT };
    coh_nccl_id id;
    coh_nccl_communicator *made = NULL;
    must_nccl(calls.ncclGetUniqueId(&id), "ncclGetUniqueId");
    must_nccl(calls.ncclCommInitRankConfig(&made, 1, id, 0, &config), "ncclCommInitRankConfig");
    settle(made, "ncclCommInitRankConfig");
    return made;
}

/* On each lane: to = 0, then to += what is sent, message after message. */
typedef struct lane_memory {
    coh_nccl_communicator *communicator;
    float *sent[MESSAGES], *received[MESSAGES], *sum;
} lane_memory;

static void send_to_itself(const lane_memory *m, coh_queue *on)
{
    coh_cuda_queue *queue = (coh_cuda_queue *)(void *)on;
    must_nccl(calls.ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < MESSAGES; i++) {
        const size_t bytes = (size_t)COUNT * sizeof(float);
        must_nccl(
            calls.ncclSend(m->sent[i], bytes, COH_NCCL_BYTE, 0, m->communicator, queue->stream),
            "ncclSend");
        must_nccl(
            calls.ncclRecv(m->received[i], bytes, COH_NCCL_BYTE, 0, m->communicator, queue->stream),
            "ncclRecv");
    }
    must_nccl(calls.ncclGroupEnd(), "ncclGroupEnd");
    settle(m->communicator, "ncclGroupEnd");
    for (int i = 0; i < MESSAGES; i++)
        coh_kernel_pass(queue, COH_DTYPE_F32, m->sum, m->received[i], COUNT, i > 0);
}

static void check_bytes(const lane_memory *m, float *room, int round, int lane)
{
    for (int i = 0; i < MESSAGES; i++) {
        gpu_get(&gpu, room, m->received[i], (size_t)COUNT * sizeof(float));
        for (int64_t k = 0; k < COUNT; k++)
            if (room[k] != (float)(1000 * round + 100 * lane + i) + (float)(k % 97))
                fail_msg("round %d, lane %d, message %d, element %lld: %g", round, lane, i,
                         (long long)k, (double)room[k]);
    }
    gpu_get(&gpu, room, m->sum, (size_t)COUNT * sizeof(float));
    for (int64_t k = 0; k < COUNT; k++) {
        const float first = (float)(1000 * round + 100 * lane) + (float)(k % 97);
        if (room[k] != 3 * first + 3)
            fail_msg("round %d, lane %d, sum of element %lld: %g", round, lane, (long long)k,
                     (double)room[k]);
    }
}

static void fill(const lane_memory *m, float *room, int round, int lane)
{
    for (int i = 0; i < MESSAGES; i++) {
        for (int64_t k = 0; k < COUNT; k++)
            room[k] = (float)(1000 * round + 100 * lane + i) + (float)(k % 97);
        gpu_put(&gpu, m->sent[i], room, (size_t)COUNT * sizeof(float));
    }
}

static void a_communicator_of_one_brings_every_byte_to_itself(void **state)
{
    coh_queue **queues = *state;
    lane_memory lanes[LANES];
    const size_t bytes = (size_t)COUNT * sizeof(float);
    float *room = malloc(bytes);
    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane].communicator = connect();
        for (int i = 0; i < MESSAGES; i++) {
            lanes[lane].sent[i] = gpu_take(&gpu, bytes);
            lanes[lane].received[i] = gpu_take(&gpu, bytes);
        }
        lanes[lane].sum = gpu_take(&gpu, bytes);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int lane = 0; lane < LANES; lane++)
            fill(&lanes[lane], room, round, lane);
        for (int lane = 0; lane < LANES; lane++) /* both at once */
            send_to_itself(&lanes[lane], queues[lane]);
        for (int lane = 0; lane < LANES; lane++)
            coh_device_cuda.finish(queues[lane]);
        for (int lane = 0; lane < LANES; lane++)
            check_bytes(&lanes[lane], room, round, lane);
    }
    for (int lane = 0; lane < LANES; lane++) {
        must_nccl(calls.ncclCommFinalize(lanes[lane].communicator), "ncclCommFinalize");
        settle(lanes[lane].communicator, "ncclCommFinalize");
        must_nccl(calls.ncclCommDestroy(lanes[lane].communicator), "ncclCommDestroy");
    }
    free(room);
}

/* The sum of one rank is what it gives, and so is what it gathers; in place and apart. */
static void collectives_of_one_rank_bring_its_window(void **state)
{
    coh_queue **queues = *state;
    coh_cuda_queue *queue = (coh_cuda_queue *)(void *)queues[0];
    coh_nccl_communicator *communicator = connect();
    const size_t bytes = (size_t)COUNT * sizeof(float);
    float *room = malloc(bytes), *from = gpu_take(&gpu, bytes), *to = gpu_take(&gpu, bytes);
    for (int round = 0; round < 2 * 2; round++) {
        float *const out = round % 2 == 0 ? to : from;
        for (int64_t k = 0; k < COUNT; k++)
            room[k] = (float)(round + 1) * (float)(k % 89);
        gpu_put(&gpu, from, room, bytes);
        if (round < 2)
            must_nccl(calls.ncclReduceScatter(from, out, (size_t)COUNT, COH_NCCL_FLOAT,
                                              COH_NCCL_SUM, communicator, queue->stream),
                      "ncclReduceScatter");
        else
            must_nccl(
                calls.ncclAllGather(from, out, bytes, COH_NCCL_BYTE, communicator, queue->stream),
                "ncclAllGather");
        settle(communicator, "a collective");
        coh_device_cuda.finish(queues[0]);
        gpu_get(&gpu, room, out, bytes);
        for (int64_t k = 0; k < COUNT; k++)
            if (room[k] != (float)(round + 1) * (float)(k % 89))
                fail_msg("round %d, element %lld: %g", round, (long long)k, (double)room[k]);
    }
    must_nccl(calls.ncclCommFinalize(communicator), "ncclCommFinalize");
    settle(communicator, "ncclCommFinalize");
    must_nccl(calls.ncclCommDestroy(communicator), "ncclCommDestroy");
    free(room);
}

const char *gpu_check_nccl_missing(void)
{
    return coh_nccl_calls_open(&calls) == COH_OK ? NULL : coh_last_error();
}

int gpu_check_nccl(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_world_of_one_rank_is_bound_and_ends),
        cmocka_unit_test(a_communicator_of_one_brings_every_byte_to_itself),
        cmocka_unit_test(collectives_of_one_rank_bring_its_window),
    };
    return cmocka_run_group_tests(tests, open_lanes, close_lanes);
}
