/* What a GPU's memory holds beside the arena (memory/device_cuda.h), over the stub driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/device_cuda.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* Context and modules take what they take, whatever a plan thinks: it is told apart from the arena,
 * and an arena beside which too little would be left is refused before anything is allocated. */
static void what_context_and_modules_take_is_measured(void **state)
{
    (void)state;
    enum { CONTEXT = 5 << 20, MODULE = 3 << 20, OTHERS = 7 << 20, ARENA = 1 << 20 };
    const coh_device_config config = { .driver = &coh_stub_driver, .thread_count = 1 };
    coh_device_overhead overhead;
    coh_device *device;
    CUmodule module;
    void *base;
    coh_stub_reset(COH_CUDA_RESERVE_BYTES + CONTEXT + OTHERS + ARENA);
    coh_stub_take_memory(CONTEXT, MODULE, OTHERS);
    assert_int_equal(ops->create(&config, &device), COH_OK);
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, ARENA + 4096, &base),
                     COH_ERR_MEMORY);
    assert_non_null(strstr(coh_last_error(), "at most 1048576 would fit"));
    assert_int_equal(coh_stub_call_count(COH_STUB_cuMemAlloc), 0);
    assert_int_equal(ops->arena_create(device, COH_TIER_DEVICE, ARENA, &base), COH_OK);
    assert_int_equal(ops->overhead(device, &overhead), COH_OK);
    assert_int_equal(overhead.context_bytes, CONTEXT + OTHERS);
    assert_int_equal(overhead.library_bytes, 0);
    CUcontext ours;
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRetain(&ours, 100), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPushCurrent(ours), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuModuleLoadData(&module, ""), CUDA_SUCCESS);
    assert_int_equal(ops->overhead(device, &overhead), COH_OK);
    assert_int_equal(overhead.library_bytes, MODULE);
    assert_int_equal(overhead.free_bytes, COH_CUDA_RESERVE_BYTES - MODULE);
    assert_int_equal(overhead.total_bytes, COH_CUDA_RESERVE_BYTES + CONTEXT + OTHERS + ARENA);
    coh_stub_fail_nth(COH_STUB_cuMemGetInfo, 1, CUDA_ERROR_UNKNOWN);
    assert_int_equal(ops->overhead(device, &overhead), COH_ERR_DEVICE);
    assert_int_equal(coh_stub_driver.cuModuleUnload(module), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuCtxPopCurrent(&ours), CUDA_SUCCESS);
    assert_int_equal(coh_stub_driver.cuDevicePrimaryCtxRelease(100), CUDA_SUCCESS);
    ops->arena_destroy(device, COH_TIER_DEVICE);
    ops->destroy(device);
    assert_int_equal(coh_stub_live_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_context_and_modules_take_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
