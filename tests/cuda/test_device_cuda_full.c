/* A driver holds a limited number of commands: the call that enqueues one more waits inside the
 * driver, and every other call waits with it. That must not deadlock, and should not happen. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* Only a failing test waits this long. */
#define PATIENCE_NS ((uint64_t)20 * 1000000000u)

/* Returns 1 if the condition holds in time. */
static int wait_until(int (*holds)(void *context), void *context)
{
    const uint64_t end_ns = coh_clock_ns() + PATIENCE_NS;
    while (!holds(context)) {
        if (coh_clock_ns() > end_ns)
            return 0;
        sched_yield();
    }
    return 1;
}

static void close_bench(bench *b)
{
    coh_stub_stop();
    bench_close(b);
    assert_int_equal(coh_stub_live_count(), 0);
}

/* ---- no thread that streams wait for is blocked in the driver ---- */

/* Returns 1 if a call is blocked by one that waits for room. */
static int someone_is_held(void *context)
{
    (void)context;
    return coh_stub_how_full().held_count > 0;
}

static void work_until_someone_is_held(const void *arguments)
{
    (void)arguments;
    (void)wait_until(someone_is_held, NULL);
}

static int first_load_is_told(void *context)
{
    bench *b = context;
    return coh_counter_read(&b->counters[COH_LANE_H2D]) >= 1;
}

/* A disk lane: its work follows the first load, and the compute lane waits for it. */
typedef struct host_lane {
    bench *b;
    int was_told;
} host_lane;

static void *be_host_lane(void *argument)
{
    host_lane *lane = argument;
    lane->was_told = wait_until(first_load_is_told, lane->b);
    coh_counter_raise(&lane->b->host_counter, 1); /* always, so that the test ends */
    return NULL;
}

static void hold_up(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    const bench *b = context;
    const coh_cuda_queue *queue = (const coh_cuda_queue *)(void *)b->queues[COH_LANE_H2D];
    coh_stub_enqueue(queue->stream, work_until_someone_is_held, "", 1);
}

/* The compute lane is full of commands that wait for a host lane. The host lane waits to hear of a
 * load, which ends when the query about broken streams is blocked. */
static void a_full_driver_holds_up_nobody_that_streams_wait_for(void **state)
{
    (void)state;
    enum { DEPTH = 64, COPIES = 200 };
    bench b;
    pthread_t thread;
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(bench_open(&b, NULL), COH_OK);
    coh_stub_set_depth(DEPTH);
    host_lane lane = { .b = &b };
    assert_int_equal(pthread_create(&thread, NULL, be_host_lane, &lane), 0);
    coh_stub_start(1);
    ops->launch(b.queues[COH_LANE_H2D], hold_up, &b, 0, 0, NULL);
    bench_signal(&b, COH_LANE_H2D);
    ops->wait_host(b.queues[COH_LANE_COMPUTE], &b.host_counter, 1, NULL);
    for (int i = 0; i < COPIES; i++)
        ops->copy(b.queues[COH_LANE_COMPUTE], b.out_slot, b.slot, 4);
    bench_signal(&b, COH_LANE_COMPUTE);
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 1));
    pthread_join(thread, NULL);
    assert_true(coh_stub_how_full().full_count > 0); /* else the test shows nothing */
    assert_true(lane.was_told);
    close_bench(&b);
}

/* ---- the driver does not fill up ---- */

enum { DRIVER_HOLDS = 1000, LINES = 3, KERNELS = 1500 };

static void do_nothing(const void *arguments)
{
    (void)arguments;
}

/* Launches one line of many kernels. */
static void launch_many(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    bench *b = context;
    const coh_cuda_grid grid = { .x = 1, .y = 1, .z = 1, .threads = 64 };
    const coh_cuda_map_arguments arguments = { .count = 0 };
    for (int i = 0; i < KERNELS; i++)
        coh_cuda_launch(b->queues[COH_LANE_COMPUTE], COH_CUDA_SCALE_F32, &grid, &arguments);
}

static const coh_device_kernels kernels = { .open = coh_cuda_kernels_open,
                                            .close = coh_cuda_kernels_close };

static void open_full(bench *b)
{
    const coh_device_config config = { .kernels = &kernels };
    coh_stub_reset(BENCH_GPU_BYTES);
    coh_stub_set_twin("coh_scale_f32", do_nothing, sizeof(coh_cuda_map_arguments));
    assert_int_equal(bench_open(b, &config), COH_OK);
    coh_stub_set_depth(DRIVER_HOLDS);
}

static int many_are_pending(void *context)
{
    (void)context;
    return coh_stub_pending_count() > 400;
}

/* Lets the streams run once many commands are pending. */
static void *let_go(void *argument)
{
    bench *b = argument;
    (void)wait_until(many_are_pending, NULL);
    coh_counter_raise(&b->host_counter, 1);
    return NULL;
}

/* For any number of kernels in a line, and of lines; the host still runs far ahead. */
static void whoever_enqueues_waits_before_the_driver_does(void **state)
{
    (void)state;
    bench b;
    pthread_t thread;
    open_full(&b);
    assert_int_equal(pthread_create(&thread, NULL, let_go, &b), 0);
    coh_stub_start(2);
    ops->wait_host(b.queues[COH_LANE_COMPUTE], &b.host_counter, 1, NULL);
    for (int line = 0; line < LINES; line++) {
        ops->launch(b.queues[COH_LANE_COMPUTE], launch_many, &b, 0, 0, NULL);
        bench_signal(&b, COH_LANE_COMPUTE);
        for (int i = 0; i < KERNELS; i++)
            ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
        bench_signal(&b, COH_LANE_H2D);
    }
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], LINES));
    assert_true(coh_counter_wait(&b.counters[COH_LANE_H2D], LINES));
    pthread_join(thread, NULL);
    assert_int_equal(ops->failure(b.device), COH_OK);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), LINES * KERNELS);
    assert_int_equal(coh_stub_how_full().full_count, 0);
    assert_true(coh_stub_how_full().most_pending > 400);
    close_bench(&b);
}

static int room_is_out(void *context)
{
    (void)context;
    return coh_stub_pending_count() > 500;
}

static void *close_queue(void *argument)
{
    bench *b = argument;
    (void)wait_until(room_is_out, NULL);
    for (int i = 0; i < 200; i++) /* meanwhile the other thread waits */
        sched_yield();
    ops->queue_close(b->queues[COH_LANE_COMPUTE]);
    return NULL;
}

/* Nothing executes, so there is never room: within a line, or before one. */
static void closing_ends_the_wait_for_room(void **state)
{
    (void)state;
    for (int within = 0; within < 2; within++) {
        bench b;
        pthread_t thread;
        open_full(&b);
        assert_int_equal(pthread_create(&thread, NULL, close_queue, &b), 0);
        if (within)
            ops->launch(b.queues[COH_LANE_COMPUTE], launch_many, &b, 0, 0, NULL);
        for (int i = 0; i < KERNELS && !within; i++)
            ops->copy(b.queues[COH_LANE_COMPUTE], b.out_slot, b.slot, 4);
        pthread_join(thread, NULL);
        assert_true(coh_stub_how_full().most_pending < KERNELS);
        assert_int_equal(coh_stub_how_full().full_count, 0);
        assert_null(coh_stub_current());
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_driver_holds_up_nobody_that_streams_wait_for),
        cmocka_unit_test(whoever_enqueues_waits_before_the_driver_does),
        cmocka_unit_test(closing_ends_the_wait_for_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
