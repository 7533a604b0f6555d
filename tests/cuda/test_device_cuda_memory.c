/* GPU memory outside the arena (memory/device_cuda.h), over the stub driver. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memory/device_cuda.h"
#include "memory/topology.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* The memory of context and modules is measured, whatever a plan assumes, and reported apart from
 * the arena. An arena that would leave too little is refused before anything is allocated. */
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

/* Makes a host tier on a machine made up by hwloc, with the GPU on node `near`. Returns the number
 * of queries for GPU attributes. */
static uint64_t make_host_arena(const char *machine, int near, coh_arena_facts *out_facts)
{
    const coh_device_config config = { .driver = &coh_stub_driver, .thread_count = 1 };
    coh_device *device;
    void *base;
    assert_int_equal(setenv("HWLOC_SYNTHETIC", machine, 1), 0);
    coh_stub_reset(COH_CUDA_RESERVE_BYTES + (1 << 20));
    coh_stub_set_near_node(near);
    assert_int_equal(ops->create(&config, &device), COH_OK);
    const uint64_t before = coh_stub_call_count(COH_STUB_cuDeviceGetAttribute);
    assert_int_equal(ops->arena_create(device, COH_TIER_HOST, 1 << 20, &base), COH_OK);
    const uint64_t asked = coh_stub_call_count(COH_STUB_cuDeviceGetAttribute) - before;
    ops->arena_facts(device, COH_TIER_HOST, out_facts);
    ops->arena_destroy(device, COH_TIER_HOST);
    ops->destroy(device);
    assert_int_equal(unsetenv("HWLOC_SYNTHETIC"), 0);
    return asked;
}

/* Every machine has node 0, and none has node 60, whose free memory is thus unknown. */
static void the_host_tier_is_on_the_memory_node_by_the_gpu(void **state)
{
    (void)state;
    static const char machine[] = "pack:2 [numa(indexes=0,60)] core:2 pu:1";
    coh_arena_facts facts;
    if (coh_node_free_bytes("", 0) < 1 << 20) {
        print_message("skipped: /sys does not say what memory is free\n");
        skip();
    }
    assert_true(make_host_arena(machine, 0, &facts) > 0);
    assert_true(facts.is_near);
    assert_int_equal(facts.node_count, 1);
    (void)make_host_arena(machine, 60, &facts);
    assert_false(facts.is_near);
    assert_int_equal(facts.node_count, 2);
    (void)make_host_arena(machine, COH_NODE_ANY, &facts);
    assert_false(facts.is_near);
    assert_int_equal(facts.node_count, 2);
}

static void with_one_memory_node_nobody_asks_which_is_near(void **state)
{
    (void)state;
    coh_arena_facts facts;
    assert_int_equal(make_host_arena("node:1 core:2 pu:1", 0, &facts), 0);
    assert_false(facts.is_near);
    assert_int_equal(facts.node_count, 1);
}

/* The host tier is pinned in pieces. If one fails, the pieces pinned before are reported and
 * unpinned. */
static void a_piece_that_cannot_be_pinned_leaves_none_pinned(void **state)
{
    (void)state;
    const coh_device_config config = { .driver = &coh_stub_driver, .thread_count = 1 };
    const uint64_t bytes = 2 * COH_CUDA_PIN_BYTES + 4096;
    coh_device *device;
    void *base;
    for (uint64_t n = 1; n <= 3; n++) {
        char expected[64];
        coh_stub_reset(COH_CUDA_RESERVE_BYTES + (1 << 20));
        assert_int_equal(ops->create(&config, &device), COH_OK);
        const uint64_t live_before = coh_stub_live_count();
        coh_stub_fail_nth(COH_STUB_cuMemHostRegister, n, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(ops->arena_create(device, COH_TIER_HOST, bytes, &base), COH_ERR_MEMORY);
        snprintf(expected, sizeof(expected), "%" PRIu64 " of %" PRIu64 " bytes are pinned",
                 (n - 1) * COH_CUDA_PIN_BYTES, bytes);
        assert_non_null(strstr(coh_last_error(), expected));
        assert_non_null(strstr(coh_last_error(), "lower host memory"));
        assert_null(base);
        assert_int_equal(coh_stub_call_count(COH_STUB_cuMemHostRegister), n);
        assert_int_equal(coh_stub_call_count(COH_STUB_cuMemHostUnregister), n - 1);
        assert_int_equal(coh_stub_live_count(), live_before);
        ops->destroy(device);
        assert_int_equal(coh_stub_live_count(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_context_and_modules_take_is_measured),
        cmocka_unit_test(the_host_tier_is_on_the_memory_node_by_the_gpu),
        cmocka_unit_test(with_one_memory_node_nobody_asks_which_is_near),
        cmocka_unit_test(a_piece_that_cannot_be_pinned_leaves_none_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
