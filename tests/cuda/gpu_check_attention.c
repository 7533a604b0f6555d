/* Attention on a GPU: by the project's kernels, and by cuDNN for the shapes that it accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "tests/cuda/attention_checks.h"
#include "tests/cuda/gpu_check.h"

static void finish(void *queue)
{
    (void)queue;
    gpu_check_wait();
}

static attention_bench bench = { .finish = finish,
                                 .share = gpu_check_share,
                                 .unshare = gpu_check_unshare };

static void shapes_are_the_naive_loop(void **state)
{
    (void)state;
    attention_check_shapes(&bench);
}

static void gradients_are_added_to_what_is_there(void **state)
{
    (void)state;
    attention_check_adding(&bench);
}

static void results_may_stand_where_operands_did_or_be_left_out(void **state)
{
    (void)state;
    attention_check_places(&bench);
}

/* Forward plans exist already, so new ones are for backward. Without a new plan, only the project's
 * own kernels would have been checked. */
static void by_atomics_they_are_the_naive_loop(void **state)
{
    (void)state;
    attention_bench atomic = bench;
    const coh_attention_plans *plans = coh_cuda_queue_libraries(gpu.queue)->attention;
    const int64_t known = coh_attention_plans_count(plans);
    atomic.atomics = 1;
    attention_check_shapes(&atomic);
    attention_check_places(&atomic);
    assert_true(coh_attention_plans_count(plans) > known);
}

static void a_decoder_goes_row_by_row(void **state)
{
    (void)state;
    attention_check_decoder(&bench);
}

int gpu_check_attention(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_the_naive_loop),
        cmocka_unit_test(gradients_are_added_to_what_is_there),
        cmocka_unit_test(results_may_stand_where_operands_did_or_be_left_out),
        cmocka_unit_test(a_decoder_goes_row_by_row),
    };
    bench.queues[0] = bench.queues[1] = gpu.queue;
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}

int gpu_check_attention_library(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_the_naive_loop),
        cmocka_unit_test(results_may_stand_where_operands_did_or_be_left_out),
        cmocka_unit_test(by_atomics_they_are_the_naive_loop),
    };
    bench.queues[0] = bench.queues[1] = gpu.queue;
    const int failed = cmocka_run_group_tests_name("attention-cudnn", tests, NULL, NULL);
    const coh_cuda_libraries *libraries = coh_cuda_queue_libraries(gpu.queue);
    if (libraries == NULL || libraries->attention == NULL ||
        coh_attention_plans_count(libraries->attention) > 0)
        return failed;
    printf("cuDNN has no plan of any shape\n");
    return failed + 1;
}
