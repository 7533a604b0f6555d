#include "tests/cuda/device_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const coh_device_ops *const ops = &coh_device_cuda;

/* Draws a number whose bits are a finite float. */
static uint32_t draw(uint32_t seed)
{
    return (seed * 2654435761u + 12345u) & 0x3fffffffu;
}

/* ---- creation and destruction ---- */

/* Wakes all who wait for a lane, as the engine does. */
static void take_failure(void *context, coh_status status, uint64_t number, uint32_t index)
{
    bench *b = context;
    b->failed_count++;
    b->failed_status = status;
    b->failed_number = number;
    b->failed_index = index;
    coh_error_save(b->failed_text);
    for (int lane = 0; lane < BENCH_LANES; lane++)
        coh_counter_close(&b->counters[lane]);
}

/* The libraries' workspace follows the bench's own bytes. */
static uint64_t workspace_bytes(void)
{
    return bench_here.kernels != NULL ? bench_here.kernels->workspace_bytes : 0;
}

static coh_status open_arenas(bench *b)
{
    void *device_base, *host_base;
    COH_TRY(ops->arena_create(b->device, COH_TIER_DEVICE, BENCH_ARENA_BYTES + workspace_bytes(),
                              &device_base));
    COH_TRY(ops->arena_create(b->device, COH_TIER_HOST, BENCH_ARENA_BYTES, &host_base));
    b->slot = device_base;
    b->out_slot = b->slot + BENCH_NUMBERS;
    b->host = host_base;
    return COH_OK;
}

coh_status bench_open(bench *b, const coh_device_config *config)
{
    *b = (bench){ .skipped_wait = -1 };
    if (config != NULL)
        b->config = *config;
    b->config.driver = bench_here.driver;
    if (bench_here.kernels != NULL) {
        b->config.kernels = bench_here.kernels;
        b->config.workspace_offset = BENCH_ARENA_BYTES;
    }
    b->config.failed = take_failure;
    b->config.failed_context = b;
    if (b->config.thread_count == 0)
        b->config.thread_count = 1;
    for (; b->counter_count < BENCH_LANES; b->counter_count++)
        COH_TRY(coh_counter_init(&b->counters[b->counter_count]));
    COH_TRY(coh_counter_init(&b->host_counter));
    b->counter_count++;
    COH_TRY(ops->create(&b->config, &b->device));
    COH_TRY(ops->watch(b->device, &b->host_counter));
    COH_TRY(open_arenas(b));
    for (int lane = 0; lane < BENCH_LANES; lane++)
        COH_TRY(ops->queue_create(b->device, (coh_lane)lane, &b->queues[lane]));
    return COH_OK;
}

void bench_close(bench *b)
{
    for (int lane = 0; lane < BENCH_LANES; lane++)
        ops->queue_destroy(b->queues[lane]);
    if (b->device != NULL) {
        ops->arena_destroy(b->device, COH_TIER_HOST);
        ops->arena_destroy(b->device, COH_TIER_DEVICE);
    }
    ops->destroy(b->device);
    if (b->counter_count > BENCH_LANES)
        coh_counter_fini(&b->host_counter);
    for (int i = 0; i < b->counter_count && i < BENCH_LANES; i++)
        coh_counter_fini(&b->counters[i]);
}

/* ---- the pipeline ---- */

void bench_wait(bench *b, coh_lane lane, coh_lane other, uint64_t value)
{
    if (b->wait_count++ != b->skipped_wait)
        ops->wait(b->queues[lane], &b->counters[other], value, NULL);
}

void bench_signal(bench *b, coh_lane lane)
{
    ops->signal(b->queues[lane], &b->counters[lane], ++b->signalled[lane]);
}

static void enqueue_turn(const bench *b, int begin, int count)
{
    bench_here.turn(b->queues[COH_LANE_COMPUTE], b->out_slot + begin, b->slot + begin, count);
}

/* Work on the compute lane, as in a line of the engine. */
static void launch_turn(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    enqueue_turn(context, 0, BENCH_NUMBERS);
}

static void launch_halves(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    enqueue_turn(context, 0, BENCH_NUMBERS / 2);
    enqueue_turn(context, BENCH_NUMBERS / 2, BENCH_NUMBERS / 2);
}

coh_status bench_record(bench *b)
{
    COH_TRY(ops->record_begin(b->queues[COH_LANE_COMPUTE]));
    ops->launch(b->queues[COH_LANE_COMPUTE], launch_halves, b, 0, 0, NULL);
    return ops->record_end(b->queues[COH_LANE_COMPUTE], &b->recording);
}

void bench_enqueue(bench *b, int rounds, uint32_t seed)
{
    const size_t bytes = sizeof(b->host->in[0]);
    uint64_t loads = b->signalled[COH_LANE_H2D], kernels = b->signalled[COH_LANE_COMPUTE];
    uint64_t stores = b->signalled[COH_LANE_D2H];
    b->wait_count = 0;
    memset(b->host, 0, sizeof(*b->host));
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < BENCH_NUMBERS; i++)
            b->host->in[r][i] = draw(seed + (uint32_t)(r * BENCH_NUMBERS + i));
    for (int r = 0; r < rounds; r++) {
        if (r > 0)
            bench_wait(b, COH_LANE_H2D, COH_LANE_COMPUTE, kernels);
        ops->copy(b->queues[COH_LANE_H2D], b->slot, b->host->in[r], bytes);
        bench_signal(b, COH_LANE_H2D);
        bench_wait(b, COH_LANE_COMPUTE, COH_LANE_H2D, ++loads);
        if (r > 0)
            bench_wait(b, COH_LANE_COMPUTE, COH_LANE_D2H, stores);
        if (b->recording != NULL)
            ops->replay(b->queues[COH_LANE_COMPUTE], b->recording);
        else
            ops->launch(b->queues[COH_LANE_COMPUTE], launch_turn, b, 0, 0, NULL);
        bench_signal(b, COH_LANE_COMPUTE);
        bench_wait(b, COH_LANE_D2H, COH_LANE_COMPUTE, ++kernels);
        ops->copy(b->queues[COH_LANE_D2H], b->host->out[r], b->out_slot, bytes);
        bench_signal(b, COH_LANE_D2H);
        stores++;
    }
}

coh_status bench_finish(bench *b, int rounds, int *out_is_right)
{
    *out_is_right = 0;
    for (int lane = 0; lane < BENCH_LANES; lane++)
        if (!coh_counter_wait(&b->counters[lane], b->signalled[lane]))
            return ops->failure(b->device);
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < BENCH_NUMBERS; i++)
            if (b->host->out[r][i] != bench_here.turned(b->host->in[r][i]))
                return COH_OK;
    *out_is_right = 1;
    return COH_OK;
}
