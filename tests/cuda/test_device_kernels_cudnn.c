/* If cuDNN refuses a shape, or is too old for any, the project's kernels compute and a message is
 * logged. Other failures of cuDNN are errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "memory/device_cuda.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/kernel_session.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* Forward and backward are refused: each is logged once, and the project's kernels compute. */
static void a_shape_that_cudnn_refuses_is_said_once(void **state)
{
    (void)state;
    static const cudnnStatus_t refusals[] = { CUDNN_STATUS_NOT_SUPPORTED,
                                              CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                                              CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE };
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        session s;
        session_begin(COH_OK, COH_OK);
        fake_dnn.finalize_with[0] = fake_dnn.finalize_with[1] = refusals[i];
        assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
        for (int time = 0; time < 2; time++)
            assert_int_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), COH_OK);
        assert_int_equal(s.sentence_count, 2);
        assert_string_equal(s.sentence,
                            "cuDNN does not take attention forward of 1 x 1 heads (1 of keys) by 4 "
                            "tokens by 32: a fake failure; kernels of our own compute it");
        session_enqueue(&s);
        assert_true(session_finish(&s));
        assert_int_equal(s.sentence_count, 2);
        assert_int_equal(fake_dnn.executed, 0);
        assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), 7);
        session_close(&s);
    }
}

/* As if it were missing, with one message. */
static void an_old_cudnn_is_left_out_and_said(void **state)
{
    (void)state;
    session s;
    session_begin(COH_OK, COH_OK);
    fake_dnn.version--;
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    assert_int_equal(s.sentence_count, 1);
    assert_non_null(strstr(s.sentence, "cuDNN 9.18.0 is not used: before 9.18.1 "));
    assert_int_equal(here.open_count, 1); /* cuBLASLt */
    assert_int_equal(here.handle_count, 0);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(fake_dnn.calls, 0);
    assert_int_equal(s.sentence_count, 1);
    session_close(&s);
}

static void whatever_else_cudnn_fails_with_is_an_error(void **state)
{
    (void)state;
    static const struct {
        cudnnStatus_t with;
        coh_status status;
    } cases[] = {
        { CUDNN_STATUS_NOT_INITIALIZED, COH_ERR_DEVICE },
        { CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, COH_ERR_DEVICE },
        { CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, COH_ERR_DEVICE },
        { CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, COH_ERR_DEVICE },
        { CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, COH_ERR_DEVICE },
        { CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, COH_ERR_MEMORY },
        { CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, COH_ERR_MEMORY },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        session s;
        session_begin(COH_OK, COH_OK);
        fake_dnn.finalize_with[0] = cases[i].with;
        fake_dnn.candidates = 2; /* the second one would work */
        assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
        assert_int_equal(ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX), cases[i].status);
        assert_non_null(strstr(coh_last_error(), "cuDNN cannot plan attention forward"));
        assert_int_equal(s.sentence_count, 0);
        session_close(&s);
    }
}

static void behind_a_refusal_the_next_engine_is_asked(void **state)
{
    (void)state;
    session s;
    session_begin(COH_OK, COH_OK);
    fake_dnn.finalize_with[0] = CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT;
    fake_dnn.candidates = 2;
    assert_int_equal(session_open(&s, &coh_cuda_device_kernels), COH_OK);
    session_enqueue(&s);
    assert_true(session_finish(&s));
    assert_int_equal(s.sentence_count, 0);
    assert_int_equal(fake_dnn.executed, 2);
    session_close(&s);
}

static void whatever_call_of_cudnn_fails_nothing_is_left(void **state)
{
    (void)state;
    int n = 1;
    for (int hit = 1; hit; n += 1 + n / 8) { /* planning and executing */
        session_begin(COH_OK, COH_OK);
        fake_dnn.fail_nth = n;
        fake_dnn.fail_with = CUDNN_STATUS_INTERNAL_ERROR;
        const coh_status status = session_live_once();
        hit = session_failed_well(status, fake_dnn.calls >= n, "a call of cuDNN", (uint64_t)n);
    }
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_that_cudnn_refuses_is_said_once),
        cmocka_unit_test(an_old_cudnn_is_left_out_and_said),
        cmocka_unit_test(whatever_else_cudnn_fails_with_is_an_error),
        cmocka_unit_test(behind_a_refusal_the_next_engine_is_asked),
        cmocka_unit_test(whatever_call_of_cudnn_fails_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
