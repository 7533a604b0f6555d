/* The kernels of a GPU's compute queue (kernels/cuda/device_kernels.h), over the stub driver:
 * opening, rehearsing, failing and closing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/algorithm.h"
#include "kernels/cuda/libraries.h"
#include "kernels/kernels.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/kernel_session.h"
#include "tests/cuda/stub_driver.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* ---- claims ---- */

static void without_libraries_own_kernels_do_the_work(void **state)
{
    (void)state;
    session s;
    session_begin(COH_ERR_DEVICE, COH_ERR_DEVICE);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    assert_null(session_queue(&s)->libraries->products);
    assert_null(session_queue(&s)->libraries->attention);
    assert_int_equal(s.sentence_count, 2); /* a run says what it lacks */
    assert_non_null(strstr(s.sentence, "kernels of our own compute instead: "));
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(session_products, 1);
    session_close(&s);
}

/* Nothing is allocated outside the arena, since the planner would not know of it. */
static void libraries_work_in_the_slot_and_on_the_stream_of_the_queue(void **state)
{
    (void)state;
    session s;
    session_begin(COH_OK, COH_OK);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuMemAlloc), 1);
    assert_int_equal(here.handle_count, 1);
    assert_ptr_equal(here.stream, session_queue(&s)->stream);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(session_products, 0);
    assert_int_equal(fake_lt.products, 1);
    assert_int_equal(fake_dnn.executed, 2);
    assert_ptr_equal(fake_lt.workspace, s.arena + OFFSET);
    assert_int_equal(fake_lt.workspace_bytes, COH_CUDA_PRODUCT_WORKSPACE_BYTES);
    assert_ptr_equal(fake_lt.stream, session_queue(&s)->stream);
    /* a fake cuDNN plan fills its part with ones, from its begin */
    const unsigned char *other =
        (unsigned char *)s.arena + OFFSET + COH_CUDA_PRODUCT_WORKSPACE_BYTES;
    assert_int_equal(other[-1], 0);
    assert_int_equal(other[0], 0xff);
    session_close(&s);
}

static void one_library_may_be_missing(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        session s;
        session_begin(missing == 0 ? COH_ERR_DEVICE : COH_OK,
                      missing == 1 ? COH_ERR_DEVICE : COH_OK);
        assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
        session_enqueue(&s);
        assert_true(session_finish(&s));
        assert_int_equal(fake_lt.products, missing == 1);
        assert_int_equal(session_products, missing == 0);
        assert_int_equal(fake_dnn.executed, missing == 0 ? 2 : 0);
        session_close(&s);
    }
}

static void a_library_that_is_here_and_broken_is_an_error(void **state)
{
    (void)state;
    static const coh_status broken[] = { COH_ERR_IO, COH_ERR_CORRUPT, COH_ERR_MEMORY };
    for (int i = 0; i < 6; i++) {
        const coh_status status = broken[i / 2];
        session s;
        session_begin(i % 2 == 0 ? status : COH_OK, i % 2 == 1 ? status : COH_OK);
        assert_int_equal(session_open(&s, &coh_cuda_device_kernels), status);
        assert_null(s.queue);
        assert_string_equal(coh_last_error(), i % 2 == 0 ? "cuBLASLt is not as it should be"
                                                         : "cuDNN is not as it should be");
        session_close(&s);
    }
}

static void a_slot_that_is_too_small_is_our_error(void **state)
{
    (void)state;
    session s;
    coh_device_kernels small = coh_cuda_device_kernels;
    small.workspace_bytes--;
    session_begin(COH_OK, COH_ERR_DEVICE);
    assert_int_equal(session_open(&s, &small), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "bytes of workspace"));
    session_close(&s);
}

/* Each plan runs once to load its kernels; the project's own kernels are not launched. */
static void a_rehearsal_makes_ready_and_leaves_nothing_under_way(void **state)
{
    (void)state;
    session s;
    session_begin(COH_OK, COH_OK);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    const uint64_t waited = coh_stub_call_count(COH_STUB_cuStreamSynchronize);
    for (int time = 0; time < 2; time++) {
        assert_int_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), COH_OK);
        assert_int_equal(coh_stub_pending_count(), 0);
        assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), 0);
        assert_int_equal(coh_stub_call_count(COH_STUB_cuStreamSynchronize) - waited, 1);
        assert_int_equal(fake_lt.products, 1);
        assert_int_equal(fake_dnn.executed, 2);
    }
    const uint64_t allocated = alloc_count();
    const int made = fake_lt.live_objects, asked = fake_lt.heuristics;
    const uint64_t attributes = coh_stub_call_count(COH_STUB_cuFuncSetAttribute);
    assert_true(asked > 0 && attributes > 0);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(fake_lt.products, 2);
    assert_int_equal(fake_dnn.executed, 4);
    assert_true(coh_stub_call_count(COH_STUB_cuLaunchKernel) > 0);
    assert_int_equal(fake_lt.live_objects, made);
    assert_int_equal(fake_lt.heuristics, asked);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuFuncSetAttribute), attributes);
    assert_int_equal(alloc_count(), allocated);
    session_close(&s);
}

/* While a device is measured, products are timed when their plans are made, on the queue's stream
 * once it is empty. From then on the fastest algorithm multiplies. */
static void while_algorithms_are_measured_a_rehearsal_stores_the_fastest(void **state)
{
    (void)state;
    session s;
    int32_t count;
    session_begin(COH_OK, COH_OK);
    fake_lt.algorithm_count = 2;
    fake_lt.broken_algorithm = 1;
    coh_algorithms_measure(1);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    const uint64_t synchronised = coh_stub_call_count(COH_STUB_cuStreamSynchronize);
    assert_int_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), COH_OK);
    coh_algorithms_measure(0);
    assert_true(fake_lt.products > 5);
    assert_ptr_equal(fake_lt.stream, (cudaStream_t)(void *)session_queue(&s)->stream);
    assert_ptr_equal(fake_lt.workspace, session_queue(&s)->workspace);
    assert_true(coh_stub_call_count(COH_STUB_cuStreamSynchronize) > synchronised + 10);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), 0);
    const coh_algorithm *line = coh_algorithms_all(&count);
    assert_int_equal(count, 1);
    assert_int_equal(line->words[6], 1);
    assert_string_equal(line->device.name, "stub");
    assert_int_equal(line->form.rows, 16);
    assert_true(line->microseconds > 0);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(fake_lt.algorithm_words[6], 1);
    session_close(&s);
    coh_algorithms_take(NULL, 0);
}

/* Results that could not be stored are not measured: the product runs as it will with that
 * table. */
static void beside_a_full_table_products_run_by_the_first_proposal(void **state)
{
    (void)state;
    session s;
    coh_algorithm *lines;
    int32_t count;
    assert_int_equal(COH_ALLOC(COH_ALGORITHMS_MAX, &lines), COH_OK);
    for (int i = 0; i < COH_ALGORITHMS_MAX; i++)
        lines[i] = (coh_algorithm){ .device = { .name = "another" }, .form = { .rows = i + 1 } };
    assert_int_equal(coh_algorithms_sort(lines, COH_ALGORITHMS_MAX), COH_OK);
    session_begin(COH_OK, COH_OK);
    coh_algorithms_take(lines, COH_ALGORITHMS_MAX);
    fake_lt.algorithm_count = 2;
    coh_algorithms_measure(1);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    assert_int_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), COH_OK);
    coh_algorithms_measure(0);
    assert_int_equal(fake_lt.most, 1);
    (void)coh_algorithms_all(&count);
    assert_int_equal(count, COH_ALGORITHMS_MAX);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    session_close(&s);
    coh_algorithms_take(NULL, 0);
}

static void a_rehearsal_that_fails_is_the_devices_failure(void **state)
{
    (void)state;
    session s;
    session_begin(COH_OK, COH_OK);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    fake_lt.fail_nth = 1;
    assert_int_not_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), COH_OK);
    assert_non_null(strstr(coh_last_error(), "cuBLASLt"));
    assert_int_not_equal(ops->failure(s.device), COH_OK);
    session_close(&s);
}

/* The host learns of it in place of the line's end, with the line's number, and with the host's
 * message. */
static void try_a_bad_index(int records)
{
    session s;
    char expected[256];
    session_begin(COH_OK, COH_OK);
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    if (records)
        assert_int_equal(session_record(&s), COH_OK);
    assert_int_equal(s.recording != NULL, records);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    int32_t *indices = (int32_t *)(void *)(s.tensors + 32768);
    indices[70] = 7;
    indices[90] = -1;
    session_enqueue(&s);
    session_enqueue(&s);
    assert_false(session_finish(&s));
    assert_int_equal(coh_counter_read(&s.done), 1);
    assert_int_equal(s.failed_number, NUMBER + 2);
    assert_int_equal(s.failed_index, INDEX);
    const coh_index_check check = {
        .what = "token", .remedy = "take another", .indices = indices, .count = 100, .most = 6
    };
    assert_int_equal(coh_kernel_check_indices(NULL, &check), COH_ERR_CORRUPT);
    snprintf(expected, sizeof(expected), "lane compute: %s", coh_last_error());
    assert_int_equal(ops->failure(s.device), COH_ERR_CORRUPT);
    assert_string_equal(coh_last_error(), expected);
    session_close(&s);
}

static void a_bad_index_stops_the_device_before_its_line_ends(void **state)
{
    (void)state;
    try_a_bad_index(0);
    try_a_bad_index(1);
}

/* ---- every call fails once ---- */

static void whatever_the_driver_refuses_nothing_is_left(void **state)
{
    (void)state;
    static const coh_stub_call calls[] = {
        COH_STUB_cuModuleLoadData, COH_STUB_cuModuleGetFunction,       COH_STUB_cuFuncLoad,
        COH_STUB_cuMemAllocHost,   COH_STUB_cuMemHostGetDevicePointer, COH_STUB_cuFuncSetAttribute,
        COH_STUB_cuLaunchKernel,
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t n = 1;
        for (int hit = 1; hit; n += 1 + (test_is_brief() ? 2 * n : n / 2)) {
            session_begin(COH_OK, COH_OK);
            coh_stub_fail_nth(calls[i], n, CUDA_ERROR_UNKNOWN);
            const coh_status status = session_live_once();
            hit = session_failed_well(status, coh_stub_fault_was_hit(),
                                      coh_stub_call_name(calls[i]), n);
        }
        assert_true(n > 2);
    }
}

static void whatever_the_libraries_refuse_nothing_is_left(void **state)
{
    (void)state;
    int n = 1;
    for (int hit = 1; hit; n++) {
        session_begin(COH_OK, COH_OK);
        fake_lt.fail_nth = n;
        const coh_status status = session_live_once();
        hit = session_failed_well(status, fake_lt.was_hit, "cuBLASLt", (uint64_t)n);
    }
    assert_true(n > 5);
    for (n = 1; n <= 3; n++) { /* creating a handle, and setting its stream */
        session_begin(COH_OK, COH_OK);
        here.fail_nth = n;
        const coh_status status = session_live_once();
        (void)session_failed_well(status, here.calls >= n, "cuDNN", (uint64_t)n);
    }
    assert_int_equal(here.calls, 2);
}

static void whatever_allocation_fails_nothing_is_left(void **state)
{
    (void)state;
    uint64_t n = 1;
    for (int hit = 1; hit; n++) {
        session_begin(COH_OK, COH_OK);
        alloc_fail_nth(n);
        const coh_status status = session_live_once();
        hit = session_failed_well(status, alloc_fault_was_hit(), "an allocation", n);
        alloc_fail_nth(0);
    }
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_libraries_own_kernels_do_the_work),
        cmocka_unit_test(libraries_work_in_the_slot_and_on_the_stream_of_the_queue),
        cmocka_unit_test(one_library_may_be_missing),
        cmocka_unit_test(a_library_that_is_here_and_broken_is_an_error),
        cmocka_unit_test(a_slot_that_is_too_small_is_our_error),
        cmocka_unit_test(a_rehearsal_makes_ready_and_leaves_nothing_under_way),
        cmocka_unit_test(while_algorithms_are_measured_a_rehearsal_stores_the_fastest),
        cmocka_unit_test(beside_a_full_table_products_run_by_the_first_proposal),
        cmocka_unit_test(a_rehearsal_that_fails_is_the_devices_failure),
        cmocka_unit_test(a_bad_index_stops_the_device_before_its_line_ends),
        cmocka_unit_test(whatever_the_driver_refuses_nothing_is_left),
        cmocka_unit_test(whatever_the_libraries_refuse_nothing_is_left),
        cmocka_unit_test(whatever_allocation_fails_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
