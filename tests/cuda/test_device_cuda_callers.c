/* Callers may use the GPU themselves: whatever is called, and however it ends, their thread's
 * current context stays the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/cuda/device_bench.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

static void do_nothing(void *context, uint64_t number, uint32_t index)
{
    (void)context;
    (void)number;
    (void)index;
}

/* Calls the driver, which fails unless the GPU's context is current. */
static void look_at_memory(void *context, uint64_t number, uint32_t index)
{
    size_t free_bytes, total_bytes;
    (void)number;
    (void)index;
    int *wrong = context;
    *wrong += coh_stub_driver.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS;
}

#define STAYS(call)                                                                                \
    do {                                                                                           \
        (void)(call);                                                                              \
        assert_ptr_equal(coh_stub_current(), mine);                                                \
    } while (0)
#define STAYS_VOID(call)                                                                           \
    do {                                                                                           \
        call;                                                                                      \
        assert_ptr_equal(coh_stub_current(), mine);                                                \
    } while (0)

/* Makes every enqueueing call while the streams run. Returns how many of the lines' own driver
 * calls failed. */
static int enqueue_all(bench *b, CUcontext mine)
{
    coh_queue *compute = b->queues[COH_LANE_COMPUTE], *load = b->queues[COH_LANE_H2D];
    int wrong = 0;
    STAYS(ops->rehearse(compute, look_at_memory, &wrong, 0, 0));
    STAYS_VOID(ops->wait_host(load, &b->host_counter, 1, NULL));
    STAYS_VOID(ops->copy(load, b->slot, b->host->in[0], 4));
    STAYS_VOID(ops->notify(load, do_nothing, NULL, NULL, 0, 0));
    STAYS_VOID(bench_signal(b, COH_LANE_H2D));
    STAYS_VOID(bench_wait(b, COH_LANE_COMPUTE, COH_LANE_H2D, 1));
    STAYS_VOID(ops->launch(compute, look_at_memory, &wrong, 0, 0, NULL));
    STAYS_VOID(bench_signal(b, COH_LANE_COMPUTE));
    coh_counter_raise(&b->host_counter, 1);
    STAYS_VOID(ops->finish(compute));
    STAYS_VOID(bench_wait(b, COH_LANE_COMPUTE, COH_LANE_H2D, 7)); /* no lane signals it: refused */
    STAYS(ops->failure(b->device));
    return wrong;
}

static int live_once(CUcontext mine)
{
    bench b;
    int wrong = 0;
    void *shared = NULL;
    STAYS(bench_open(&b, NULL));
    coh_stub_start(1);
    if (b.queues[COH_LANE_D2H] != NULL) {
        wrong = enqueue_all(&b, mine);
        STAYS(ops->share(b.device, 64, &shared));
        STAYS_VOID(ops->unshare(b.device, shared));
        STAYS(ops->fill(b.device, b.slot, 0, 4));
        STAYS(ops->put(b.device, b.slot, b.host->in[0], 4));
        STAYS(ops->get(b.device, b.host->in[0], b.slot, 4));
        STAYS_VOID(ops->queue_close(b.queues[COH_LANE_H2D]));
        STAYS_VOID(ops->copy(b.queues[COH_LANE_H2D], b.slot, b.host->in[0], 4));
    }
    coh_stub_stop();
    STAYS_VOID(bench_close(&b));
    assert_int_equal(coh_stub_live_count(), 0);
    return wrong;
}

static void whatever_is_called_the_callers_context_stays(void **state)
{
    (void)state;
    CUcontext mine = coh_stub_callers_context(), popped;
    coh_stub_reset(BENCH_GPU_BYTES);
    assert_int_equal(live_once(NULL), 0);
    assert_int_equal(coh_stub_driver.cuCtxPushCurrent(mine), CUDA_SUCCESS);
    assert_int_equal(live_once(mine), 0);
    assert_int_equal(coh_stub_driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, mine);
}

static void whatever_call_fails_the_callers_context_stays(void **state)
{
    (void)state;
    CUcontext mine = coh_stub_callers_context(), popped;
    for (int call = 0; call < COH_STUB_CALL_COUNT; call++)
        for (uint64_t n = 1; n < 40; n += n) {
            coh_stub_reset(BENCH_GPU_BYTES);
            assert_int_equal(coh_stub_driver.cuCtxPushCurrent(mine), CUDA_SUCCESS);
            if (call != COH_STUB_cuCtxPopCurrent) /* a failed pop has popped, too */
                coh_stub_fail_nth((coh_stub_call)call, n, CUDA_ERROR_UNKNOWN);
            (void)live_once(mine);
            coh_stub_fail_nth((coh_stub_call)call, 0, CUDA_SUCCESS);
            assert_int_equal(coh_stub_driver.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_called_the_callers_context_stays),
        cmocka_unit_test(whatever_call_fails_the_callers_context_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
