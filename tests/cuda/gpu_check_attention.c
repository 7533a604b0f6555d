/* Attention on a GPU: the own kernels, and where there is cuDNN its plans for the shapes that it
 * takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/libraries.h"
#include "tests/cuda/attention_checks.h"
#include "tests/cuda/gpu_check.h"

#define WORKSPACE_BYTES 4096

static attention_bench bench = { .share = gpu_check_share, .unshare = gpu_check_unshare };

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

static void a_decoder_goes_row_by_row(void **state)
{
    (void)state;
    attention_check_decoder(&bench);
}

/* ---- cuDNN: its handle and plans stand in the queue while a group runs ---- */

static struct {
    coh_cudnn *library;
    cudnnHandle_t handle;
    coh_cuda_libraries libraries;
    CUdeviceptr workspace;
} dnn;

static int add_cudnn(void **state)
{
    (void)state;
    coh_cuda_queue *queue = gpu_check_queue;
    const coh_status status = coh_cudnn_open(&dnn.library);
    if (status != COH_OK)
        return status == COH_ERR_DEVICE ? 0 : -1;
    if (dnn.library->call.cudnnCreate(&dnn.handle) != CUDNN_STATUS_SUCCESS ||
        dnn.library->call.cudnnSetStream(dnn.handle, queue->stream) != CUDNN_STATUS_SUCCESS ||
        queue->driver->cuMemAlloc(&dnn.workspace, WORKSPACE_BYTES) != CUDA_SUCCESS)
        return -1;
    const coh_attention_plans_config config = { .call = &dnn.library->call,
                                                .handle = dnn.handle,
                                                .workspace = (void *)dnn.workspace,
                                                .workspace_bytes = WORKSPACE_BYTES };
    queue->libraries = &dnn.libraries;
    return coh_attention_plans_create(&config, &dnn.libraries.attention) == COH_OK ? 0 : -1;
}

static int remove_cudnn(void **state)
{
    (void)state;
    gpu_check_queue->libraries = NULL;
    coh_attention_plans_destroy(dnn.libraries.attention);
    if (dnn.handle != NULL)
        dnn.library->call.cudnnDestroy(dnn.handle);
    if (dnn.workspace != 0)
        gpu_check_queue->driver->cuMemFree(dnn.workspace);
    coh_cudnn_close(dnn.library);
    return 0;
}

static void cudnn_is_the_naive_loop(void **state)
{
    (void)state;
    if (dnn.library == NULL)
        skip();
    attention_check_shapes(&bench);
}

static void cudnn_takes_dq_in_the_place_of_dy(void **state)
{
    (void)state;
    if (dnn.library == NULL)
        skip();
    attention_check_places(&bench);
}

int gpu_check_attention(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(shapes_are_the_naive_loop),
        cmocka_unit_test(gradients_are_added_to_what_is_there),
        cmocka_unit_test(results_may_stand_where_operands_did_or_be_left_out),
        cmocka_unit_test(a_decoder_goes_row_by_row),
    };
    const struct CMUnitTest cudnn[] = {
        cmocka_unit_test(cudnn_is_the_naive_loop),
        cmocka_unit_test(cudnn_takes_dq_in_the_place_of_dy),
    };
    bench.queues[0] = bench.queues[1] = gpu_check_queue;
    return cmocka_run_group_tests(own, NULL, NULL) +
           cmocka_run_group_tests(cudnn, add_cudnn, remove_cudnn);
}
