/* Opens and closes everything that a GPU's compute queue calls: compiled kernels, index checks,
 * cuBLASLt and cuDNN. Next: device_kernels.h; launch.h, products.h and attention_cudnn.h for the
 * parts. */
#include "kernels/cuda/device_kernels.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/index_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"

/* The object behind a queue's `libraries`. */
typedef struct opened_queue {
    coh_cuda_libraries seen; /* first: the part that kernels see */
    coh_cublaslt *cublaslt;
    coh_cudnn *cudnn;
    cudnnHandle_t cudnn_handle;
    coh_cuda_index_checks checks;
} opened_queue;

/* Turns the error of a missing library into COH_OK, and logs it: kernels of our own are slower. */
static coh_status unless_missing(const coh_cuda_queue *q, coh_status status)
{
    if (status != COH_ERR_DEVICE)
        return status;
    if (q->log != NULL) {
        (void)coh_fail_prefix(status, "kernels of our own compute instead");
        q->log(q->log_context, coh_last_error());
    }
    return COH_OK;
}

/* Returns the time after all enqueued work is done. */
static coh_status stream_clock(void *queue, uint64_t *out_ns)
{
    const coh_cuda_queue *q = queue;
    *out_ns = 0;
    COH_TRY(coh_cuda_check(q->driver, q->driver->cuStreamSynchronize(q->stream),
                           "cuStreamSynchronize"));
    *out_ns = coh_clock_ns();
    return COH_OK;
}

static coh_status start_products(coh_cuda_queue *q, opened_queue *opened)
{
    coh_device_facts facts;
    coh_device_cuda.facts(q->device, &facts);
    const coh_cuda_products_config config = {
        .functions = &opened->cublaslt->call,
        .workspace = q->workspace,
        .workspace_bytes = COH_CUDA_PRODUCT_WORKSPACE_BYTES,
        .device_name = facts.name,
        .multiprocessors = q->multiprocessor_count,
        .stream = q->stream,
        .clock = stream_clock,
        .clock_context = q,
    };
    return coh_cuda_products_create(&config, &opened->seen.products);
}

static coh_status start_attention(const coh_cuda_queue *q, opened_queue *opened)
{
    const coh_cudnn_functions *call = &opened->cudnn->call;
    cudnnStatus_t status = call->cudnnCreate(&opened->cudnn_handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = call->cudnnSetStream(opened->cudnn_handle, q->stream);
    if (status != CUDNN_STATUS_SUCCESS)
        return coh_fail(COH_ERR_DEVICE,
                        "cuDNN (%s) cannot be started: %s; cohobate doctor says which driver and "
                        "libraries are here",
                        opened->cudnn->path, call->cudnnGetErrorString(status));
    const coh_attention_plans_config config = {
        .call = call,
        .handle = opened->cudnn_handle,
        .workspace = (char *)q->workspace + COH_CUDA_PRODUCT_WORKSPACE_BYTES,
        .workspace_bytes = COH_CUDA_ATTENTION_WORKSPACE_BYTES,
        .log = q->log,
        .log_context = q->log_context,
    };
    return coh_attention_plans_create(&config, &opened->seen.attention);
}

/* Closes a cuDNN that is too old, and logs it. */
static void leave_out_old(const coh_cuda_queue *q, opened_queue *opened)
{
    if (opened->cudnn == NULL ||
        coh_cuda_library_accept(&coh_cuda_library_cudnn,
                                (int32_t)opened->cudnn->call.cudnnGetVersion()) == COH_OK)
        return;
    if (q->log != NULL)
        q->log(q->log_context, coh_last_error());
    coh_cudnn_close(opened->cudnn);
    opened->cudnn = NULL;
}

static coh_status open_libraries(coh_cuda_queue *q, opened_queue *opened)
{
    COH_TRY(unless_missing(q, coh_cublaslt_open(&opened->cublaslt)));
    COH_TRY(unless_missing(q, coh_cudnn_open(&opened->cudnn)));
    leave_out_old(q, opened);
    if (opened->cublaslt == NULL && opened->cudnn == NULL)
        return COH_OK;
    if (q->workspace_bytes < COH_CUDA_LIBRARY_BYTES)
        return coh_fail(COH_ERR_INTERNAL,
                        "libraries of a GPU want %zu bytes of workspace, the queue has %zu",
                        COH_CUDA_LIBRARY_BYTES, q->workspace_bytes);
    if (opened->cublaslt != NULL)
        COH_TRY(start_products(q, opened));
    return opened->cudnn == NULL ? COH_OK : start_attention(q, opened);
}

static void close_kernels(void *queue)
{
    coh_cuda_queue *q = queue;
    opened_queue *opened = (opened_queue *)(uintptr_t)q->libraries;
    if (opened != NULL) {
        coh_attention_plans_destroy(opened->seen.attention);
        if (opened->cudnn_handle != NULL)
            (void)opened->cudnn->call.cudnnDestroy(opened->cudnn_handle);
        coh_cudnn_close(opened->cudnn);
        coh_cuda_products_destroy(opened->seen.products);
        coh_cublaslt_close(opened->cublaslt);
        coh_cuda_index_checks_close(q, &opened->checks);
        coh_free(opened);
    }
    q->libraries = NULL;
    q->index_checks = NULL;
    coh_cuda_kernels_close(queue);
}

static coh_status open_all(coh_cuda_queue *q)
{
    opened_queue *opened;
    COH_TRY(coh_cuda_kernels_open(q));
    if (q->workspace_bytes == 0) /* of a comm lane: its kernels have no indices and no products */
        return COH_OK;
    COH_TRY(COH_ALLOC(1, &opened));
    q->libraries = &opened->seen;
    q->index_checks = &opened->checks;
    COH_TRY(coh_cuda_index_checks_open(q, &opened->checks));
    return open_libraries(q, opened);
}

static coh_status open_kernels(void *queue)
{
    const coh_status status = open_all(queue);
    if (status != COH_OK)
        close_kernels(queue);
    return status;
}

static coh_status look(void *queue, uint32_t *out_index)
{
    coh_cuda_index_checks *checks = ((coh_cuda_queue *)queue)->index_checks;
    if (checks == NULL)
        return COH_OK;
    const coh_status status = coh_cuda_index_checks_look(checks);
    if (status != COH_OK)
        *out_index = checks->note->instruction_index;
    return status;
}

const coh_device_kernels coh_cuda_device_kernels = {
    .table = &coh_kernel_table_cuda,
    .workspace_bytes = COH_CUDA_LIBRARY_BYTES,
    .open = open_kernels,
    .close = close_kernels,
    .look = look,
};
