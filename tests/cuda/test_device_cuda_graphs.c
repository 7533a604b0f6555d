/* Recordings of a GPU's queue, over the stub driver: what they repeat, what invalidates them, and
 * that lines can still be launched if a recording fails. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* Runs first commands of streams until none may run. */
static void run_ready(void)
{
    int ready[BENCH_LANES + 1];
    while (coh_stub_ready(ready, BENCH_LANES + 1) > 0)
        coh_stub_run(ready[0]);
}

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

static const coh_cuda_queue *compute_of(const bench *b)
{
    return (const coh_cuda_queue *)(void *)b->queues[COH_LANE_COMPUTE];
}

/* ---- work of lines ---- */

static void add_one(const void *arguments)
{
    uint32_t *number;
    memcpy(&number, arguments, sizeof(number));
    ++*number;
}

static void enqueue_add(const bench *b)
{
    coh_stub_enqueue(compute_of(b)->stream, add_one, &b->slot, sizeof(b->slot));
}

/* Launches `number` commands, each of which adds 1. */
static void launch_adds(void *context, uint64_t number, uint32_t index)
{
    (void)index;
    for (uint64_t i = 0; i < number; i++)
        enqueue_add(context);
}

/* Waits for its stream, which cannot be recorded. */
static void launch_and_wait(void *context, uint64_t number, uint32_t index)
{
    const bench *b = context;
    launch_adds(context, number, index);
    coh_cuda_queue_fail((coh_cuda_queue *)(void *)b->queues[COH_LANE_COMPUTE],
                        coh_cuda_check(&coh_stub_driver,
                                       coh_stub_driver.cuStreamSynchronize(compute_of(b)->stream),
                                       "the wait of a line"));
}

/* Launches while coh-watch's query is held, if it is. */
static void launch_beside_a_question(void *context, uint64_t number, uint32_t index)
{
    launch_adds(context, number, index);
    while (coh_stub_query_is_held())
        sched_yield();
}

/* As a library does in its first call. */
static void launch_and_allocate(void *context, uint64_t number, uint32_t index)
{
    CUdeviceptr memory;
    launch_adds(context, number, index);
    assert_int_equal(coh_stub_driver.cuMemAlloc(&memory, 64), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuMemFree(memory), CUDA_SUCCESS);
}

static coh_status record(bench *b, coh_device_work work, uint64_t number,
                         coh_recording **out_recording)
{
    COH_TRY(ops->record_begin(b->queues[COH_LANE_COMPUTE]));
    ops->launch(b->queues[COH_LANE_COMPUTE], work, b, number, 0, NULL);
    return ops->record_end(b->queues[COH_LANE_COMPUTE], out_recording);
}

/* Reads the number after everything enqueued so far. */
static uint32_t read_number(bench *b)
{
    uint32_t number = 0;
    run_ready();
    assert_int_equal(ops->get(b->device, &number, b->slot, sizeof(number)), COH_OK);
    return number;
}

/* Checks that lines are still launched: nothing failed, and one more command adds 1. */
static void check_launching(bench *b)
{
    const uint32_t before = read_number(b);
    assert_int_equal(ops->failure(b->device), COH_OK);
    ops->launch(b->queues[COH_LANE_COMPUTE], launch_adds, b, 1, 0, NULL);
    assert_int_equal(read_number(b), before + 1);
}

/* ---- claims ---- */

static void a_recording_repeats_what_was_launched_in_one_call(void **state)
{
    (void)state;
    bench b;
    coh_recording *three, *five;
    open_bench(&b, NULL);
    assert_int_equal(record(&b, launch_adds, 3, &three), COH_OK);
    assert_int_equal(record(&b, launch_adds, 5, &five), COH_OK);
    assert_int_equal(coh_stub_pending_count(), 0); /* nothing was enqueued */
    assert_int_equal(read_number(&b), 0);
    for (int i = 0; i < 4; i++)
        ops->replay(b.queues[COH_LANE_COMPUTE], three);
    ops->replay(b.queues[COH_LANE_COMPUTE], five);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuGraphLaunch), 5);
    assert_int_equal(read_number(&b), 4 * 3 + 5);
    check_launching(&b);
    close_bench(&b);
}

/* A word is written after what is enqueued; recording enqueues nothing. */
static void the_host_hears_of_a_replay_and_not_of_a_recording(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    assert_int_equal(record(&b, launch_adds, 3, &recording), COH_OK);
    bench_signal(&b, COH_LANE_COMPUTE);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuStreamWriteValue64), 0);
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 1));
    ops->replay(b.queues[COH_LANE_COMPUTE], recording);
    bench_signal(&b, COH_LANE_COMPUTE);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuStreamWriteValue64), 1);
    assert_int_equal(coh_counter_read(&b.counters[COH_LANE_COMPUTE]), 1);
    assert_int_equal(read_number(&b), 3);
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 2));
    close_bench(&b);
}

static void what_is_one_call_anyway_is_not_recorded(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    for (uint64_t commands = 0; commands < 3; commands++) {
        assert_int_equal(record(&b, launch_adds, commands, &recording), COH_OK);
        assert_int_equal(recording != NULL, commands == 2);
    }
    check_launching(&b);
    close_bench(&b);
}

static void a_library_may_load_while_it_is_recorded(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    assert_int_equal(record(&b, launch_and_allocate, 2, &recording), COH_OK);
    assert_non_null(recording);
    close_bench(&b);
}

/* coh-watch is about to query a stream that was busy; by then the work is done and the recording
 * begins. */
static void no_question_meets_a_recording(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    ops->launch(b.queues[COH_LANE_COMPUTE], launch_adds, &b, 1, 0, NULL);
    bench_signal(&b, COH_LANE_COMPUTE);
    coh_stub_hold_query();
    while (!coh_stub_query_is_held())
        sched_yield();
    run_ready();
    assert_true(coh_counter_wait(&b.counters[COH_LANE_COMPUTE], 1));
    assert_int_equal(record(&b, launch_beside_a_question, 3, &recording), COH_OK);
    assert_non_null(recording);
    check_launching(&b);
    close_bench(&b);
}

/* The message is that of the first failure, and the device has not failed. */
static void what_cannot_be_recorded_is_launched(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    assert_int_equal(record(&b, launch_and_wait, 3, &recording), COH_ERR_DEVICE);
    assert_null(recording);
    assert_non_null(strstr(coh_last_error(), "the wait of a line"));
    check_launching(&b);
    assert_int_equal(b.failed_count, 0);
    assert_int_equal(record(&b, launch_adds, 3, &recording), COH_OK);
    assert_non_null(recording);
    close_bench(&b);
}

static void whatever_call_fails_lines_can_be_launched(void **state)
{
    (void)state;
    static const coh_stub_call calls[] = {
        COH_STUB_cuStreamBeginCapture,        COH_STUB_cuStreamEndCapture, COH_STUB_cuGraphGetNodes,
        COH_STUB_cuGraphInstantiateWithFlags, COH_STUB_cuGraphUpload,      COH_STUB_cuMemGetInfo
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (uint64_t n = 1; n < 5; n++) {
            bench b;
            coh_recording *recording;
            open_bench(&b, NULL);
            coh_stub_fail_nth(calls[i], n, CUDA_ERROR_UNKNOWN);
            coh_status status = COH_OK;
            for (int run = 0; run < 4 && status == COH_OK; run++)
                status = record(&b, launch_adds, 3, &recording);
            assert_true(coh_stub_fault_was_hit());
            assert_int_equal(status, COH_ERR_DEVICE);
            assert_non_null(strstr(coh_last_error(), coh_stub_call_name(calls[i])));
            check_launching(&b);
            close_bench(&b);
        }
}

static void a_replay_that_fails_is_the_devices_failure(void **state)
{
    (void)state;
    bench b;
    coh_recording *recording;
    open_bench(&b, NULL);
    assert_int_equal(record(&b, launch_adds, 3, &recording), COH_OK);
    coh_stub_fail_nth(COH_STUB_cuGraphLaunch, 2, CUDA_ERROR_LAUNCH_FAILED);
    ops->replay(b.queues[COH_LANE_COMPUTE], recording);
    ops->replay(b.queues[COH_LANE_COMPUTE], recording);
    assert_int_equal(ops->failure(b.device), COH_ERR_DEVICE);
    assert_non_null(strstr(coh_last_error(), "lane compute: cuGraphLaunch"));
    run_ready();
    close_bench(&b);
}

/* Recordings share the GPU memory outside the arena with others. */
static void recordings_keep_to_their_memory(void **state)
{
    (void)state;
    bench b;
    coh_recording *first, *second;
    open_bench(&b, NULL);
    coh_stub_set_graph_bytes((size_t)COH_CUDA_GRAPH_BYTES * 2 / 3);
    assert_int_equal(record(&b, launch_adds, 3, &first), COH_OK);
    assert_int_equal(record(&b, launch_adds, 4, &second), COH_ERR_MEMORY);
    assert_null(second);
    assert_non_null(strstr(coh_last_error(), "268435456 are kept for them"));
    ops->replay(b.queues[COH_LANE_COMPUTE], first);
    assert_int_equal(read_number(&b), 3);
    close_bench(&b);
}

static int device_records(const coh_device_config *config)
{
    coh_device_facts facts;
    bench b;
    open_bench(&b, config);
    ops->facts(b.device, &facts);
    close_bench(&b);
    return facts.records;
}

static void graphs_can_be_left_out_and_are_under_lockstep(void **state)
{
    (void)state;
    const coh_device_config lockstep = { .lockstep = 1 };
    bench b;
    assert_int_equal(device_records(NULL), 1);
    assert_int_equal(device_records(&lockstep), 0);
    assert_int_equal(setenv("COH_CUDA_GRAPHS", "none", 1), 0);
    assert_int_equal(device_records(NULL), 0);
    assert_int_equal(setenv("COH_CUDA_GRAPHS", "off", 1), 0);
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(bench_open(&b, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "COH_CUDA_GRAPHS=off: unset it, or give 'none'"));
    close_bench(&b);
    assert_int_equal(unsetenv("COH_CUDA_GRAPHS"), 0);
}

/* ---- the stub itself: it ends captures as a driver does ---- */

static CUresult ask_while_captured(CUstreamCaptureMode mode,
                                   CUresult (*ask)(CUstream stream, CUevent event))
{
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUcontext context;
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRetain(&context, 100), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPushCurrent(context), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(coh_stub_driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(coh_stub_driver.cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
    const CUresult asked = ask(stream, event);
    const CUresult ended = coh_stub_driver.cuStreamEndCapture(stream, &graph);
    assert_int_equal(ended,
                     asked == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(graph != NULL, asked == CUDA_SUCCESS);
    if (graph != NULL)
        assert_int_equal(coh_stub_driver.cuGraphDestroy(graph), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuEventDestroy(event), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuStreamDestroy(stream), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPopCurrent(&context), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRelease(100), CUDA_SUCCESS);
    assert_int_equal(coh_stub_live_count(), 0);
    return asked;
}

static CUresult ask_record(CUstream stream, CUevent event)
{
    return coh_stub_driver.cuEventRecord(event, stream);
}

static CUresult ask_wait(CUstream stream, CUevent event)
{
    return coh_stub_driver.cuStreamWaitEvent(stream, event, 0);
}

static CUresult ask_query(CUstream stream, CUevent event)
{
    (void)event;
    return coh_stub_driver.cuStreamQuery(stream);
}

static CUresult ask_memory(CUstream stream, CUevent event)
{
    CUdeviceptr memory;
    (void)stream;
    (void)event;
    const CUresult result = coh_stub_driver.cuMemAlloc(&memory, 64);
    return result != CUDA_SUCCESS ? result : coh_stub_driver.cuMemFree(memory);
}

static void in_the_stub_what_cannot_be_captured_ends_a_capture(void **state)
{
    (void)state;
    const CUresult refused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(ask_while_captured(relaxed, ask_record), refused);
    assert_int_equal(ask_while_captured(relaxed, ask_wait), refused);
    assert_int_equal(ask_while_captured(relaxed, ask_query), refused);
    assert_int_equal(ask_while_captured(relaxed, ask_memory), CUDA_SUCCESS);
    assert_int_equal(ask_while_captured(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, ask_memory), refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_stub_what_cannot_be_captured_ends_a_capture),
        cmocka_unit_test(a_recording_repeats_what_was_launched_in_one_call),
        cmocka_unit_test(the_host_hears_of_a_replay_and_not_of_a_recording),
        cmocka_unit_test(what_is_one_call_anyway_is_not_recorded),
        cmocka_unit_test(a_library_may_load_while_it_is_recorded),
        cmocka_unit_test(no_question_meets_a_recording),
        cmocka_unit_test(what_cannot_be_recorded_is_launched),
        cmocka_unit_test(whatever_call_fails_lines_can_be_launched),
        cmocka_unit_test(a_replay_that_fails_is_the_devices_failure),
        cmocka_unit_test(recordings_keep_to_their_memory),
        cmocka_unit_test(graphs_can_be_left_out_and_are_under_lockstep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
