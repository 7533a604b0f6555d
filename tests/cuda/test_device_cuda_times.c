/* The times of places in a GPU's queues, over the stub driver, whose clock has another zero and
 * another rate than the host's. The oracle: work on the streams notes the host's time at which it
 * runs, and lies between the places before and behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "memory/device_cuda_state.h"
#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* A clock so fast that 1 ms without the mapping would be wrong by 1 ms. */
#define RATE    2.0
#define FROM_NS 123456789012345
/* Of cuEventElapsedTime: a float of milliseconds over up to a minute. */
#define RESOLUTION_NS 4000

enum { LINES = 60, LINES_MOST = 6000 };

typedef struct timed_line {
    uint64_t begin_ns, end_ns;           /* given by the device */
    uint64_t work_begin_ns, work_end_ns; /* when its work ran */
} timed_line;

typedef struct lines {
    bench b;
    timed_line all[BENCH_LANES][LINES_MOST];
    uint64_t time_count;
} lines;

static const coh_device_config exact = { .times_exactly = 1 };

static void open_lines(lines *l, const coh_device_config *config, double rate)
{
    memset(l, 0, sizeof(*l));
    coh_stub_reset(BENCH_GPU_BYTES);
    coh_stub_set_clock(rate, FROM_NS);
    assert_int_equal(bench_open(&l->b, config), COH_OK);
}

/* Bounds the error of a time before the newest pair of the clocks. */
static uint64_t error_ns_of(const lines *l)
{
    const coh_clock_map *map = &l->b.device->clock.map;
    return coh_clock_map_error_ns(map, coh_clock_map_newest(map)->device_ns);
}

static void close_lines(lines *l)
{
    coh_stub_stop();
    bench_close(&l->b);
    assert_int_equal(coh_stub_live_count(), 0);
}

static void pass(void *context, uint64_t number, uint32_t index)
{
    (void)context;
    (void)number;
    (void)index;
}

/* Lane and line are in `number` and `index`. */
static void take_begin(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    lines *l = context;
    l->all[number][index].begin_ns = at_ns;
    l->time_count++;
}

static void take_end(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    lines *l = context;
    l->all[number][index].end_ns = at_ns;
    l->time_count++;
}

static void work(const void *arguments)
{
    timed_line *line;
    memcpy(&line, arguments, sizeof(line));
    line->work_begin_ns = coh_clock_ns();
    while (coh_clock_ns() < line->work_begin_ns + 20000)
        continue;
    line->work_end_ns = coh_clock_ns();
}

static void launch_work(void *context, uint64_t number, uint32_t index)
{
    lines *l = context;
    const timed_line *line = &l->all[number][index];
    const coh_cuda_queue *queue = (const coh_cuda_queue *)(void *)l->b.queues[number];
    coh_stub_enqueue(queue->stream, work, &line, sizeof(line));
}

static void enqueue_line(lines *l, int lane, uint32_t index)
{
    coh_queue *queue = l->b.queues[lane];
    const uint64_t number = (uint64_t)lane;
    ops->notify(queue, pass, take_begin, l, number, index);
    ops->launch(queue, launch_work, l, number, index, NULL);
    ops->notify(queue, pass, take_end, l, number, index);
    bench_signal(&l->b, (coh_lane)lane);
}

static void finish_lines(lines *l)
{
    for (int lane = 0; lane < BENCH_LANES; lane++)
        (void)coh_counter_wait(&l->b.counters[lane], l->b.signalled[lane]);
    for (int lane = 0; lane < BENCH_LANES; lane++) /* the first makes a pair after all of them */
        ops->take_times(l->b.queues[lane]);
}

/* ---- where a time lies ---- */

/* Checks a lane's lines: each place between the work before it and the work behind it. */
static void check_lane(const timed_line *all, uint32_t count, uint64_t most_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_true(all[i].begin_ns <= all[i].end_ns);
        assert_true(all[i].begin_ns <= all[i].work_begin_ns + most_ns);
        assert_true(all[i].end_ns + most_ns >= all[i].work_end_ns);
        if (i == 0)
            continue;
        assert_true(all[i].begin_ns >= all[i - 1].end_ns);
        assert_true(all[i].begin_ns + most_ns >= all[i - 1].work_end_ns);
        assert_true(all[i - 1].end_ns <= all[i].work_begin_ns + most_ns);
    }
}

static void times_are_the_hosts_under_another_zero_and_rate(void **state)
{
    (void)state;
    static lines l;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        open_lines(&l, &exact, RATE);
        coh_stub_start(seed);
        for (uint32_t i = 0; i < LINES; i++)
            for (int lane = 0; lane < BENCH_LANES; lane++)
                enqueue_line(&l, lane, i);
        finish_lines(&l);
        assert_int_equal(ops->failure(l.b.device), COH_OK);
        assert_int_equal(l.time_count, 2 * LINES * BENCH_LANES);
        const uint64_t error_ns = error_ns_of(&l);
        for (int lane = 0; lane < BENCH_LANES; lane++)
            check_lane(l.all[lane], LINES, error_ns + RESOLUTION_NS);
        close_lines(&l);
    }
}

/* More records than the ring holds: the enqueuing thread takes times to make room. */
static void a_long_queue_is_timed_from_end_to_end(void **state)
{
    (void)state;
    static lines l;
    open_lines(&l, &exact, 1);
    coh_stub_start(1);
    for (uint32_t i = 0; i < 3000; i++)
        enqueue_line(&l, COH_LANE_COMPUTE, i);
    finish_lines(&l);
    assert_int_equal(l.time_count, 6000);
    for (uint32_t i = 1; i < 3000; i++)
        assert_true(l.all[COH_LANE_COMPUTE][i].begin_ns >= l.all[COH_LANE_COMPUTE][i - 1].end_ns);
    close_lines(&l);
}

/* The stream begins to wait when the wait is enqueued, and continues when the host says so. */
static void a_stall_lasts_as_long_as_the_wait(void **state)
{
    (void)state;
    static lines l;
    _Atomic uint64_t stall_ns = 0;
    open_lines(&l, &exact, RATE);
    coh_stub_start(1);
    const uint64_t before_ns = coh_clock_ns();
    ops->wait_host(l.b.queues[COH_LANE_COMPUTE], &l.b.host_counter, 1, &stall_ns);
    const uint64_t enqueued_ns = coh_clock_ns();
    enqueue_line(&l, COH_LANE_COMPUTE, 0);
    while (coh_clock_ns() < enqueued_ns + 2000000)
        continue;
    const uint64_t raised_ns = coh_clock_ns();
    coh_counter_raise(&l.b.host_counter, 1);
    finish_lines(&l);
    const uint64_t most_ns = error_ns_of(&l) + RESOLUTION_NS;
    assert_true(stall_ns + most_ns >= raised_ns - enqueued_ns);
    assert_true(stall_ns <= l.all[COH_LANE_COMPUTE][0].work_begin_ns - before_ns + most_ns);
    close_lines(&l);
}

/* ---- what it costs ---- */

typedef struct counts {
    uint64_t calls[COH_STUB_CALL_COUNT];
} counts;

/* Counts the calls for 100 lines, half of which wait for another lane, and for their times. */
static counts count_calls(lines *l, const coh_device_config *config)
{
    counts found;
    open_lines(l, config, 1);
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++)
        found.calls[call] = coh_stub_call_count((coh_stub_call)call);
    for (uint32_t i = 0; i < 50; i++) {
        enqueue_line(l, COH_LANE_H2D, i);
        bench_wait(&l->b, COH_LANE_COMPUTE, COH_LANE_H2D, l->b.signalled[COH_LANE_H2D]);
        enqueue_line(l, COH_LANE_COMPUTE, i);
    }
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++)
        found.calls[call] = coh_stub_call_count((coh_stub_call)call) - found.calls[call];
    coh_stub_start(1);
    finish_lines(l);
    close_lines(l);
    return found;
}

/* The event of a line's end is the one that other lanes wait for. */
static void a_line_costs_one_event_more(void **state)
{
    (void)state;
    static lines l;
    const coh_device_config plain = { .times_exactly = 0 };
    const counts without = count_calls(&l, &plain), with = count_calls(&l, &exact);
    assert_int_equal(without.calls[COH_STUB_cuEventRecord], 100);
    assert_int_equal(with.calls[COH_STUB_cuEventRecord], 200);
    assert_int_equal(without.calls[COH_STUB_cuEventElapsedTime], 0);
    assert_int_equal(with.calls[COH_STUB_cuEventElapsedTime], 0); /* when they are taken */
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++)
        if (call != COH_STUB_cuEventRecord && call != COH_STUB_cuCtxPushCurrent &&
            call != COH_STUB_cuCtxPopCurrent && call != COH_STUB_cuStreamQuery) /* coh-watch's */
            assert_int_equal(with.calls[call], without.calls[call]);
}

/* A time costs a call, and so does a pair of the clocks; nothing else does. */
static void taking_a_time_costs_one_call(void **state)
{
    (void)state;
    static lines l;
    open_lines(&l, &exact, 1);
    coh_stub_start(1);
    enqueue_line(&l, COH_LANE_COMPUTE, 0);
    finish_lines(&l);
    const uint64_t pairs = l.b.device->clock.map.pair_count;
    const uint64_t before = coh_stub_call_count(COH_STUB_cuEventElapsedTime);
    for (uint32_t i = 1; i < LINES; i++)
        enqueue_line(&l, COH_LANE_COMPUTE, i);
    finish_lines(&l);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuEventElapsedTime) - before,
                     2 * (LINES - 1) + l.b.device->clock.map.pair_count - pairs);
    close_lines(&l);
}

/* ---- failures ---- */

static void a_call_that_fails_is_told_and_ends_the_lanes(void **state)
{
    (void)state;
    static lines l;
    static const coh_stub_call calls[] = { COH_STUB_cuEventElapsedTime, COH_STUB_cuEventRecord,
                                           COH_STUB_cuStreamWaitValue64 };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (uint64_t n = 1; n <= 4; n++)
            for (int breaks = 0; breaks < 2; breaks++) {
                open_lines(&l, &exact, RATE);
                for (uint32_t line = 0; line < 3; line++)
                    enqueue_line(&l, COH_LANE_COMPUTE, line);
                coh_stub_start(1);
                (void)coh_counter_wait(&l.b.counters[COH_LANE_COMPUTE], 3);
                (breaks ? coh_stub_break_nth : coh_stub_fail_nth)(calls[i], n,
                                                                  CUDA_ERROR_ILLEGAL_ADDRESS);
                finish_lines(&l);
                assert_int_equal(ops->failure(l.b.device), COH_ERR_DEVICE);
                assert_int_equal(l.b.failed_count, 1);
                assert_non_null(
                    strstr(coh_last_error(), "lane compute, the times of its instruct"));
                assert_non_null(strstr(coh_last_error(), coh_stub_call_name(calls[i])));
                coh_stub_fail_nth(calls[i], 0, CUDA_SUCCESS);
                close_lines(&l);
            }
}

/* A closed device gives no times, and nobody waits for them. */
static void a_closed_device_gives_no_times(void **state)
{
    (void)state;
    static lines l;
    open_lines(&l, &exact, RATE);
    for (uint32_t i = 0; i < 3; i++)
        enqueue_line(&l, COH_LANE_COMPUTE, i);
    ops->queue_close(l.b.queues[COH_LANE_COMPUTE]);
    ops->take_times(l.b.queues[COH_LANE_COMPUTE]);
    assert_int_equal(l.time_count, 0);
    close_lines(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_the_hosts_under_another_zero_and_rate),
        cmocka_unit_test(a_long_queue_is_timed_from_end_to_end),
        cmocka_unit_test(a_stall_lasts_as_long_as_the_wait),
        cmocka_unit_test(a_line_costs_one_event_more),
        cmocka_unit_test(taking_a_time_costs_one_call),
        cmocka_unit_test(a_call_that_fails_is_told_and_ends_the_lanes),
        cmocka_unit_test(a_closed_device_gives_no_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
