/* What a GPU's compute queue is given (kernels/cuda/device_kernels.h), over the stub driver: how it
 * is opened, rehearsed, fails and is closed. cuBLASLt and cuDNN are fakes, absent, or broken: this
 * file has the functions that open them. */
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
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/products.h"
#include "kernels/kernels.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"
#include "memory/library_workspace.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/stub_driver.h"

static const coh_device_ops *const ops = &coh_device_cuda;

/* ---- the libraries of this machine ---- */

static struct {
    coh_status cublaslt, cudnn; /* COH_OK: it is here; else why not */
    int open_count;             /* of both, that were not closed */
    int handle_count;           /* of cuDNN */
    int calls, fail_nth;        /* of cuDNN's handle */
    cudaStream_t stream;
} here;

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

static int product_runs;

static void run_nothing(const void *arguments)
{
    (void)arguments;
}

static void run_product(const void *arguments)
{
    const coh_cuda_product_arguments *product = arguments;
    product_runs += product->rows == 16 && product->columns == 16 && product->depth == 16;
}

/* As coh_check_indices, on one thread. */
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

enum { OFFSET = 4096, TENSOR_BYTES = 1 << 18, NUMBER = 8, INDEX = 21 };

typedef struct session {
    coh_device *device;
    coh_queue *queue;
    coh_counter done;
    uint64_t signalled;
    char *arena;
    char *tensors; /* behind the workspace, all zeros */
    uint64_t failed_number;
    uint32_t failed_index;
} session;

static void take_failure(void *context, coh_status status, uint64_t number, uint32_t index)
{
    session *s = context;
    (void)status;
    s->failed_number = number;
    s->failed_index = index;
    coh_counter_close(&s->done);
}

/* As a process begins, with these libraries. */
static void begin(coh_status cublaslt, coh_status cudnn)
{
    fake_lt_reset();
    fake_cudnn_executed = product_runs = 0;
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

static coh_status open_session(session *s, const coh_device_kernels *kernels)
{
    const coh_device_config config = { .thread_count = 1,
                                       .kernels = kernels,
                                       .workspace_offset = OFFSET,
                                       .failed = take_failure,
                                       .failed_context = s,
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
}

static void close_session(session *s)
{
    ops->queue_destroy(s->queue);
    if (s->device != NULL)
        ops->arena_destroy(s->device, COH_TIER_DEVICE);
    ops->destroy(s->device);
    coh_counter_fini(&s->done);
    nothing_is_alive();
}

static coh_cuda_queue *queue_of(const session *s)
{
    return (coh_cuda_queue *)(void *)s->queue;
}

/* ---- a line: a product with its gelu, attention with and without dropout, and back with dq in the
 * place of dy, a check ---- */

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

static void work(void *context, uint64_t number, uint32_t index)
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

/* Enqueues the line and what tells of its end. */
static void enqueue_line(session *s)
{
    ops->launch(s->queue, work, s, NUMBER, INDEX, NULL);
    ops->signal(s->queue, &s->done, ++s->signalled);
}

/* The stub driver executes; returns whether the line's end was told. */
static int finish_line(session *s)
{
    coh_stub_start(1);
    const int is_told = coh_counter_wait(&s->done, s->signalled);
    coh_stub_stop();
    return is_told;
}

/* ---- claims ---- */

static void without_libraries_own_kernels_do_the_work(void **state)
{
    (void)state;
    session s;
    begin(COH_ERR_DEVICE, COH_ERR_DEVICE);
    assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
    assert_null(queue_of(&s)->libraries->products);
    assert_null(queue_of(&s)->libraries->attention);
    enqueue_line(&s);
    assert_true(finish_line(&s));
    assert_int_equal(product_runs, 1);
    close_session(&s);
}

/* Nothing is allocated beside the arena, for the planner would not know of it. */
static void libraries_work_in_the_slot_and_on_the_stream_of_the_queue(void **state)
{
    (void)state;
    session s;
    begin(COH_OK, COH_OK);
    assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuMemAlloc), 1);
    assert_int_equal(here.handle_count, 1);
    assert_ptr_equal(here.stream, queue_of(&s)->stream);
    enqueue_line(&s);
    assert_true(finish_line(&s));
    assert_int_equal(product_runs, 0);
    assert_int_equal(fake_lt.products, 1);
    assert_int_equal(fake_cudnn_executed, 2);
    assert_ptr_equal(fake_lt.workspace, s.arena + OFFSET);
    assert_int_equal(fake_lt.workspace_bytes, COH_CUDA_PRODUCT_WORKSPACE_BYTES);
    assert_ptr_equal(fake_lt.stream, queue_of(&s)->stream);
    /* a fake plan of cuDNN fills its part with ones, from its begin on */
    const unsigned char *other =
        (unsigned char *)s.arena + OFFSET + COH_CUDA_PRODUCT_WORKSPACE_BYTES;
    assert_int_equal(other[-1], 0);
    assert_int_equal(other[0], 0xff);
    close_session(&s);
}

static void one_library_may_be_missing(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        session s;
        begin(missing == 0 ? COH_ERR_DEVICE : COH_OK, missing == 1 ? COH_ERR_DEVICE : COH_OK);
        assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
        enqueue_line(&s);
        assert_true(finish_line(&s));
        assert_int_equal(fake_lt.products, missing == 1);
        assert_int_equal(product_runs, missing == 0);
        assert_int_equal(fake_cudnn_executed, missing == 0 ? 2 : 0);
        close_session(&s);
    }
}

static void a_library_that_is_here_and_broken_is_an_error(void **state)
{
    (void)state;
    static const coh_status broken[] = { COH_ERR_IO, COH_ERR_CORRUPT, COH_ERR_MEMORY };
    for (int i = 0; i < 6; i++) {
        const coh_status status = broken[i / 2];
        session s;
        begin(i % 2 == 0 ? status : COH_OK, i % 2 == 1 ? status : COH_OK);
        assert_int_equal(open_session(&s, &coh_cuda_device_kernels), status);
        assert_null(s.queue);
        assert_string_equal(coh_last_error(), i % 2 == 0 ? "cuBLASLt is not as it should be"
                                                         : "cuDNN is not as it should be");
        close_session(&s);
    }
}

static void a_slot_that_is_too_small_is_our_error(void **state)
{
    (void)state;
    session s;
    coh_device_kernels small = coh_cuda_device_kernels;
    small.workspace_bytes--;
    begin(COH_OK, COH_ERR_DEVICE);
    assert_int_equal(open_session(&s, &small), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "bytes of workspace"));
    close_session(&s);
}

static void a_rehearsal_makes_ready_and_enqueues_nothing(void **state)
{
    (void)state;
    session s;
    begin(COH_OK, COH_OK);
    assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
    assert_int_equal(ops->rehearse(s.queue, work, &s, NUMBER, INDEX), COH_OK);
    assert_int_equal(coh_stub_pending_count(), 0);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuLaunchKernel), 0);
    assert_int_equal(fake_lt.products + fake_cudnn_executed, 0);
    const uint64_t allocated = coh_alloc_count();
    const int made = fake_lt.live_objects, asked = fake_lt.heuristics;
    const uint64_t attributes = coh_stub_call_count(COH_STUB_cuFuncSetAttribute);
    assert_true(asked > 0 && attributes > 0);
    enqueue_line(&s);
    assert_true(finish_line(&s));
    assert_int_equal(fake_lt.products, 1);
    assert_int_equal(fake_cudnn_executed, 2);
    assert_true(coh_stub_call_count(COH_STUB_cuLaunchKernel) > 0);
    assert_int_equal(fake_lt.live_objects, made);
    assert_int_equal(fake_lt.heuristics, asked);
    assert_int_equal(coh_stub_call_count(COH_STUB_cuFuncSetAttribute), attributes);
    assert_int_equal(coh_alloc_count(), allocated);
    close_session(&s);
}

static void a_rehearsal_that_fails_is_the_devices_failure(void **state)
{
    (void)state;
    session s;
    begin(COH_OK, COH_OK);
    assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
    fake_lt.fail_nth = 1;
    assert_int_not_equal(ops->rehearse(s.queue, work, &s, NUMBER, INDEX), COH_OK);
    assert_non_null(strstr(coh_last_error(), "cuBLASLt"));
    assert_int_not_equal(ops->failure(s.device), COH_OK);
    close_session(&s);
}

/* The host is told of it in place of the line's end, with the line's number, in its own words. */
static void a_bad_index_stops_the_device_before_its_line_ends(void **state)
{
    (void)state;
    session s;
    char expected[256];
    begin(COH_OK, COH_OK);
    assert_int_equal(open_session(&s, &coh_cuda_device_kernels), COH_OK);
    enqueue_line(&s);
    assert_true(finish_line(&s));
    int32_t *indices = (int32_t *)(void *)(s.tensors + 32768);
    indices[70] = 7;
    indices[90] = -1;
    enqueue_line(&s);
    enqueue_line(&s);
    assert_false(finish_line(&s));
    assert_int_equal(coh_counter_read(&s.done), 1);
    assert_int_equal(s.failed_number, NUMBER);
    assert_int_equal(s.failed_index, INDEX);
    const coh_index_check check = {
        .what = "token", .remedy = "take another", .indices = indices, .count = 100, .most = 6
    };
    assert_int_equal(coh_kernel_check_indices(NULL, &check), COH_ERR_CORRUPT);
    snprintf(expected, sizeof(expected), "lane compute: %s", coh_last_error());
    assert_int_equal(ops->failure(s.device), COH_ERR_CORRUPT);
    assert_string_equal(coh_last_error(), expected);
    close_session(&s);
}

/* ---- failing everything once ---- */

/* One pass through everything. */
static coh_status live_once(void)
{
    session s;
    coh_status status = open_session(&s, &coh_cuda_device_kernels);
    if (status == COH_OK)
        status = ops->rehearse(s.queue, work, &s, NUMBER, INDEX);
    if (status == COH_OK) {
        enqueue_line(&s);
        (void)finish_line(&s);
        status = ops->failure(s.device);
    }
    close_session(&s);
    return status;
}

/* Whether `hit`, and then as it must be. */
static int failed_well(coh_status status, int hit, const char *what, uint64_t n)
{
    if (hit && status == COH_OK)
        fail_msg("%s failed at use %d, and nobody said so", what, (int)n);
    if (!hit)
        assert_int_equal(status, COH_OK);
    else
        assert_true(coh_last_error()[0] != '\0');
    return hit;
}

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
        for (int hit = 1; hit; n += 1 + n / 2) {
            begin(COH_OK, COH_OK);
            coh_stub_fail_nth(calls[i], n, CUDA_ERROR_UNKNOWN);
            const coh_status status = live_once();
            hit = failed_well(status, coh_stub_fault_was_hit(), coh_stub_call_name(calls[i]), n);
        }
        assert_true(n > 2);
    }
}

static void whatever_the_libraries_refuse_nothing_is_left(void **state)
{
    (void)state;
    int n = 1;
    for (int hit = 1; hit; n++) {
        begin(COH_OK, COH_OK);
        fake_lt.fail_nth = n;
        const coh_status status = live_once();
        hit = failed_well(status, fake_lt.was_hit, "cuBLASLt", (uint64_t)n);
    }
    assert_true(n > 5);
    for (n = 1; n <= 3; n++) { /* to make a handle, and to give it a stream */
        begin(COH_OK, COH_OK);
        here.fail_nth = n;
        const coh_status status = live_once();
        (void)failed_well(status, here.calls >= n, "cuDNN", (uint64_t)n);
    }
    assert_int_equal(here.calls, 2);
}

static void whatever_allocation_fails_nothing_is_left(void **state)
{
    (void)state;
    uint64_t n = 1;
    for (int hit = 1; hit; n++) {
        begin(COH_OK, COH_OK);
        coh_alloc_fail_nth(n);
        const coh_status status = live_once();
        hit = failed_well(status, coh_alloc_fault_was_hit(), "an allocation", n);
        coh_alloc_fail_nth(0);
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
        cmocka_unit_test(a_rehearsal_makes_ready_and_enqueues_nothing),
        cmocka_unit_test(a_rehearsal_that_fails_is_the_devices_failure),
        cmocka_unit_test(a_bad_index_stops_the_device_before_its_line_ends),
        cmocka_unit_test(whatever_the_driver_refuses_nothing_is_left),
        cmocka_unit_test(whatever_the_libraries_refuse_nothing_is_left),
        cmocka_unit_test(whatever_allocation_fails_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
