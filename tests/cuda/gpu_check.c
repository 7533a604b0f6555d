#include "tests/cuda/gpu_check.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coh_config.h"
#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/libraries.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda_state.h"
#include "memory/library_workspace.h"
#include "tests/cuda/twins.h"

enum { WRONG_USAGE = 2, SKIPPED = 77, ALIGNMENT = 256 };
#define TENSOR_BYTES ((size_t)1 << 30)   /* at most a sixteenth of the GPU */
#define SHARED_BYTES ((size_t)256 << 20) /* likewise */

gpu_check gpu;

static const coh_device_ops *const ops = &coh_device_cuda;

/* ---- failures ---- */

static void note(gpu_check *check, coh_status status)
{
    if (status != COH_OK)
        gpu_fail(check, "%s", coh_last_error());
}

/* ---- the device ---- */

/* Wakes all who wait for the queue. */
static void take_failure(void *context, coh_status status, uint64_t number, uint32_t index)
{
    gpu_check *check = context;
    (void)status;
    (void)number;
    (void)index;
    coh_counter_close(&check->counter);
}

static void print_sentence(void *context, const char *sentence)
{
    (void)context;
    printf("%s\n", sentence);
}

coh_status gpu_open(gpu_check *check)
{
    const coh_device_config config = { .thread_count = 1,
                                       .kernels = &coh_cuda_device_kernels,
                                       .failed = take_failure,
                                       .failed_context = check,
                                       .log = print_sentence };
    void *arena = NULL, *shared = NULL;
    coh_device_facts facts;
    *check = (gpu_check){ 0 };
    COH_TRY(coh_counter_init(&check->counter));
    check->counter_is_made = 1;
    COH_TRY(ops->create(&config, &check->device));
    ops->facts(check->device, &facts);
    const size_t part =
        (size_t)facts.memory_bytes / 16 / COH_CUDA_LIBRARY_BYTES * COH_CUDA_LIBRARY_BYTES;
    check->arena_bytes = part < TENSOR_BYTES ? part : TENSOR_BYTES;
    COH_TRY(ops->arena_create(check->device, COH_TIER_DEVICE,
                              COH_CUDA_LIBRARY_BYTES + check->arena_bytes, &arena));
    check->arena = (char *)arena + COH_CUDA_LIBRARY_BYTES;
    check->shared_bytes = part < SHARED_BYTES ? part : SHARED_BYTES;
    COH_TRY(ops->share(check->device, check->shared_bytes, &shared));
    check->shared = shared;
    COH_TRY(ops->queue_create(check->device, COH_LANE_COMPUTE, &check->queue));
    COH_TRY(coh_cuda_enter(check->device)); /* for tests that pass the queue to kernels directly */
    check->is_inside = 1;
    return COH_OK;
}

void gpu_close(gpu_check *check)
{
    if (check->is_inside)
        coh_cuda_leave(check->device);
    ops->queue_destroy(check->queue);
    if (check->device != NULL)
        ops->unshare(check->device, check->shared);
    if (check->arena != NULL)
        ops->arena_destroy(check->device, COH_TIER_DEVICE);
    ops->destroy(check->device);
    if (check->counter_is_made)
        coh_counter_fini(&check->counter);
    *check = (gpu_check){ 0 };
}

void *gpu_take(gpu_check *check, size_t bytes)
{
    const size_t begin = check->used_bytes;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > check->arena_bytes - begin) {
        gpu_fail(check, "a check wants more than %zu bytes of the device", check->arena_bytes);
        return NULL;
    }
    check->used_bytes += bytes;
    return check->arena + begin;
}

void gpu_put(gpu_check *check, void *to, const void *from, size_t bytes)
{
    if (!gpu_failed(check))
        note(check, ops->put(check->device, to, from, bytes));
}

void gpu_get(gpu_check *check, void *to, const void *from, size_t bytes)
{
    if (!gpu_failed(check))
        note(check, ops->get(check->device, to, from, bytes));
}

typedef struct enqueuing {
    void (*enqueue)(void *queue, void *context);
    void *queue, *context;
} enqueuing;

static void enqueue_work(void *context, uint64_t number, uint32_t index)
{
    const enqueuing *e = context;
    (void)number;
    (void)index;
    e->enqueue(e->queue, e->context);
}

/* Copies all host memory that kernels see to `kept`, or back from there. */
static void keep_shared(gpu_check *check, char *kept, int is_back)
{
    size_t at = check->shared_used_bytes;
    memcpy(is_back ? check->shared : kept, is_back ? kept : check->shared, at);
    for (int i = 0; i < check->share_count; i++) {
        char *share = check->shares[i];
        memcpy(is_back ? share : kept + at, is_back ? kept + at : share, check->share_bytes[i]);
        at += check->share_bytes[i];
    }
}

/* Rehearses; restores memory afterwards, because a rehearsal runs what has never run. */
static void rehearse(gpu_check *check, enqueuing *e)
{
    const size_t used_bytes = check->used_bytes;
    size_t bytes = used_bytes + check->shared_used_bytes;
    for (int i = 0; i < check->share_count; i++)
        bytes += check->share_bytes[i];
    char *kept = malloc(bytes + 1);
    if (kept == NULL) {
        gpu_fail(check, "no memory to keep %zu bytes in", bytes);
        return;
    }
    keep_shared(check, kept + used_bytes, 0);
    if (used_bytes > 0)
        gpu_get(check, kept, check->arena, used_bytes);
    note(check, ops->rehearse(check->queue, enqueue_work, e, check->issued, 0));
    if (used_bytes > 0)
        gpu_put(check, check->arena, kept, used_bytes);
    keep_shared(check, kept + used_bytes, 1);
    free(kept);
}

void gpu_run(gpu_check *check, void (*enqueue)(void *queue, void *context), void *context,
             const int32_t *predicate)
{
    enqueuing e = { enqueue, check->queue, context };
    if (gpu_failed(check))
        return;
    check->issued++;
    rehearse(check, &e);
    ops->launch(check->queue, enqueue_work, &e, check->issued, 0, predicate);
    ops->signal(check->queue, &check->counter, check->issued);
    (void)coh_counter_wait(&check->counter, check->issued);
    note(check, ops->failure(check->device));
}

/* ---- for tests that pass the queue to kernels directly ---- */

void gpu_check_wait(void)
{
    ops->finish(gpu.queue);
    if (ops->failure(gpu.device) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static const coh_cuda_driver *driver_of(void)
{
    return ((const coh_cuda_queue *)(const void *)gpu.queue)->driver;
}

static void must(CUresult result, const char *what)
{
    if (coh_cuda_check(driver_of(), result, "%s", what) != COH_OK)
        fail_msg("%s", coh_last_error());
}

void gpu_check_share(void *memory, size_t bytes)
{
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUdeviceptr seen = 0;
    must(driver_of()->cuMemHostRegister(memory, bytes, flags), "cuMemHostRegister");
    must(driver_of()->cuMemHostGetDevicePointer(&seen, memory, 0), "cuMemHostGetDevicePointer");
    assert_true(seen == (CUdeviceptr)(uintptr_t)memory);
    assert_true(gpu.share_count < GPU_SHARES_MOST);
    gpu.shares[gpu.share_count] = memory;
    gpu.share_bytes[gpu.share_count++] = bytes;
}

void gpu_check_unshare(void *memory)
{
    int i = 0;
    while (i < gpu.share_count && gpu.shares[i] != memory)
        i++;
    assert_true(i < gpu.share_count);
    gpu.shares[i] = gpu.shares[--gpu.share_count];
    gpu.share_bytes[i] = gpu.share_bytes[gpu.share_count];
    must(driver_of()->cuMemHostUnregister(memory), "cuMemHostUnregister");
}

/* ---- groups ---- */

/* The libraries visible to a group. ALL: those on this machine. The last three need these
 * libraries, and are skipped if one is missing. */
typedef enum sight { ALL, NONE, ONLY_CUBLASLT, ONLY_CUDNN, BOTH } sight;

#ifndef COH_HAVE_NCCL
const char *gpu_check_nccl_missing(void)
{
    return "this program was built without NCCL";
}

int gpu_check_nccl(void)
{
    return 0;
}
#endif

static const struct group {
    const char *name;
    int (*run)(void);
    sight sight;
    /* Returns the sentence for which the group is skipped; NULL: it is not. */
    const char *(*missing)(void);
} groups[] = {
    { "attention", gpu_check_attention, NONE },
    { "attention-cudnn", gpu_check_attention_library, ONLY_CUDNN },
    { "matmul", gpu_check_matmul, NONE },
    { "matmul-cublaslt", gpu_check_matmul_library, ONLY_CUBLASLT },
    { "elementwise", coh_twins_elementwise, ALL },
    { "rows", coh_twins_rows, ALL },
    { "classifier", coh_twins_classifier, ALL },
    { "losses", coh_twins_losses, ALL },
    { "optimizer", coh_twins_optimizer, ALL },
    { "optimizers", coh_twins_optimizers, ALL },
    { "wires", coh_twins_wires, ALL },
    { "kinds", coh_twins_kinds, NONE },
    { "kinds-libraries", coh_twins_kinds, BOTH },
    { "indices", gpu_check_indices, ALL },
    { "device", gpu_check_device, ALL },
    { "operators", gpu_check_operators, ALL },
    { "engine", gpu_check_engine, ALL },
    { "nccl", gpu_check_nccl, ALL, gpu_check_nccl_missing },
};
enum { GROUP_COUNT = sizeof(groups) / sizeof(groups[0]) };

/* Shows the queue only these libraries. */
static const coh_cuda_libraries *show_libraries(const coh_cuda_libraries *opened, sight which)
{
    static coh_cuda_libraries seen;
    seen = *opened;
    if (which == NONE || which == ONLY_CUDNN)
        seen.products = NULL;
    if (which == NONE || which == ONLY_CUBLASLT)
        seen.attention = NULL;
    ((coh_cuda_queue *)(void *)gpu.queue)->libraries = &seen;
    return &seen;
}

/* Returns the libraries that the group needs and this machine lacks; NULL: none. */
static const char *missing_of(const coh_cuda_libraries *seen, sight which)
{
    const int products = (which == ONLY_CUBLASLT || which == BOTH) && seen->products == NULL;
    const int attention = (which == ONLY_CUDNN || which == BOTH) && seen->attention == NULL;
    return products && attention ? "cuBLASLt and cuDNN are"
           : products            ? "cuBLASLt is"
           : attention           ? "cuDNN is"
                                 : NULL;
}

/* Returns 1 if the group is right or skipped. With one of two libraries missing, the other is still
 * checked. */
static int run_group(const struct group *group, const coh_cuda_libraries *opened)
{
    const coh_cuda_libraries *seen = show_libraries(opened, group->sight);
    const char *missing = missing_of(seen, group->sight);
    const int is_empty = missing != NULL && seen->products == NULL && seen->attention == NULL;
    gpu.used_bytes = gpu.shared_used_bytes = 0;
    gpu.failure[0] = '\0';
    const char *reason = group->missing != NULL ? group->missing() : NULL;
    if (reason != NULL) {
        printf("%-16s skipped: %s\n", group->name, reason);
        return 1;
    }
    const int failed = is_empty ? 0 : group->run();
    if (failed != 0)
        printf("%-16s WRONG, %d of its tests\n", group->name, failed);
    else if (missing != NULL)
        printf("%-16s skipped: %s not on this machine%s\n", group->name, missing,
               is_empty ? "" : "; without it all was as it must be");
    else
        printf("%-16s right\n", group->name);
    fflush(stdout);
    return failed == 0;
}

static int is_named(const char *name, int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++)
        if (strcmp(arguments[i], name) == 0)
            return 1;
    return argument_count == 1;
}

static int are_groups(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        int group = 0;
        while (group < GROUP_COUNT && strcmp(arguments[i], groups[group].name) != 0)
            group++;
        if (group == GROUP_COUNT) {
            fprintf(stderr, "no group is called %s; there are:", arguments[i]);
            for (group = 0; group < GROUP_COUNT; group++)
                fprintf(stderr, " %s", groups[group].name);
            fprintf(stderr, "\n");
            return 0;
        }
    }
    return 1;
}

/* Having no GPU is not a failure; failing to start a GPU is. */
int main(int argument_count, char **arguments)
{
    if (!are_groups(argument_count, arguments))
        return WRONG_USAGE;
    if (gpu_open(&gpu) != COH_OK) {
        const int has_device = gpu.device != NULL;
        printf("%s: %s\n", has_device ? "failed" : "skipped", coh_last_error());
        gpu_close(&gpu);
        return has_device ? 1 : SKIPPED;
    }
    coh_cuda_queue *queue = (coh_cuda_queue *)(void *)gpu.queue;
    const coh_cuda_libraries *opened = queue->libraries;
    int wrong = 0;
    for (int i = 0; i < GROUP_COUNT; i++)
        if (is_named(groups[i].name, argument_count, arguments))
            wrong += !run_group(&groups[i], opened);
    queue->libraries = opened;
    gpu_close(&gpu);
    return wrong > 0;
}
