/* The calls of the stub driver. */
#include "tests/cuda/stub_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda/stub_state.h"

struct CUctx_st {
    int unused;
};
static struct CUctx_st the_context, the_callers;

/* The contexts that a thread has pushed; the last one is current. */
enum { CONTEXTS_MOST = 16 };
static _Thread_local CUcontext contexts[CONTEXTS_MOST];
static _Thread_local int context_count;

static int driver_version = CUDA_VERSION;

void coh_stub_set_cuda_version(int version)
{
    driver_version = version;
}

/* Aborts; tests may be built without assert. */
static void require(int holds)
{
    if (!holds)
        abort();
}

/* ---- begin and end of every call ---- */

CUcontext coh_stub_current(void)
{
    return context_count > 0 ? contexts[context_count - 1] : NULL;
}

CUcontext coh_stub_callers_context(void)
{
    return &the_callers;
}

CUresult coh_stub_begin(coh_stub_call call, int needs)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub_stand_back();
    coh_stub.call_counts[call]++;
    if (coh_stub.fail_in > 0 && call == coh_stub.fail_call && --coh_stub.fail_in == 0) {
        coh_stub.fault_was_hit = 1;
        if (coh_stub.fault_breaks)
            coh_stub.broken = coh_stub.fail_result;
        return coh_stub.fail_result;
    }
    if (needs && coh_stub_current() != &the_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return coh_stub.broken;
}

CUresult coh_stub_end(CUresult result)
{
    pthread_mutex_unlock(&coh_stub.mutex);
    return result;
}

#define BEGIN_ANYWHERE(name)                                                                       \
    CUresult result = coh_stub_begin(COH_STUB_##name, 0);                                          \
    if (result != CUDA_SUCCESS)                                                                    \
    return coh_stub_end(result)

/* ---- the driver, the GPU, the context ---- */

static CUresult stub_cuInit(unsigned flags)
{
    (void)flags;
    BEGIN_ANYWHERE(cuInit);
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDriverGetVersion(int *version)
{
    BEGIN_ANYWHERE(cuDriverGetVersion);
    *version = driver_version;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STUB";
    return CUDA_SUCCESS;
}

static CUresult stub_cuGetErrorString(CUresult error, const char **text)
{
    (void)error;
    *text = "made to fail";
    return CUDA_SUCCESS;
}

static CUresult stub_cuDeviceGetCount(int *count)
{
    BEGIN_ANYWHERE(cuDeviceGetCount);
    *count = coh_stub.gpu_count > 0 ? coh_stub.gpu_count : 1;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceGet(CUdevice *device, int index)
{
    BEGIN_ANYWHERE(cuDeviceGet);
    *device = 100 + index;
    const int count = coh_stub.gpu_count > 0 ? coh_stub.gpu_count : 1;
    return coh_stub_end(index >= 0 && index < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult stub_cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDeviceGetName);
    snprintf(name, (size_t)bytes, "%s", coh_stub.device_name ? coh_stub.device_name : "stub");
    return coh_stub_end(CUDA_SUCCESS);
}

/* The bus of a GPU's PCI address; its other numbers are 0. */
static int bus_of(CUdevice device)
{
    return coh_stub.gpus_are_one ? 1 : device - 99 + coh_stub.first_gpu;
}

static CUresult stub_cuDeviceGetPCIBusId(char *address, int bytes, CUdevice device)
{
    BEGIN_ANYWHERE(cuDeviceGetPCIBusId);
    snprintf(address, (size_t)bytes, "0000:%02x:00.0", (unsigned)bus_of(device));
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDeviceTotalMem);
    *bytes = coh_stub.memory_bytes;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    BEGIN_ANYWHERE(cuDeviceGetAttribute);
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 132
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
             : attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID             ? coh_stub.near_node
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID            ? 0
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID               ? bus_of(device)
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID            ? 0
                                                                         : 1;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDevicePrimaryCtxRetain);
    *context = &the_context;
    if (coh_stub.retain_count++ == 0)
        coh_stub.used_bytes += coh_stub.context_bytes;
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    CUresult result = coh_stub_begin(COH_STUB_cuDevicePrimaryCtxRelease, 0);
    if (--coh_stub.retain_count == 0)
        coh_stub.used_bytes -= coh_stub.context_bytes;
    coh_stub.live_count--;
    return coh_stub_end(result);
}

static CUresult stub_cuCtxPushCurrent(CUcontext context)
{
    BEGIN_ANYWHERE(cuCtxPushCurrent);
    require(context_count < CONTEXTS_MOST);
    contexts[context_count++] = context;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = coh_stub_begin(COH_STUB_cuCtxPopCurrent, 0);
    if (context_count == 0)
        return coh_stub_end(CUDA_ERROR_INVALID_CONTEXT);
    *context = contexts[--context_count];
    return coh_stub_end(result);
}

/* ---- memory ---- */

static CUresult add_range(stub_memory memory, void *base, size_t bytes)
{
    for (int i = 0; i < STUB_RANGES_MOST; i++)
        if (coh_stub.ranges[i].base == NULL) {
            coh_stub.ranges[i] = (stub_range){ .memory = memory, .base = base, .bytes = bytes };
            coh_stub.live_count++;
            if (memory == STUB_HOST)
                coh_stub.host_bytes += bytes;
            if (coh_stub.host_bytes > coh_stub.host_most_bytes)
                coh_stub.host_most_bytes = coh_stub.host_bytes;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Device memory of so many bytes is mapped. */
#define MAPPED_LEAST ((size_t)2 << 20)

static CUresult drop_range(stub_memory memory, void *base)
{
    for (int i = 0; i < STUB_RANGES_MOST; i++) {
        stub_range *range = &coh_stub.ranges[i];
        if (base == NULL || range->base != base || range->memory != memory)
            continue;
        if (memory == STUB_DEVICE)
            coh_stub.used_bytes -= range->bytes;
        if (memory == STUB_HOST)
            coh_stub.host_bytes -= range->bytes;
        if (memory == STUB_DEVICE && range->bytes >= MAPPED_LEAST)
            munmap(base, range->bytes);
        else if (memory != STUB_REGISTERED)
            free(base);
        range->base = NULL;
        coh_stub.live_count--;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult stub_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    STUB_BEGIN(cuMemGetInfo);
    *total_bytes = coh_stub.memory_bytes;
    *free_bytes = coh_stub.memory_bytes - coh_stub.used_bytes;
    return coh_stub_end(CUDA_SUCCESS);
}

/* Returns NULL if there is none. Much memory is mapped, and asks for large pages before the first
 * access, which they make cheap; malloc would fill it before, by small pages (MALLOC_PERTURB_). */
static void *take_device_memory(size_t bytes)
{
    void *base = NULL;
    if (bytes >= MAPPED_LEAST) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
            return NULL;
        (void)madvise(base, bytes, MADV_HUGEPAGE);
    } else if (posix_memalign(&base, 256, bytes) != 0) {
        return NULL;
    }
    coh_stub_fill(base, 0xa5, bytes);
    return base;
}

static CUresult stub_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    STUB_BEGIN(cuMemAlloc);
    if (coh_stub_ends_strict_capture())
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    void *base = NULL;
    if (bytes <= coh_stub.memory_bytes - coh_stub.used_bytes)
        base = take_device_memory(bytes);
    if (base == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    coh_stub.used_bytes += bytes;
    *address = (CUdeviceptr)(uintptr_t)base;
    return coh_stub_end(add_range(STUB_DEVICE, base, bytes));
}

static CUresult stub_cuMemFree(CUdeviceptr address)
{
    CUresult result = coh_stub_begin(COH_STUB_cuMemFree, 1);
    CUresult dropped = drop_range(STUB_DEVICE, (void *)(uintptr_t)address);
    return coh_stub_end(result != CUDA_SUCCESS ? result : dropped);
}

static CUresult stub_cuMemAllocHost(void **address, size_t bytes)
{
    STUB_BEGIN(cuMemAllocHost);
    if (coh_stub_ends_strict_capture())
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (posix_memalign(address, 4096, bytes) != 0)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    return coh_stub_end(add_range(STUB_HOST, *address, bytes));
}

static CUresult stub_cuMemFreeHost(void *address)
{
    CUresult result = coh_stub_begin(COH_STUB_cuMemFreeHost, 1);
    CUresult dropped = drop_range(STUB_HOST, address);
    return coh_stub_end(result != CUDA_SUCCESS ? result : dropped);
}

static CUresult stub_cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags)
{
    (void)flags;
    STUB_BEGIN(cuMemHostGetDevicePointer);
    *address = (CUdeviceptr)(uintptr_t)host;
    return coh_stub_end(coh_stub_reaches(host, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult stub_cuMemHostRegister(void *base, size_t bytes, unsigned flags)
{
    (void)flags;
    STUB_BEGIN(cuMemHostRegister);
    return coh_stub_end(add_range(STUB_REGISTERED, base, bytes));
}

static CUresult stub_cuMemHostUnregister(void *base)
{
    CUresult result = coh_stub_begin(COH_STUB_cuMemHostUnregister, 1);
    CUresult dropped = drop_range(STUB_REGISTERED, base);
    return coh_stub_end(result != CUDA_SUCCESS ? result : dropped);
}

/* ---- streams and events ---- */

static CUresult stub_cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    STUB_BEGIN(cuStreamCreate);
    int number = 0;
    while (number < STUB_STREAMS_MOST && coh_stub.streams[number] != NULL)
        number++;
    *stream = number < STUB_STREAMS_MOST ? calloc(1, sizeof(**stream)) : NULL;
    if (*stream == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    (*stream)->number = number;
    coh_stub.streams[number] = *stream;
    if (number == coh_stub.stream_count)
        coh_stub.stream_count++;
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamDestroy(CUstream stream)
{
    CUresult result = coh_stub_begin(COH_STUB_cuStreamDestroy, 1);
    (void)coh_stub_finish(stream);
    coh_stub_drop_capture(stream);
    coh_stub.streams[stream->number] = NULL;
    coh_stub.live_count--;
    free(stream->commands.all);
    free(stream);
    return coh_stub_end(result);
}

static CUresult look_at(CUstream stream)
{
    STUB_BEGIN(cuStreamQuery);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return coh_stub_end(stream->commands.begin < stream->commands.end ? CUDA_ERROR_NOT_READY
                                                                      : CUDA_SUCCESS);
}

static CUresult stub_cuStreamQuery(CUstream stream)
{
    const int is_held = coh_stub_begin_hold(stream);
    const CUresult result = look_at(stream);
    coh_stub_end_hold(is_held);
    return result;
}

static CUresult stub_cuStreamSynchronize(CUstream stream)
{
    CUresult result = coh_stub_begin(COH_STUB_cuStreamSynchronize, 1);
    if (result == CUDA_SUCCESS && coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUresult finished = coh_stub_finish(stream);
    return coh_stub_end(result != CUDA_SUCCESS ? result : finished);
}

static CUresult stub_cuEventCreate(CUevent *event, unsigned flags)
{
    STUB_BEGIN(cuEventCreate);
    *event = calloc(1, sizeof(**event));
    if (*event == NULL)
        return coh_stub_end(CUDA_ERROR_OUT_OF_MEMORY);
    (*event)->is_timed = !(flags & CU_EVENT_DISABLE_TIMING);
    coh_stub.live_count++;
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuEventDestroy(CUevent event)
{
    CUresult result = coh_stub_begin(COH_STUB_cuEventDestroy, 1);
    event->next = coh_stub.destroyed;
    coh_stub.destroyed = event;
    coh_stub.live_count--;
    return coh_stub_end(result);
}

static CUresult stub_cuEventRecord(CUevent event, CUstream stream)
{
    STUB_BEGIN(cuEventRecord);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_RECORD, .event = event, .value = ++event->recorded });
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuEventQuery(CUevent event)
{
    STUB_BEGIN(cuEventQuery);
    return coh_stub_end(event->completed < event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

static CUresult stub_cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    STUB_BEGIN(cuEventElapsedTime);
    if (!from->is_timed || !to->is_timed || from->recorded == 0 || to->recorded == 0)
        return coh_stub_end(CUDA_ERROR_INVALID_HANDLE);
    if (from->completed < from->recorded || to->completed < to->recorded)
        return coh_stub_end(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)(int64_t)(to->at_ns - from->at_ns) * 1e-6);
    return coh_stub_end(CUDA_SUCCESS);
}

/* Returns 1 if this wait is to be skipped. */
static int is_skipped(coh_stub_call call)
{
    return coh_stub.skip_in > 0 && call == coh_stub.skip_call && --coh_stub.skip_in == 0;
}

/* Waits for the event's last record before this call; without one, for nothing. */
static CUresult stub_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    STUB_BEGIN(cuStreamWaitEvent);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!is_skipped(COH_STUB_cuStreamWaitEvent))
        coh_stub_push(
            stream,
            &(stub_command){ .kind = STUB_WAIT_EVENT, .event = event, .value = event->recorded });
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamWaitValue64(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                         unsigned flags)
{
    STUB_BEGIN(cuStreamWaitValue64);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const void *from = (const void *)(uintptr_t)word;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || word % 8 != 0 || !coh_stub_reaches(from, 8))
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    if (!is_skipped(COH_STUB_cuStreamWaitValue64))
        coh_stub_push(stream,
                      &(stub_command){ .kind = STUB_WAIT_VALUE, .from = from, .value = value });
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamWriteValue64(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                          unsigned flags)
{
    STUB_BEGIN(cuStreamWriteValue64);
    if (coh_stub_ends_capture(stream))
        return coh_stub_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    void *to = (void *)(uintptr_t)word;
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || word % 8 != 0 || !coh_stub_reaches(to, 8))
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    coh_stub_push(stream, &(stub_command){ .kind = STUB_WRITE, .to = to, .value = value });
    return coh_stub_end(CUDA_SUCCESS);
}

/* Returns 1 if the range lies in one allocated or registered range, or outside of all of them. */
static int is_copied(const void *address, size_t bytes)
{
    return coh_stub_reaches(address, bytes) || !coh_stub_touches(address, bytes);
}

/* Copies between allocated or registered memory, each side within one piece. A copy with other host
 * memory would be synchronous: allowed where the caller then waits, which no lane does. */
static CUresult stub_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    STUB_BEGIN(cuMemcpyAsync);
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    if (!coh_stub_reaches(target, bytes) && !coh_stub_reaches(source, bytes))
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    if (!is_copied(target, bytes) || !is_copied(source, bytes))
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    coh_stub.fetched_bytes += coh_stub_is_device(source) ? bytes : 0;
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_COPY, .to = target, .from = source, .bytes = bytes });
    return coh_stub_end(CUDA_SUCCESS);
}

static CUresult stub_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                     CUstream stream)
{
    STUB_BEGIN(cuMemsetD8Async);
    void *target = (void *)(uintptr_t)to;
    if (!coh_stub_reaches(target, bytes))
        return coh_stub_end(CUDA_ERROR_INVALID_VALUE);
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_FILL, .to = target, .value = value, .bytes = bytes });
    return coh_stub_end(CUDA_SUCCESS);
}

const coh_cuda_driver coh_stub_driver = {
#define FIELD(name) .name = stub_##name,
    COH_CUDA_DRIVER_LIST(FIELD)
#undef FIELD
};

/* ---- for tests ---- */

void coh_stub_name_device(const char *name)
{
    coh_stub.device_name = name;
}

void coh_stub_reset(size_t memory_bytes)
{
    require(coh_stub.live_count == 0);
    pthread_mutex_lock(&coh_stub.mutex);
    while (coh_stub.destroyed != NULL) {
        CUevent event = coh_stub.destroyed;
        coh_stub.destroyed = event->next;
        free(event);
    }
    memset(coh_stub.call_counts, 0, sizeof(coh_stub.call_counts));
    memset(coh_stub.twins, 0, sizeof(coh_stub.twins));
    coh_stub.twin_count = 0;
    coh_stub.stream_count = 0;
    coh_stub.near_node = -1;
    coh_stub.gpu_count = 1;
    coh_stub.clock_rate = 1;
    coh_stub.clock_from_ns = 0;
    coh_stub.memory_bytes = memory_bytes;
    coh_stub.host_most_bytes = coh_stub.host_bytes;
    coh_stub.used_bytes = coh_stub.context_bytes = coh_stub.module_bytes = coh_stub.graph_bytes = 0;
    coh_stub.broken = CUDA_SUCCESS;
    coh_stub.depth = coh_stub.most_pending = coh_stub.fetched_bytes = 0;
    coh_stub.full_count = coh_stub.held_count = 0;
    coh_stub.fail_in = coh_stub.skip_in = 0;
    coh_stub.fault_was_hit = 0;
    pthread_mutex_unlock(&coh_stub.mutex);
}

void coh_stub_set_gpu_count(int count)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.gpu_count = count;
    pthread_mutex_unlock(&coh_stub.mutex);
}

void coh_stub_set_first_gpu(int number)
{
    coh_stub.first_gpu = number;
}

void coh_stub_share_gpus(int do_share)
{
    coh_stub.gpus_are_one = do_share;
}

void coh_stub_set_near_node(int node)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.near_node = node;
    pthread_mutex_unlock(&coh_stub.mutex);
}

size_t coh_stub_most_host_bytes(void)
{
    pthread_mutex_lock(&coh_stub.mutex);
    const size_t bytes = coh_stub.host_most_bytes;
    pthread_mutex_unlock(&coh_stub.mutex);
    return bytes;
}

uint64_t coh_stub_live_count(void)
{
    pthread_mutex_lock(&coh_stub.mutex);
    uint64_t count = coh_stub.live_count;
    pthread_mutex_unlock(&coh_stub.mutex);
    return count;
}

const char *coh_stub_call_name(coh_stub_call call)
{
    static const char *const names[] = {
#define NAME(name) #name,
        COH_CUDA_DRIVER_LIST(NAME)
#undef NAME
    };
    return names[call];
}

uint64_t coh_stub_call_count(coh_stub_call call)
{
    pthread_mutex_lock(&coh_stub.mutex);
    uint64_t count = coh_stub.call_counts[call];
    pthread_mutex_unlock(&coh_stub.mutex);
    return count;
}

static void plan_fault(coh_stub_call call, uint64_t n, CUresult result, int breaks)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.fail_call = call;
    coh_stub.fail_in = n;
    coh_stub.fail_result = result;
    coh_stub.fault_was_hit = 0;
    coh_stub.fault_breaks = breaks;
    pthread_mutex_unlock(&coh_stub.mutex);
}

void coh_stub_fail_nth(coh_stub_call call, uint64_t n, CUresult result)
{
    plan_fault(call, n, result, 0);
}

void coh_stub_break_nth(coh_stub_call call, uint64_t n, CUresult result)
{
    plan_fault(call, n, result, 1);
}

void coh_stub_skip_nth_wait(coh_stub_call call, uint64_t n)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.skip_call = call;
    coh_stub.skip_in = n;
    pthread_mutex_unlock(&coh_stub.mutex);
}

int coh_stub_fault_was_hit(void)
{
    pthread_mutex_lock(&coh_stub.mutex);
    int was_hit = coh_stub.fault_was_hit;
    pthread_mutex_unlock(&coh_stub.mutex);
    return was_hit;
}

void coh_stub_break(CUresult result)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.broken = result;
    pthread_mutex_unlock(&coh_stub.mutex);
}
