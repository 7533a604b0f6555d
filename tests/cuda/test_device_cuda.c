/* A GPU as a device, over the stub driver: the order of signals to the host, host lanes, lockstep,
 * closing, failures of every call. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/launch.h"
#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

static void open_bench(bench *b, const coh_device_config *config)
{
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(bench_open(b, config), COH_OK);
}

static void close_bench(bench *b)
{
    bench_close(b);
    assert_int_equal(coh_stub_live_count(), 0);
}

/* Runs first commands of streams until none may run. */
static void run_ready(void)
{
    int ready[BENCH_LANES + 1];
    while (coh_stub_ready(ready, BENCH_LANES + 1) > 0)
        coh_stub_run(ready[0]);
}

/* ---- signals to the host ---- */

enum { LOG_MOST = 64 };
typedef struct event_log {
    uint64_t numbers[LOG_MOST];
    int count; /* written by coh-retire; read after a counter */
} event_log;

static void log_number(void *context, uint64_t number, uint32_t index)
{
    (void)index;
    event_log *log = context;
    log->numbers[log->count++] = number;
}

/* Lines of three lanes, each waiting for the one before, signal their begin and end. In whatever
 * order words are seen, no line is reported to begin before the line it waited for has ended. */
static void a_line_is_told_of_after_those_it_waited_for(void **state)
{
    (void)state;
    static const coh_lane lanes[BENCH_LANES] = { COH_LANE_H2D, COH_LANE_COMPUTE, COH_LANE_D2H };
    bench b;
    open_bench(&b, NULL);
    for (int turn = 0; turn < 200; turn++) {
        event_log log = { .count = 0 };
        for (int line = 0; line < 6; line++) {
            coh_lane lane = lanes[line % 3], before = lanes[(line + 2) % 3];
            coh_queue *queue = b.queues[lane];
            if (line > 0)
                bench_wait(&b, lane, before, b.signalled[before]);
            ops->notify(queue, log_number, NULL, &log, 2 * (uint64_t)line, 0);
            ops->copy(queue, b.slot, b.host->in[0], sizeof(b.host->in[0]));
            ops->notify(queue, log_number, NULL, &log, 2 * (uint64_t)line + 1, 0);
            bench_signal(&b, lane);
        }
        run_ready();
        assert_int_equal(coh_stub_pending_count(), 0);
        assert_true(coh_counter_wait(&b.counters[COH_LANE_D2H], b.signalled[COH_LANE_D2H]));
        assert_int_equal(log.count, 12);
        for (int i = 0; i < 12; i++)
            assert_int_equal(log.numbers[i], i);
    }
    close_bench(&b);
}

/* No line is reported before its stream has finished it. */
static void nothing_is_told_before_it_is_done(void **state)
{
    (void)state;
    bench b;
    event_log log = { .count = 0 };
    open_bench(&b, NULL);
    ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
    ops->notify(b.queues[COH_LANE_H2D], log_number, NULL, &log, 7, 0);
    bench_signal(&b, COH_LANE_H2D);
    for (int i = 0; i < 1000; i++)
        sched_yield();
    assert_int_equal(coh_counter_read(&b.counters[COH_LANE_H2D]), 0);
    run_ready();
    assert_true(coh_counter_wait(&b.counters[COH_LANE_H2D], 1));
    assert_int_equal(log.count, 1);
    assert_int_equal(log.numbers[0], 7);
    close_bench(&b);
}

/* More than the ring holds: the enqueueing thread waits for room. */
static void a_full_ring_makes_the_caller_wait(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NULL);
    coh_stub_start(1);
    for (int i = 0; i < 5000; i++) {
        ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
        bench_signal(&b, COH_LANE_H2D);
        bench_wait(&b, COH_LANE_COMPUTE, COH_LANE_H2D, b.signalled[COH_LANE_H2D]);
        bench_signal(&b, COH_LANE_COMPUTE);
    }
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 5000));
    coh_stub_stop();
    close_bench(&b);
}

/* ---- host lanes ---- */

static void a_stream_waits_for_a_host_lane_by_its_mirror(void **state)
{
    (void)state;
    bench b;
    int ready[BENCH_LANES + 1];
    _Atomic uint64_t stall_ns = 0;
    open_bench(&b, NULL);
    ops->wait_host(b.queues[COH_LANE_H2D], &b.host_counter, 3, &stall_ns);
    ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
    bench_signal(&b, COH_LANE_H2D);
    assert_int_equal(coh_stub_ready(ready, 1), 0);
    coh_counter_raise(&b.host_counter, 2);
    assert_int_equal(coh_stub_ready(ready, 1), 0);
    b.host->in[0][0] = 4711;
    coh_counter_raise(&b.host_counter, 3);
    run_ready();
    assert_true(coh_counter_wait(&b.counters[COH_LANE_H2D], 1));
    assert_int_equal(b.slot[0], 4711);
    assert_true(stall_ns > 0);

    /* A condition that already holds costs neither a command nor time. */
    uint64_t stalled_ns = stall_ns;
    ops->wait_host(b.queues[COH_LANE_H2D], &b.host_counter, 3, &stall_ns);
    assert_int_equal(coh_stub_pending_count(), 0);
    assert_int_equal(stall_ns, stalled_ns);
    close_bench(&b);
}

static void expect_failure(bench *b, coh_status status, const char *words)
{
    assert_int_equal(ops->failure(b->device), status);
    if (strstr(coh_last_error(), words) == NULL)
        print_error("'%s' is not in: %s\n", words, coh_last_error());
    assert_non_null(strstr(coh_last_error(), words));
}

static void a_wait_before_its_signal_is_refused(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NULL);
    bench_signal(&b, COH_LANE_COMPUTE);
    ops->wait(b.queues[COH_LANE_H2D], &b.counters[COH_LANE_COMPUTE], 2, NULL);
    expect_failure(&b, COH_ERR_INTERNAL, "lane h2d: it is to wait for 2 of lane compute");
    run_ready();
    close_bench(&b);
}

static void a_counter_that_nobody_watches_is_refused(void **state)
{
    (void)state;
    bench b;
    coh_counter other;
    assert_int_equal(coh_counter_init(&other), COH_OK);
    open_bench(&b, NULL);
    ops->wait_host(b.queues[COH_LANE_H2D], &other, 1, NULL);
    expect_failure(&b, COH_ERR_INTERNAL, "does not watch");
    close_bench(&b);
    coh_counter_fini(&other);
}

/* ---- lockstep: a line's notify has finished with the arena before the next line begins ---- */

typedef struct poison {
    bench *b;
    coh_counter may_go;
} poison;

static void poison_slot(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    poison *p = context;
    (void)coh_counter_wait(&p->may_go, 1);
    (void)ops->fill(p->b->device, p->b->slot, 0xff, sizeof(uint32_t));
}

/* Raises the counter long after an unblocked queue would have finished everything. */
static void *let_go(void *argument)
{
    poison *p = argument;
    for (int i = 0; i < 200; i++)
        sched_yield();
    coh_counter_raise(&p->may_go, 1);
    return NULL;
}

/* A line ends and poisons its slot late; the next line loads the slot. Returns the slot's
 * content. */
static uint32_t load_behind_poison(int lockstep)
{
    const coh_device_config config = { .lockstep = lockstep };
    bench b;
    poison p = { .b = &b };
    pthread_t thread;
    assert_int_equal(coh_counter_init(&p.may_go), COH_OK);
    open_bench(&b, &config);
    if (lockstep)
        assert_int_equal(pthread_create(&thread, NULL, let_go, &p), 0);
    coh_stub_start(1);
    b.host->in[0][0] = 1;
    b.host->in[1][0] = 2;
    ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
    ops->notify(b.queues[COH_LANE_H2D], poison_slot, NULL, &p, 0, 0);
    bench_signal(&b, COH_LANE_H2D);
    ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[1], 4);
    bench_signal(&b, COH_LANE_H2D);
    while (coh_stub_pending_count() > 0)
        sched_yield();
    if (lockstep)
        pthread_join(thread, NULL);
    else
        coh_counter_raise(&p.may_go, 1);
    assert_true(coh_counter_wait(&b.counters[COH_LANE_H2D], 2));
    coh_stub_stop();
    uint32_t found = b.slot[0];
    close_bench(&b);
    coh_counter_fini(&p.may_go);
    return found;
}

static void under_lockstep_poison_comes_before_the_next_line(void **state)
{
    (void)state;
    assert_int_equal(load_behind_poison(1), 2);
    assert_int_equal(load_behind_poison(0), UINT32_MAX);
}

/* ---- kernels ---- */

static void scale_twin(const void *arguments)
{
    const coh_cuda_map_arguments *a = arguments;
    for (int64_t i = 0; i < a->count; i++)
        ((float *)a->y)[i] = a->factor * ((const float *)a->x)[i];
}

static void launch_scale(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    bench *b = context;
    const coh_cuda_grid grid = { .x = 1, .y = 1, .z = 1, .threads = 64 }, none = { .y = 1, .z = 1 };
    const coh_cuda_map_arguments arguments = {
        .x = b->slot, .y = b->out_slot, .count = 3, .factor = 2.5f
    };
    coh_cuda_launch(b->queues[COH_LANE_COMPUTE], COH_CUDA_SCALE_F32, &none, &arguments);
    coh_cuda_launch(b->queues[COH_LANE_COMPUTE], COH_CUDA_SCALE_F32, &grid, &arguments);
    assert_int_equal(coh_cuda_multiprocessors(b->queues[COH_LANE_COMPUTE]), 132);
}

static const coh_device_kernels scale_kernels = { .open = coh_cuda_kernels_open,
                                                  .close = coh_cuda_kernels_close };

static void a_kernel_gets_its_arguments_by_value(void **state)
{
    (void)state;
    const coh_device_config config = { .kernels = &scale_kernels };
    const float in[3] = { 1, -2, 4 };
    float out[3];
    bench b;
    coh_stub_reset(BENCH_GPU_BYTES);
    coh_stub_set_twin("coh_scale_f32", scale_twin, sizeof(coh_cuda_map_arguments));
    assert_int_equal(bench_open(&b, &config), COH_OK);
    assert_int_equal(ops->put(b.device, b.slot, in, sizeof(in)), COH_OK);
    ops->launch(b.queues[COH_LANE_COMPUTE], launch_scale, &b, 0, 0, NULL);
    bench_signal(&b, COH_LANE_COMPUTE);
    run_ready();
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 1));
    assert_int_equal(ops->get(b.device, out, b.out_slot, sizeof(out)), COH_OK);
    for (int i = 0; i < 3; i++)
        assert_true(out[i] == 2.5f * in[i]);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), 1);
    close_bench(&b);
}

static void take_predicate(void *context, uint64_t number, uint32_t index)
{
    (void)index;
    bench *b = context;
    if (number == 1)
        assert_ptr_equal(coh_cuda_take_predicate(b->queues[COH_LANE_COMPUTE]), b->slot);
}

/* The host cannot skip a line by a value that does not exist yet: its kernels must check it. */
static void a_predicate_that_no_kernel_takes_is_an_error(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, NULL);
    const int32_t *predicate = (const int32_t *)(const void *)b.slot;
    ops->launch(b.queues[COH_LANE_COMPUTE], take_predicate, &b, 1, 0, predicate);
    assert_int_equal(ops->failure(b.device), COH_OK);
    ops->launch(b.queues[COH_LANE_COMPUTE], take_predicate, &b, 0, 0, predicate);
    expect_failure(&b, COH_ERR_INTERNAL, "lane compute: an instruction has a predicate");
    close_bench(&b);
}

/* ---- arenas ---- */

static void an_arena_that_does_not_fit_is_refused_with_what_would(void **state)
{
    (void)state;
    const coh_device_config config = { .driver = &coh_stub_driver, .thread_count = 1 };
    coh_device *device;
    void *base;
    coh_stub_reset(COH_CUDA_RESERVE_BYTES + 10000);
    assert_int_equal(ops->create(&config, &device), COH_OK);
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, 12288, &base), COH_ERR_MEMORY);
    assert_null(base);
    assert_non_null(strstr(coh_last_error(), "needs 12288 bytes"));
    assert_non_null(strstr(coh_last_error(), "at most 8192 would fit"));
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, 8192, &base), COH_OK);
    for (int i = 0; i < 8192; i++)
        assert_int_equal(((const char *)base)[i], 0);
    ops->destroy(device);
    assert_int_equal(coh_stub_live_count(), 0);
}

/* The driver refuses a copy whose host side spans two registrations. */
static void a_copy_may_span_pieces_of_the_host_tier(void **state)
{
    (void)state;
    enum { BYTES = 3 * 4096 };
    const coh_device_config config = { .driver = &coh_stub_driver, .thread_count = 1 };
    coh_device *device;
    coh_queue *queue;
    coh_counter done;
    void *near, *far;
    coh_stub_reset(COH_CUDA_RESERVE_BYTES + ((size_t)1 << 20));
    assert_int_equal(coh_counter_init(&done), COH_OK);
    assert_int_equal(ops->create(&config, &device), COH_OK);
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, 2 * BYTES, &near), COH_OK);
    assert_int_equal(ops->arena_create(device, COH_TIER_HOST, COH_CUDA_PIN_BYTES + BYTES, &far),
                     COH_OK);
    assert_int_equal(ops->queue_create(device, COH_LANE_H2D, &queue), COH_OK);
    char *across = (char *)far + COH_CUDA_PIN_BYTES - 4096;
    for (int i = 0; i < BYTES; i++)
        across[i] = (char)(i * 7 + i / 256);
    ops->copy(queue, near, across, BYTES);
    ops->signal(queue, &done, 1);
    run_ready();
    assert_true(coh_counter_wait(&done, 1));
    assert_int_equal(ops->failure(device), COH_OK);
    assert_memory_equal(near, across, BYTES);
    assert_int_equal(ops->get(device, across + 0, near, BYTES), COH_OK);
    ops->queue_destroy(queue);
    ops->arena_destroy(device, COH_TIER_HOST);
    ops->arena_destroy(device, COH_TIER_DEVICE);
    ops->destroy(device);
    coh_counter_fini(&done);
    assert_int_equal(coh_stub_live_count(), 0);
}

static void arenas_are_in_the_ledger_while_they_stand(void **state)
{
    (void)state;
    coh_ledger *ledger;
    assert_int_equal(coh_ledger_create(&ledger), COH_OK);
    const coh_device_config config = { .ledger = ledger };
    coh_arena_facts facts;
    bench b;
    open_bench(&b, &config);
    assert_int_equal(coh_ledger_total_bytes(ledger), 2 * BENCH_ARENA_BYTES);
    ops->arena_facts(b.device, COH_TIER_HOST, &facts);
    assert_true(facts.pin_ns > 0 && facts.touch_ns > 0);
    close_bench(&b);
    assert_int_equal(coh_ledger_total_bytes(ledger), 0);
    coh_ledger_destroy(ledger);
}

/* ---- closing, failing ---- */

static void closing_ends_what_waits_and_tells_nobody(void **state)
{
    (void)state;
    bench b;
    event_log log = { .count = 0 };
    open_bench(&b, NULL);
    ops->wait_host(b.queues[COH_LANE_H2D], &b.host_counter, 1, NULL); /* never raised */
    ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4);
    ops->notify(b.queues[COH_LANE_H2D], log_number, NULL, &log, 1, 0);
    bench_signal(&b, COH_LANE_H2D);
    bench_wait(&b, COH_LANE_COMPUTE, COH_LANE_H2D, 1);
    ops->notify(b.queues[COH_LANE_COMPUTE], log_number, NULL, &log, 2, 0);
    bench_signal(&b, COH_LANE_COMPUTE);
    run_ready();
    assert_true(coh_stub_pending_count() > 0);
    close_bench(&b);
    assert_int_equal(log.count, 0);
    assert_int_equal(coh_counter_read(&b.counters[COH_LANE_H2D]), 0);
}

/* Kernels fail when they run, long after their launch. */
static void a_gpu_that_breaks_is_found_and_its_line_named(void **state)
{
    (void)state;
    event_log log = { .count = 0 };
    bench b;
    open_bench(&b, NULL);
    coh_queue *queue = b.queues[COH_LANE_COMPUTE];
    for (uint32_t line = 0; line < 3; line++) {
        ops->notify(queue, log_number, NULL, &log, 8, 20 + line);
        ops->copy(queue, b.slot, b.host->in[0], 4);
        ops->notify(queue, log_number, NULL, &log, 8, 20 + line);
        bench_signal(&b, COH_LANE_COMPUTE);
    }
    int first[1];
    for (int command = 0; command < 3; command++) { /* the first line: copy, word, event */
        assert_int_equal(coh_stub_ready(first, 1), 1);
        coh_stub_run(first[0]);
    }
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 1));
    coh_stub_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 2)); /* the failure closed it */
    expect_failure(&b, COH_ERR_DEVICE, "broke off while lane compute was at work");
    expect_failure(&b, COH_ERR_DEVICE, "the GPU answers this process no more: start it again");
    assert_int_equal(b.failed_count, 1);
    assert_int_equal(b.failed_status, COH_ERR_DEVICE);
    assert_int_equal(b.failed_number, 8);
    assert_int_equal(b.failed_index, 21);
    assert_string_equal(b.failed_text, coh_last_error());
    close_bench(&b);
}

/* Codes that the set-up of a machine causes are answered with the way on. */
static void failures_of_a_machine_name_the_way_on(void **state)
{
    (void)state;
    static const struct {
        CUresult code;
        const char *says;
    } all[] = {
        { CUDA_ERROR_OUT_OF_MEMORY, "end what else uses this GPU" },
        { CUDA_ERROR_DEVICE_UNAVAILABLE, "nvidia-smi -c DEFAULT" },
        { CUDA_ERROR_NO_DEVICE, "container toolkit" },
        { CUDA_ERROR_NO_BINARY_FOR_GPU, "-Dgpu_archs=" },
        { CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "-Dgpu_archs=" },
        { CUDA_ERROR_LAUNCH_TIMEOUT, "smaller micro-batches" },
        { CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "restart the machine" },
        { CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "LD_LIBRARY_PATH" },
        { CUDA_ERROR_UNKNOWN, "nvidia_uvm" },
        { CUDA_ERROR_INVALID_VALUE, "number 1)" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const coh_status status = coh_cuda_check(&coh_stub_driver, all[i].code, "a call of %d", 7);
        assert_int_equal(status, i == 0 ? COH_ERR_MEMORY : COH_ERR_DEVICE);
        assert_non_null(strstr(coh_last_error(), "a call of 7: "));
        if (strstr(coh_last_error(), all[i].says) == NULL)
            fail_msg("%s", coh_last_error());
    }
    for (int i = 0; i < 2; i++) { /* of main memory: the caller's words name the flag */
        const coh_status status =
            coh_cuda_check(&coh_stub_driver, CUDA_ERROR_OUT_OF_MEMORY, "%s: lower --host-memory",
                           i == 0 ? "cuMemHostRegister of 7 bytes" : "cuMemAllocHost of 7 bytes");
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_non_null(strstr(coh_last_error(), "lower --host-memory: "));
        assert_null(strstr(coh_last_error(), "this GPU"));
    }
}

/* Launches with much shared memory; the kernel does nothing. */
static void launch_nothing(void *context, uint64_t number, uint32_t index)
{
    (void)number;
    (void)index;
    bench *b = context;
    const coh_cuda_grid grid = { .x = 1, .y = 1, .z = 1, .threads = 64, .shared_bytes = 100 << 10 };
    const coh_cuda_map_arguments arguments = { .count = 0 };
    coh_cuda_launch(b->queues[COH_LANE_COMPUTE], COH_CUDA_SCALE_F32, &grid, &arguments);
}

static void ignore(void *context, uint64_t number, uint32_t index)
{
    (void)context;
    (void)number;
    (void)index;
}

static void ignore_time(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    (void)context;
    (void)number;
    (void)index;
    assert_true(at_ns > 0);
}

/* Passes through everything once. */
static coh_status live_once(uint64_t seed)
{
    const coh_device_config config = { .kernels = &scale_kernels, .times_exactly = 1 };
    bench b;
    int is_right = 0;
    coh_stub_set_twin("coh_scale_f32", scale_twin, sizeof(coh_cuda_map_arguments));
    coh_status status = bench_open(&b, &config);
    if (status == COH_OK)
        status = bench_record(&b);
    if (status == COH_OK) {
        bench_enqueue(&b, 3, (uint32_t)seed);
        ops->launch(b.queues[COH_LANE_COMPUTE], launch_nothing, &b, 0, 0, NULL);
        ops->notify(b.queues[COH_LANE_COMPUTE], ignore, ignore_time, &b, 0, 0);
        bench_signal(&b, COH_LANE_COMPUTE);
        ops->wait_host(b.queues[COH_LANE_H2D], &b.host_counter, 1, NULL);
        bench_signal(&b, COH_LANE_H2D);
        coh_stub_start(seed); /* not before: a wait for what has happened makes no call */
        coh_counter_raise(&b.host_counter, 1);
        status = bench_finish(&b, 3, &is_right);
        ops->take_times(b.queues[COH_LANE_COMPUTE]);
        if (status == COH_OK)
            status = ops->failure(b.device);
        if (status == COH_OK)
            status = ops->fill(b.device, b.slot, 0, 4);
        coh_stub_stop();
        assert_true(status != COH_OK || is_right);
    }
    bench_close(&b);
    return status;
}

/* Calls that free or destroy: a failure of one has no consequence to report. */
static int unmakes(coh_stub_call call)
{
    switch ((int)call) {
    case COH_STUB_cuDevicePrimaryCtxRelease:
    case COH_STUB_cuCtxPushCurrent: /* at the end */
    case COH_STUB_cuCtxPopCurrent:
    case COH_STUB_cuMemFree:
    case COH_STUB_cuMemFreeHost:
    case COH_STUB_cuMemHostUnregister:
    case COH_STUB_cuStreamDestroy:
    case COH_STUB_cuStreamSynchronize: /* at the end */
    case COH_STUB_cuStreamQuery:       /* only made if something takes long */
    case COH_STUB_cuEventDestroy:
    case COH_STUB_cuModuleUnload:
    case COH_STUB_cuGraphDestroy:
    case COH_STUB_cuGraphExecDestroy:
        return 1;
    default:
        return 0;
    }
}

/* Calls that a pass through everything may omit. */
static int is_left_out(coh_stub_call call)
{
    return call == COH_STUB_cuInit || call == COH_STUB_cuDriverGetVersion ||
           call == COH_STUB_cuGetErrorName || call == COH_STUB_cuGetErrorString ||
           call == COH_STUB_cuDeviceTotalMem || call == COH_STUB_cuStreamQuery ||
           call == COH_STUB_cuEventQuery; /* of lines between GPUs: test_nccl.c */
}

/* Each call fails at its n-th use, with growing steps of n: one message, and nothing is left over.
 * With several memory nodes the driver is asked which is nearest, and may fail to answer; here
 * there is one node. */
static void whatever_call_fails_nothing_leaks(void **state)
{
    (void)state;
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "node:1 core:2 pu:1", 1), 0);
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++) {
        int hit_count = 0;
        for (uint64_t n = 1;; n += 1 + n / 4) {
            coh_stub_reset(BENCH_GPU_BYTES);
            coh_stub_fail_nth((coh_stub_call)call, n, CUDA_ERROR_UNKNOWN);
            coh_status status = live_once(n);
            int hit = coh_stub_fault_was_hit();
            assert_int_equal(coh_stub_live_count(), 0);
            if (!hit) {
                assert_int_equal(status, COH_OK);
                break;
            }
            hit_count++;
            if (status == COH_OK && !unmakes((coh_stub_call)call))
                print_error("%s failed at use %d, without a message\n",
                            coh_stub_call_name((coh_stub_call)call), (int)n);
            assert_true(status != COH_OK || unmakes((coh_stub_call)call));
            if (status != COH_OK) {
                assert_non_null(strstr(coh_last_error(), "CUDA_ERROR_STUB"));
                assert_null(strstr(coh_last_error(), "start it again"));
            }
        }
        assert_true(hit_count > 0 || is_left_out((coh_stub_call)call));
    }
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_told_of_after_those_it_waited_for),
        cmocka_unit_test(nothing_is_told_before_it_is_done),
        cmocka_unit_test(a_full_ring_makes_the_caller_wait),
        cmocka_unit_test(a_stream_waits_for_a_host_lane_by_its_mirror),
        cmocka_unit_test(a_wait_before_its_signal_is_refused),
        cmocka_unit_test(a_counter_that_nobody_watches_is_refused),
        cmocka_unit_test(under_lockstep_poison_comes_before_the_next_line),
        cmocka_unit_test(a_kernel_gets_its_arguments_by_value),
        cmocka_unit_test(a_predicate_that_no_kernel_takes_is_an_error),
        cmocka_unit_test(an_arena_that_does_not_fit_is_refused_with_what_would),
        cmocka_unit_test(a_copy_may_span_pieces_of_the_host_tier),
        cmocka_unit_test(arenas_are_in_the_ledger_while_they_stand),
        cmocka_unit_test(closing_ends_what_waits_and_tells_nobody),
        cmocka_unit_test(a_gpu_that_breaks_is_found_and_its_line_named),
        cmocka_unit_test(failures_of_a_machine_name_the_way_on),
        cmocka_unit_test(whatever_call_fails_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
