/* gpu-check: every kernel of CUDA on this machine's GPU, against references in double. What comes
 * out is poisoned before, and each call is made twice for the same bits. */
#include "tests/cuda/gpu_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/table.h"
#include "memory/device_cuda.h"

#define SKIPPED 77

coh_cuda_queue *gpu_check_queue;

static void must(CUresult result, const char *what)
{
    if (coh_cuda_check(gpu_check_queue->driver, result, "%s", what) != COH_OK)
        fail_msg("%s", coh_last_error());
}

void gpu_check_wait(void)
{
    if (coh_device_cuda.failure(gpu_check_queue->device) != COH_OK)
        fail_msg("%s", coh_last_error());
    must(gpu_check_queue->driver->cuStreamSynchronize(gpu_check_queue->stream),
         "cuStreamSynchronize");
}

void gpu_check_share(void *memory, size_t bytes)
{
    CUdeviceptr seen = 0;
    must(gpu_check_queue->driver->cuMemHostRegister(
             memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
         "cuMemHostRegister");
    must(gpu_check_queue->driver->cuMemHostGetDevicePointer(&seen, memory, 0),
         "cuMemHostGetDevicePointer");
    assert_true(seen == (CUdeviceptr)(uintptr_t)memory);
}

void gpu_check_unshare(void *memory)
{
    must(gpu_check_queue->driver->cuMemHostUnregister(memory), "cuMemHostUnregister");
}

/* ---- a table whose kernels are done when they return ---- */

static void attention(void *queue, const coh_attention *a)
{
    coh_cuda_attention(queue, a);
    gpu_check_wait();
}

static void attention_backward(void *queue, const coh_attention *a)
{
    coh_cuda_attention_backward(queue, a);
    gpu_check_wait();
}

static void attention_decode(void *queue, const coh_attention_decode *d)
{
    coh_cuda_attention_decode(queue, d);
    gpu_check_wait();
}

static const coh_kernel_table table = {
    .attention = attention,
    .attention_backward = attention_backward,
    .attention_decode = attention_decode,
};

static const coh_device_kernels kernels = { .table = &table,
                                            .open = coh_cuda_kernels_open,
                                            .close = coh_cuda_kernels_close };

/* The context of the device's queues, which is the GPU's primary one, becomes this thread's. */
static coh_status enter(const coh_cuda_driver *driver, CUdevice *out_gpu)
{
    CUcontext context;
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceGet(out_gpu, 0), "cuDeviceGet"));
    COH_TRY(coh_cuda_check(driver, driver->cuDevicePrimaryCtxRetain(&context, *out_gpu),
                           "cuDevicePrimaryCtxRetain"));
    return coh_cuda_check(driver, driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

int main(void)
{
    const coh_device_config config = { .thread_count = 1, .kernels = &kernels };
    coh_device *device = NULL;
    coh_queue *queue = NULL;
    if (coh_device_cuda.create(&config, &device) != COH_OK) {
        printf("skipped: %s\n", coh_last_error());
        return SKIPPED;
    }
    int failed = 1;
    CUdevice gpu = 0;
    coh_status status = coh_device_cuda.queue_create(device, COH_LANE_COMPUTE, &queue);
    gpu_check_queue = (coh_cuda_queue *)(void *)queue;
    if (status == COH_OK)
        status = enter(gpu_check_queue->driver, &gpu);
    if (status == COH_OK) {
        failed = gpu_check_attention();
        (void)gpu_check_queue->driver->cuDevicePrimaryCtxRelease(gpu);
    } else {
        printf("%s\n", coh_last_error());
    }
    coh_device_cuda.queue_destroy(queue);
    coh_device_cuda.destroy(device);
    return failed;
}
