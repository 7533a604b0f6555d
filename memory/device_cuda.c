/* A GPU as a coh_device: creation and destruction of its context, arenas and shared words, copies
 * from the host, and the first failure. The other parts are listed in device_cuda_state.h; read
 * device_cuda.h first for how threads and streams wait for one another. */
#include "memory/device_cuda.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "cohobate/terms.h"
#include "memory/cuda_facts.h"
#include "memory/device_cuda_state.h"
#include "memory/nvml.h"
#include "memory/topology.h"

/* Alignment of chunks: enough for 16-byte accesses per thread and for whole cache lines; the
 * driver's allocations have it, too. */
#define ALIGNMENT 256

/* ---- failure, closing ---- */

void coh_cuda_device_close(coh_device *device)
{
    atomic_store_explicit(&device->is_closed, 1, memory_order_release);
    for (uint32_t i = 0; i < COH_CUDA_WATCH_COUNT; i++)
        coh_word_lift(&device->words->mirror[i].value, COH_CUDA_RELEASED);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        coh_queue *queue = atomic_load(&device->queues[lane]);
        if (queue != NULL)
            coh_counter_close(&queue->popped);
    }
}

void coh_cuda_device_fail(coh_device *device, coh_status status, uint64_t number, uint32_t index)
{
    pthread_mutex_lock(&device->failure_mutex);
    int is_first = device->failure == COH_OK;
    if (is_first) {
        device->failure = status;
        coh_error_save(device->failure_text);
    }
    pthread_mutex_unlock(&device->failure_mutex);
    if (!is_first)
        return;
    if (device->config.failed != NULL)
        device->config.failed(device->config.failed_context, status, number, index);
    coh_cuda_device_close(device);
}

coh_status coh_cuda_device_failure(coh_device *device)
{
    pthread_mutex_lock(&device->failure_mutex);
    coh_status status = device->failure;
    if (status != COH_OK)
        coh_error_restore(device->failure_text);
    pthread_mutex_unlock(&device->failure_mutex);
    return status;
}

/* ---- the context ---- */

coh_status coh_cuda_enter(const coh_device *device)
{
    return coh_cuda_check(device->driver, device->driver->cuCtxPushCurrent(device->context),
                          "cuCtxPushCurrent");
}

void coh_cuda_leave(const coh_device *device)
{
    CUcontext ours;
    (void)device->driver->cuCtxPopCurrent(&ours);
}

static coh_status check_attribute(const coh_device *device, CUdevice_attribute attribute,
                                  const char *what)
{
    int has = 0;
    COH_TRY(coh_cuda_check(device->driver,
                           device->driver->cuDeviceGetAttribute(&has, attribute, device->gpu),
                           "cuDeviceGetAttribute"));
    if (!has)
        return coh_fail(COH_ERR_DEVICE, "GPU %d (%s) has no %s: use another device",
                        device->config.index, device->name, what);
    return COH_OK;
}

static coh_status find_gpu(coh_device *device)
{
    const coh_cuda_driver *driver = device->driver;
    int count = 0, index = device->config.index;
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceGetCount(&count), "cuDeviceGetCount"));
    if (index < 0 || index >= count)
        return coh_fail(COH_ERR_DEVICE,
                        "GPU %d was asked for, the driver shows %d of them: number them from 0",
                        index, count);
    COH_TRY(coh_cuda_check(driver, driver->cuDeviceGet(&device->gpu, index), "cuDeviceGet"));
    COH_TRY(coh_cuda_check(driver,
                           driver->cuDeviceGetName(device->name, sizeof(device->name), device->gpu),
                           "cuDeviceGetName"));
    COH_TRY(check_attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"));
    COH_TRY(check_attribute(device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                            "waits of streams for words of 64 bits"));
    return coh_cuda_check(driver,
                          driver->cuDeviceGetAttribute(&device->multiprocessor_count,
                                                       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                       device->gpu),
                          "cuDeviceGetAttribute");
}

/* Returns the largest arena possible now, in whole pages, and the free and total bytes. */
static coh_status find_room(const coh_device *device, uint64_t *out_fits, size_t *out_free,
                            size_t *out_total)
{
    COH_TRY(coh_cuda_check(device->driver, device->driver->cuMemGetInfo(out_free, out_total),
                           "cuMemGetInfo"));
    const uint64_t fits =
        *out_free > COH_CUDA_RESERVE_BYTES ? *out_free - COH_CUDA_RESERVE_BYTES : 0;
    *out_fits = fits - fits % COH_PAGE_BYTES;
    return COH_OK;
}

/* Creates everything that needs the context to be current. */
static coh_status fill_context(coh_device *device)
{
    const coh_cuda_driver *driver = device->driver;
    size_t free_bytes, total_bytes;
    void *words = NULL;
    COH_TRY(find_room(device, &device->room_bytes, &free_bytes, &total_bytes));
    device->context_bytes = total_bytes - free_bytes;
    COH_TRY(coh_cuda_check(driver, driver->cuStreamCreate(&device->service, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate"));
    COH_TRY(coh_cuda_check(driver, driver->cuMemAllocHost(&words, sizeof(*device->words)),
                           "cuMemAllocHost of %zu bytes", sizeof(*device->words)));
    device->words = words;
    memset(words, 0, sizeof(*device->words));
    COH_TRY(coh_cuda_check(driver,
                           driver->cuMemHostGetDevicePointer(&device->words_address, words, 0),
                           "cuMemHostGetDevicePointer"));
    return device->config.times_exactly ? coh_cuda_clock_create(device) : COH_OK;
}

static coh_status create_context(coh_device *device)
{
    COH_TRY(coh_cuda_check(
        device->driver, device->driver->cuDevicePrimaryCtxRetain(&device->context, device->gpu),
        "cuDevicePrimaryCtxRetain of GPU %d (%s)", device->config.index, device->name));
    COH_TRY(coh_cuda_enter(device));
    coh_status status = fill_context(device);
    coh_cuda_leave(device);
    return status;
}

static void destroy_context(coh_device *device)
{
    if (device->context == NULL)
        return;
    int is_inside = coh_cuda_enter(device) == COH_OK;
    coh_cuda_clock_destroy(device);
    if (device->words != NULL)
        (void)device->driver->cuMemFreeHost(device->words);
    if (device->service != NULL)
        (void)device->driver->cuStreamDestroy(device->service);
    if (is_inside)
        coh_cuda_leave(device);
    (void)device->driver->cuDevicePrimaryCtxRelease(device->gpu);
}

/* ---- create, destroy ---- */

static coh_status start_retirer(coh_device *device)
{
    int error = coh_thread_start(&device->retirer, coh_cuda_retire_main, device);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread to retire a GPU's commands: %s",
                        strerror(error));
    device->retirer_is_started = 1;
    return COH_OK;
}

/* A run needs neither clock nor power, so a machine without NVML is as good. */
static coh_status open_meter(coh_device *device)
{
    char address[32];
    COH_TRY(coh_cuda_check(
        device->driver, device->driver->cuDeviceGetPCIBusId(address, sizeof(address), device->gpu),
        "cuDeviceGetPCIBusId of GPU %d (%s)", device->config.index, device->name));
    if (coh_nvml_open(address, &device->nvml) != COH_OK)
        device->nvml = NULL;
    return COH_OK;
}

static coh_status open_device(coh_device *device)
{
    device->driver = device->config.driver;
    if (device->driver == NULL) {
        COH_TRY(coh_cuda_driver_open(&device->opened));
        device->driver = device->opened;
    }
    COH_TRY(coh_cuda_graphs_wanted(&device->uses_graphs));
    COH_TRY(find_gpu(device));
    COH_TRY(create_context(device));
    COH_TRY(open_meter(device));
    COH_TRY(start_retirer(device));
    return coh_cuda_watch_start(device);
}

static void close_device(coh_device *device)
{
    coh_counter_close(&device->pushed);
    coh_cuda_watch_stop(device);
    if (device->retirer_is_started)
        pthread_join(device->retirer, NULL);
    for (uint32_t i = 0; i < device->watched_count; i++)
        coh_counter_set_mirror(device->watched[i], NULL);
    coh_nvml_close(device->nvml);
    destroy_context(device);
    coh_cuda_driver_close(device->opened);
}

static coh_status device_create(const coh_device_config *config, coh_device **out_device)
{
    *out_device = NULL;
    coh_status status = COH_OK;
    coh_device *device;
    COH_TRY(COH_ALLOC(1, &device));
    device->config = *config;
    if (pthread_mutex_init(&device->failure_mutex, NULL) != 0) {
        status = coh_fail(COH_ERR_MEMORY, "the system gives no mutex for a GPU");
        goto free_device;
    }
    COH_TRY_GOTO(status, coh_counter_init(&device->pushed), destroy_mutex);
    COH_TRY_GOTO(status, coh_counter_init(&device->pass_made), fini_pushed);
    status = open_device(device);
    if (status == COH_OK) {
        *out_device = device;
        return COH_OK;
    }
    close_device(device);
    coh_counter_fini(&device->pass_made);
fini_pushed:
    coh_counter_fini(&device->pushed);
destroy_mutex:
    pthread_mutex_destroy(&device->failure_mutex);
free_device:
    coh_free(device);
    return status;
}

static void device_facts(const coh_device *device, coh_device_facts *out_facts)
{
    *out_facts = (coh_device_facts){ .alignment = ALIGNMENT,
                                     .memory_bytes = device->room_bytes,
                                     .records = device->uses_graphs && !device->config.lockstep };
    memcpy(out_facts->name, device->name, sizeof(out_facts->name));
}

/* ---- from the host: fill, put, get ---- */

static coh_status finish_service(const coh_device *device, CUresult result, const char *what,
                                 size_t bytes)
{
    COH_TRY(coh_cuda_check(device->driver, result, "%s of %zu bytes", what, bytes));
    return coh_cuda_check(device->driver, device->driver->cuStreamSynchronize(device->service),
                          "%s of %zu bytes, at its end", what, bytes);
}

static coh_status device_fill(coh_device *device, void *to, int byte, size_t bytes)
{
    COH_TRY(coh_cuda_enter(device));
    coh_status status =
        finish_service(device,
                       device->driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)to,
                                                       (unsigned char)byte, bytes, device->service),
                       "cuMemsetD8Async", bytes);
    coh_cuda_leave(device);
    return status;
}

/* Limits `bytes` to the end of the piece of the host tier that contains `at`; no limit
 * elsewhere. */
static size_t within_piece(const coh_device *device, const void *at, size_t bytes)
{
    if (device->host_arena == NULL)
        return bytes;
    const uintptr_t base = (uintptr_t)coh_arena_base(device->host_arena), place = (uintptr_t)at;
    if (place < base || place - base >= coh_arena_bytes(device->host_arena))
        return bytes;
    const uint64_t left = COH_CUDA_PIN_BYTES - (place - base) % COH_CUDA_PIN_BYTES;
    return bytes < left ? bytes : (size_t)left;
}

size_t coh_cuda_copy_bytes(const coh_device *device, const void *to, const void *from, size_t bytes)
{
    return within_piece(device, from, within_piece(device, to, bytes));
}

static CUresult copy_pieces(coh_device *device, char *to, const char *from, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        const size_t piece = coh_cuda_copy_bytes(device, to + done, from + done, bytes - done);
        result = device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)(to + done),
                                               (CUdeviceptr)(uintptr_t)(from + done), piece,
                                               device->service);
        done += piece;
    }
    return result;
}

/* Copies in or out; the addresses determine the direction. */
static coh_status device_copy(coh_device *device, void *to, const void *from, size_t bytes)
{
    COH_TRY(coh_cuda_enter(device));
    coh_status status =
        finish_service(device, copy_pieces(device, to, from, bytes), "cuMemcpyAsync", bytes);
    coh_cuda_leave(device);
    return status;
}

/* ---- shared with the host ---- */

/* Host memory at the same address on the GPU: the address space is unified, which was checked at
 * creation. */
static coh_status device_share(coh_device *device, size_t bytes, void **out)
{
    *out = NULL;
    COH_TRY(coh_cuda_enter(device));
    coh_status status = coh_cuda_check(device->driver, device->driver->cuMemAllocHost(out, bytes),
                                       "cuMemAllocHost of %zu bytes", bytes);
    coh_cuda_leave(device);
    if (status == COH_OK)
        memset(*out, 0, bytes);
    return status;
}

static void device_unshare(coh_device *device, void *shared)
{
    if (shared == NULL)
        return;
    int is_inside = coh_cuda_enter(device) == COH_OK; /* fails if the GPU broke */
    (void)device->driver->cuMemFreeHost(shared);
    if (is_inside)
        coh_cuda_leave(device);
}

/* ---- arenas ---- */

static coh_status allocate_arena(coh_device *device, uint64_t bytes)
{
    const coh_cuda_driver *driver = device->driver;
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t fits = 0;
    COH_TRY(find_room(device, &fits, &free_bytes, &total_bytes));
    if (bytes > fits)
        return coh_fail(COH_ERR_MEMORY,
                        "the device arena needs %" PRIu64 " bytes, GPU %d (%s) has %zu of %zu free "
                        "next to its context and other programs: at most %" PRIu64 " would fit "
                        "(%u MiB are kept back for kernels and libraries): lower %s, or end "
                        "what else uses this GPU",
                        bytes, device->config.index, device->name, free_bytes, total_bytes, fits,
                        (unsigned)(COH_CUDA_RESERVE_BYTES >> 20),
                        coh_term_text(COH_TERM_DEVICE_MEMORY));
    return coh_cuda_check(driver, driver->cuMemAlloc(&device->arena, bytes),
                          "cuMemAlloc of %" PRIu64 " bytes for the device arena, where %zu of %zu "
                          "are free and at most %" PRIu64 " should fit",
                          bytes, free_bytes, total_bytes, fits);
}

static void destroy_device_arena(coh_device *device)
{
    if (device->arena != 0) {
        int is_inside = coh_cuda_enter(device) == COH_OK;
        (void)device->driver->cuMemFree(device->arena);
        if (is_inside)
            coh_cuda_leave(device);
    }
    if (device->arena_is_counted)
        coh_ledger_remove(device->config.ledger, COH_TIER_DEVICE, "device arena", "arena",
                          device->arena_bytes);
    device->arena = 0;
    device->arena_is_counted = 0;
}

static coh_status create_device_arena(coh_device *device, uint64_t bytes)
{
    coh_status status = COH_OK;
    COH_TRY(coh_cuda_enter(device));
    status = allocate_arena(device, bytes);
    coh_cuda_leave(device);
    COH_TRY(status);
    device->arena_bytes = bytes;
    uint64_t begin_ns = coh_clock_ns();
    COH_TRY_GOTO(status, device_fill(device, (void *)(uintptr_t)device->arena, 0, bytes), failed);
    device->arena_touch_ns = coh_clock_ns() - begin_ns;
    if (device->config.ledger == NULL)
        return COH_OK;
    COH_TRY_GOTO(
        status,
        coh_ledger_add(device->config.ledger, COH_TIER_DEVICE, "device arena", "arena", bytes),
        failed);
    device->arena_is_counted = 1;
    return COH_OK;
failed:
    destroy_device_arena(device);
    return status;
}

static void unpin(coh_device *device)
{
    char *base = coh_arena_base(device->host_arena);
    for (uint64_t at = 0; at < device->pinned_bytes; at += COH_CUDA_PIN_BYTES)
        (void)device->driver->cuMemHostUnregister(base + at);
    device->pinned_bytes = 0;
}

/* Registers the host tier in pieces: a driver refuses very large ones, and a failure then shows how
 * far it got. */
static coh_status pin(coh_device *device)
{
    char *base = coh_arena_base(device->host_arena);
    uint64_t bytes = coh_arena_bytes(device->host_arena), begin_ns = coh_clock_ns();
    while (device->pinned_bytes < bytes) {
        uint64_t left = bytes - device->pinned_bytes;
        size_t piece = (size_t)(left < COH_CUDA_PIN_BYTES ? left : COH_CUDA_PIN_BYTES);
        COH_TRY(coh_cuda_check(device->driver,
                               device->driver->cuMemHostRegister(base + device->pinned_bytes, piece,
                                                                 CU_MEMHOSTREGISTER_PORTABLE),
                               "cuMemHostRegister of the pinned host arena: %" PRIu64 " of %" PRIu64
                               " bytes are "
                               "pinned, lower %s",
                               device->pinned_bytes, bytes, coh_term_text(COH_TERM_HOST_MEMORY)));
        device->pinned_bytes += piece;
    }
    device->pin_ns = coh_clock_ns() - begin_ns;
    return COH_OK;
}

static void destroy_host_arena(coh_device *device)
{
    if (device->host_arena == NULL)
        return;
    int is_inside = coh_cuda_enter(device) == COH_OK;
    unpin(device);
    if (is_inside)
        coh_cuda_leave(device);
    coh_arena_destroy(device->host_arena);
    device->host_arena = NULL;
}

/* With a single node there is nothing to choose, so the driver is not asked. */
static int near_node(const coh_device *device)
{
    coh_topology topology;
    if (coh_topology_read(&topology) != COH_OK || topology.node_count == 1)
        return COH_NODE_ANY;
    return coh_cuda_near_node(device->driver, device->gpu, "");
}

static coh_status create_host_arena(coh_device *device, uint64_t bytes)
{
    if (device->host_arena != NULL)
        return coh_fail(COH_ERR_INTERNAL, "a GPU has one host arena");
    COH_TRY(coh_arena_create_near(near_node(device), bytes, "pinned host arena", COH_TIER_HOST,
                                  device->config.ledger, device->config.thread_count,
                                  &device->host_arena));
    coh_status status = coh_cuda_enter(device);
    if (status == COH_OK) {
        status = pin(device);
        coh_cuda_leave(device);
    }
    if (status != COH_OK)
        destroy_host_arena(device);
    return status;
}

static coh_status device_arena_create(coh_device *device, coh_tier tier, uint64_t bytes,
                                      void **out_base)
{
    *out_base = NULL;
    if (tier == COH_TIER_DEVICE) {
        COH_TRY(create_device_arena(device, bytes));
        *out_base = (void *)(uintptr_t)device->arena;
        return COH_OK;
    }
    COH_TRY(create_host_arena(device, bytes));
    *out_base = coh_arena_base(device->host_arena);
    return COH_OK;
}

static void device_arena_destroy(coh_device *device, coh_tier tier)
{
    if (tier == COH_TIER_DEVICE)
        destroy_device_arena(device);
    else
        destroy_host_arena(device);
}

static void device_arena_facts(const coh_device *device, coh_tier tier, coh_arena_facts *out_facts)
{
    *out_facts = (coh_arena_facts){ 0 };
    if (tier == COH_TIER_DEVICE && device->arena != 0)
        *out_facts = (coh_arena_facts){ .node_count = 1, .touch_ns = device->arena_touch_ns };
    if (tier == COH_TIER_HOST && device->host_arena != NULL) {
        coh_arena_read_facts(device->host_arena, out_facts);
        out_facts->pin_ns = device->pin_ns;
    }
}

static coh_status device_overhead(coh_device *device, coh_device_overhead *out_overhead)
{
    size_t free_bytes = 0, total_bytes = 0;
    *out_overhead = (coh_device_overhead){ 0 };
    COH_TRY(coh_cuda_enter(device));
    const coh_status status = coh_cuda_check(
        device->driver, device->driver->cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
    coh_cuda_leave(device);
    COH_TRY(status);
    const uint64_t used = total_bytes - free_bytes;
    const uint64_t known = device->context_bytes + (device->arena != 0 ? device->arena_bytes : 0);
    *out_overhead = (coh_device_overhead){ .context_bytes = device->context_bytes,
                                           .library_bytes = used > known ? used - known : 0,
                                           .free_bytes = free_bytes,
                                           .total_bytes = total_bytes };
    return COH_OK;
}

static void device_meter(coh_device *device, coh_device_meter *out_meter)
{
    *out_meter = (coh_device_meter){ .clock_hz = UINT64_MAX, .power_mw = UINT64_MAX };
    if (device->nvml != NULL)
        coh_nvml_read(device->nvml, coh_clock_ns(), out_meter);
}

static void device_destroy(coh_device *device)
{
    if (device == NULL)
        return;
    destroy_host_arena(device);
    destroy_device_arena(device);
    close_device(device);
    coh_counter_fini(&device->pass_made);
    coh_counter_fini(&device->pushed);
    pthread_mutex_destroy(&device->failure_mutex);
    coh_free(device);
}

static coh_status device_watch(coh_device *device, coh_counter *counter)
{
    if (device->watched_count == COH_CUDA_WATCH_COUNT)
        return coh_fail(COH_ERR_FULL, "a GPU watches the counters of %u lanes at most",
                        COH_CUDA_WATCH_COUNT);
    coh_counter_set_mirror(counter, &device->words->mirror[device->watched_count].value);
    device->watched[device->watched_count++] = counter;
    return COH_OK;
}

const coh_device_ops coh_device_cuda = {
    .struct_bytes = sizeof(coh_device_ops),
    .name = "cuda",
    .create = device_create,
    .destroy = device_destroy,
    .facts = device_facts,
    .arena_create = device_arena_create,
    .arena_destroy = device_arena_destroy,
    .arena_facts = device_arena_facts,
    .overhead = device_overhead,
    .meter = device_meter,
    .fill = device_fill,
    .put = device_copy,
    .get = device_copy,
    .share = device_share,
    .unshare = device_unshare,
    .watch = device_watch,
    .failure = coh_cuda_device_failure,
    .queue_create = coh_cuda_queue_create,
    .queue_close = coh_cuda_queue_close,
    .queue_destroy = coh_cuda_queue_destroy,
    .copy = coh_cuda_queue_copy,
    .finish = coh_cuda_queue_finish,
    .launch = coh_cuda_queue_launch,
    .rehearse = coh_cuda_queue_rehearse,
    .record_begin = coh_cuda_record_begin,
    .record_end = coh_cuda_record_end,
    .replay = coh_cuda_queue_replay,
    .notify = coh_cuda_queue_notify,
    .signal = coh_cuda_queue_signal,
    .wait = coh_cuda_queue_wait,
    .wait_host = coh_cuda_queue_wait_host,
    .take_times = coh_cuda_queue_take_times,
};
