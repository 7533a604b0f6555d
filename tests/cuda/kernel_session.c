#include "tests/cuda/kernel_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/products.h"
#include "kernels/kernels.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* ---- the machine's libraries ---- */

session_libraries here;

static coh_status open_fake(coh_status status, const char *name, size_t bytes, void **out)
{
    *out = NULL;
    if (status != COH_OK)
        return coh_fail(status, "%s is not as it should be", name);
    COH_TRY(coh_alloc(1, bytes, out));
    here.open_count++;
    return COH_OK;
}

static void close_fake(void *library)
{
    here.open_count -= library != NULL;
    coh_free(library);
}

coh_status coh_cublaslt_open(coh_cublaslt **out_library)
{
    COH_TRY(open_fake(here.cublaslt, "cuBLASLt", sizeof(**out_library), (void **)out_library));
    (*out_library)->call = fake_lt_functions;
    return COH_OK;
}

void coh_cublaslt_close(coh_cublaslt *library)
{
    close_fake(library);
}

static cudnnStatus_t handle_call(void)
{
    here.calls++;
    return here.calls == here.fail_nth ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create_handle(cudnnHandle_t *handle)
{
    const cudnnStatus_t status = handle_call();
    if (status == CUDNN_STATUS_SUCCESS) {
        *handle = (cudnnHandle_t)(void *)&here;
        here.handle_count++;
    }
    return status;
}

static cudnnStatus_t destroy_handle(cudnnHandle_t handle)
{
    here.handle_count -= handle == (cudnnHandle_t)(void *)&here;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    here.stream = stream;
    return handle_call();
}

coh_status coh_cudnn_open(coh_cudnn **out_library)
{
    COH_TRY(open_fake(here.cudnn, "cuDNN", sizeof(**out_library), (void **)out_library));
    (*out_library)->call = fake_cudnn;
    (*out_library)->call.cudnnCreate = create_handle;
    (*out_library)->call.cudnnDestroy = destroy_handle;
    (*out_library)->call.cudnnSetStream = set_stream;
    return COH_OK;
}

void coh_cudnn_close(coh_cudnn *library)
{
    close_fake(library);
}

/* ---- kernels that the stub driver runs ---- */

int session_products;

static void run_nothing(const void *arguments)
{
    (void)arguments;
}

static void run_product(const void *arguments)
{
    const coh_cuda_product_arguments *product = arguments;
    session_products += product->rows == 16 && product->columns == 16 && product->depth == 16;
}

/* coh_check_indices on one thread. */
static void run_check(const void *arguments)
{
    const coh_cuda_index_check_arguments *a = arguments;
    for (int64_t i = 0; i < a->count && !a->note->is_there; i++)
        if (a->indices[i] < a->found.least || a->indices[i] > a->found.most) {
            memcpy(a->note, &a->found, offsetof(coh_cuda_index_note, is_there));
            a->note->place = i;
            a->note->index = a->indices[i];
            __atomic_store_n(&a->note->is_there, 1, __ATOMIC_RELEASE);
        }
}

/* ---- a device with its compute queue ---- */

static void take_failure(void *context, coh_status status, uint64_t number, uint32_t index)
{
    session *s = context;
    (void)status;
    s->failed_number = number;
    s->failed_index = index;
    coh_counter_close(&s->done);
}

static void hear(void *context, const char *sentence)
{
    session *s = context;
    if (s->sentence_count++ == 0)
        snprintf(s->sentence, sizeof(s->sentence), "%s", sentence);
}

/* Resets to the state of a new process, with these libraries. */
void session_begin(coh_status cublaslt, coh_status cudnn)
{
    fake_lt_reset();
    fake_cudnn_reset();
    session_products = 0;
    memset(&here, 0, sizeof(here));
    here.cublaslt = cublaslt;
    here.cudnn = cudnn;
    coh_stub_reset(COH_CUDA_RESERVE_BYTES + COH_CUDA_LIBRARY_BYTES + ((size_t)1 << 20));
    coh_stub_set_twin("coh_product_nn_bf16", run_product, sizeof(coh_cuda_product_arguments));
    coh_stub_set_twin("coh_gelu_bf16", run_nothing, 0);
    coh_stub_set_twin("coh_attention_forward_256_drop", run_nothing, 0);
    coh_stub_set_twin("coh_attention_forward_32", run_nothing, 0);
    coh_stub_set_twin("coh_attention_delta_bf16", run_nothing, 0);
    coh_stub_set_twin("coh_attention_dkdv_32", run_nothing, 0);
    coh_stub_set_twin("coh_attention_dq_32", run_nothing, 0);
    coh_stub_set_twin("coh_check_indices", run_check, sizeof(coh_cuda_index_check_arguments));
}

coh_status session_open(session *s, const coh_device_kernels *kernels)
{
    const coh_device_config config = { .thread_count = 1,
                                       .kernels = kernels,
                                       .workspace_offset = OFFSET,
                                       .failed = take_failure,
                                       .failed_context = s,
                                       .log = hear,
                                       .log_context = s,
                                       .driver = &coh_stub_driver };
    void *arena;
    *s = (session){ 0 };
    assert_int_equal(coh_counter_init(&s->done), COH_OK);
    COH_TRY(ops->create(&config, &s->device));
    COH_TRY(ops->arena_create(s->device, COH_TIER_DEVICE,
                              OFFSET + COH_CUDA_LIBRARY_BYTES + TENSOR_BYTES, &arena));
    s->arena = arena;
    s->tensors = s->arena + OFFSET + COH_CUDA_LIBRARY_BYTES;
    return ops->queue_create(s->device, COH_LANE_COMPUTE, &s->queue);
}

static void nothing_is_alive(void)
{
    assert_int_equal(coh_stub_live_count(), 0);
    assert_int_equal(fake_lt.live_objects, 0);
    assert_int_equal(fake_lt.broken, 0);
    assert_int_equal(here.open_count, 0);
    assert_int_equal(here.handle_count, 0);
    assert_int_equal(fake_dnn.live, 0);
}

void session_close(session *s)
{
    ops->queue_destroy(s->queue);
    if (s->device != NULL)
        ops->arena_destroy(s->device, COH_TIER_DEVICE);
    ops->destroy(s->device);
    coh_counter_fini(&s->done);
    nothing_is_alive();
}

coh_cuda_queue *session_queue(const session *s)
{
    return (coh_cuda_queue *)(void *)s->queue;
}

/* ---- a line: a product with gelu, attention with and without dropout, its backward with dq over
 * dy, an index check ---- */

static void attend(const session *s, int64_t D, uint32_t threshold, int is_backward)
{
    char *at = s->tensors;
    const coh_attention attention = {
        .B = 1,
        .T = 4,
        .H = 1,
        .G = 1,
        .D = D,
        .dtype = COH_DTYPE_BF16,
        .q_stride = D,
        .kv_stride = D,
        .q = at,
        .k = at + 4096,
        .v = at + 8192,
        .y = at + 12288,
        .lse = (float *)(void *)(at + 16384),
        .dy = at + 20480,
        .dq = at + 20480,
        .dk = at + 24576,
        .dv = at + 28672,
        .scratch = (float *)(void *)(at + 65536),
        .drop = { .threshold = threshold },
    };
    if (is_backward)
        coh_kernel_attention_backward(s->queue, &attention);
    else
        coh_kernel_attention(s->queue, &attention);
}

static void multiply(const session *s)
{
    coh_kernel_matmul(s->queue, &(coh_matmul){ .layout = COH_MATMUL_NN,
                                               .dtype = COH_DTYPE_BF16,
                                               .c_dtype = COH_DTYPE_BF16,
                                               .rows = 16,
                                               .columns = 16,
                                               .depth = 16,
                                               .a = s->tensors,
                                               .b = s->tensors + 4096,
                                               .c = s->tensors + 8192,
                                               .a_stride = 16,
                                               .b_stride = 16,
                                               .c_stride = 16,
                                               .activated = s->tensors + 12288,
                                               .activation = COH_ACTIVATION_GELU });
}

void session_work(void *context, uint64_t number, uint32_t index)
{
    const session *s = context;
    static const coh_index_check names = { .what = "token", .remedy = "take another", .most = 6 };
    coh_index_check check = names;
    (void)number;
    (void)index;
    multiply(s);
    attend(s, 32, 0, 0);
    attend(s, 256, 1, 0);
    attend(s, 32, 0, 1);
    check.indices = (const int32_t *)(const void *)(s->tensors + 32768);
    check.count = 100;
    assert_int_equal(coh_kernel_check_indices(s->queue, &check), COH_OK);
}

static void note_nothing(void *context, uint64_t number, uint32_t index)
{
    (void)context;
    (void)number;
    (void)index;
}

coh_status session_record(session *s)
{
    COH_TRY(ops->record_begin(s->queue));
    ops->launch(s->queue, session_work, s, 0, INDEX, NULL);
    return ops->record_end(s->queue, &s->recording);
}

void session_enqueue(session *s)
{
    const uint64_t number = NUMBER + ++s->signalled;
    ops->notify(s->queue, note_nothing, NULL, s, number, INDEX);
    if (s->recording != NULL)
        ops->replay(s->queue, s->recording);
    else
        ops->launch(s->queue, session_work, s, number, INDEX, NULL);
    ops->notify(s->queue, note_nothing, NULL, s, number, INDEX);
    ops->signal(s->queue, &s->done, s->signalled);
}

/* Lets the stub driver execute; returns 1 if the line's end was reported. */
int session_finish(session *s)
{
    coh_stub_start(1);
    const int is_told = coh_counter_wait(&s->done, s->signalled);
    coh_stub_stop();
    return is_told;
}

/* ---- every call fails once ---- */

/* Passes through everything once. */
coh_status session_live_once(void)
{
    session s;
    coh_status status = session_open(&s, &coh_cuda_device_kernels);
    if (status == COH_OK)
        status = ops->rehearse(s.queue, session_work, &s, NUMBER, INDEX);
    if (status == COH_OK) {
        session_enqueue(&s);
        (void)session_finish(&s);
        status = ops->failure(s.device);
    }
    session_close(&s);
    return status;
}

/* Returns `hit`; the status must be an error with a message exactly if it is set. */
int session_failed_well(coh_status status, int hit, const char *what, uint64_t n)
{
    if (hit && status == COH_OK)
        fail_msg("%s failed at use %d, without a message", what, (int)n);
    if (!hit)
        assert_int_equal(status, COH_OK);
    else
        assert_true(coh_last_error()[0] != '\0');
    return hit;
}
