/* The calls of the stub driver. */
#include "tests/cuda/stub_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/stub_state.h"

struct CUctx_st {
    int unused;
};
static struct CUctx_st the_context, the_callers;

/* Those that a thread has pushed; the last one is current. */
enum { CONTEXTS_MOST = 16 };
static _Thread_local CUcontext contexts[CONTEXTS_MOST];
static _Thread_local int context_count;

/* Tests may be built without assert. */
static void require(int holds)
{
    if (!holds)
        abort();
}

/* ---- around every call ---- */

CUcontext coh_stub_current(void)
{
    return context_count > 0 ? contexts[context_count - 1] : NULL;
}

CUcontext coh_stub_callers_context(void)
{
    return &the_callers;
}

/* Takes the mutex. CUDA_SUCCESS: go on. `needs`: the GPU's context is current. */
static CUresult begin(coh_stub_call call, int needs)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub_stand_back();
    coh_stub.call_counts[call]++;
    if (coh_stub.fail_in > 0 && call == coh_stub.fail_call && --coh_stub.fail_in == 0) {
        coh_stub.fault_was_hit = 1;
        return coh_stub.fail_result;
    }
    if (needs && coh_stub_current() != &the_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return coh_stub.broken;
}

static CUresult end(CUresult result)
{
    pthread_mutex_unlock(&coh_stub.mutex);
    return result;
}

#define BEGIN(name)                                                                                \
    CUresult result = begin(COH_STUB_##name, 1);                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
    return end(result)
#define BEGIN_ANYWHERE(name)                                                                       \
    CUresult result = begin(COH_STUB_##name, 0);                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
    return end(result)

/* ---- the driver, the GPU, the context ---- */

static CUresult stub_cuInit(unsigned flags)
{
    (void)flags;
    BEGIN_ANYWHERE(cuInit);
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDriverGetVersion(int *version)
{
    BEGIN_ANYWHERE(cuDriverGetVersion);
    *version = CUDA_VERSION;
    return end(CUDA_SUCCESS);
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
    *count = 1;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceGet(CUdevice *device, int index)
{
    BEGIN_ANYWHERE(cuDeviceGet);
    *device = 100 + index;
    return end(index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

static CUresult stub_cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDeviceGetName);
    snprintf(name, (size_t)bytes, "stub");
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDeviceTotalMem);
    *bytes = coh_stub.memory_bytes;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDeviceGetAttribute);
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? 132
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 1;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    BEGIN_ANYWHERE(cuDevicePrimaryCtxRetain);
    *context = &the_context;
    if (coh_stub.retain_count++ == 0)
        coh_stub.used_bytes += coh_stub.context_bytes;
    coh_stub.live_count++;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    CUresult result = begin(COH_STUB_cuDevicePrimaryCtxRelease, 0);
    if (--coh_stub.retain_count == 0)
        coh_stub.used_bytes -= coh_stub.context_bytes;
    coh_stub.live_count--;
    return end(result);
}

static CUresult stub_cuCtxPushCurrent(CUcontext context)
{
    BEGIN_ANYWHERE(cuCtxPushCurrent);
    require(context_count < CONTEXTS_MOST);
    contexts[context_count++] = context;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = begin(COH_STUB_cuCtxPopCurrent, 0);
    if (context_count == 0)
        return end(CUDA_ERROR_INVALID_CONTEXT);
    *context = contexts[--context_count];
    return end(result);
}

/* ---- memory ---- */

static CUresult add_range(stub_memory memory, void *base, size_t bytes)
{
    for (int i = 0; i < STUB_RANGES_MOST; i++)
        if (coh_stub.ranges[i].base == NULL) {
            coh_stub.ranges[i] = (stub_range){ .memory = memory, .base = base, .bytes = bytes };
            coh_stub.live_count++;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult drop_range(stub_memory memory, void *base)
{
    for (int i = 0; i < STUB_RANGES_MOST; i++) {
        stub_range *range = &coh_stub.ranges[i];
        if (base == NULL || range->base != base || range->memory != memory)
            continue;
        if (memory == STUB_DEVICE)
            coh_stub.used_bytes -= range->bytes;
        if (memory != STUB_REGISTERED)
            free(base);
        range->base = NULL;
        coh_stub.live_count--;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult stub_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    BEGIN(cuMemGetInfo);
    *total_bytes = coh_stub.memory_bytes;
    *free_bytes = coh_stub.memory_bytes - coh_stub.used_bytes;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    BEGIN(cuMemAlloc);
    void *base = NULL;
    if (bytes > coh_stub.memory_bytes - coh_stub.used_bytes ||
        posix_memalign(&base, 256, bytes) != 0)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    memset(base, 0xa5, bytes);
    coh_stub.used_bytes += bytes;
    *address = (CUdeviceptr)(uintptr_t)base;
    return end(add_range(STUB_DEVICE, base, bytes));
}

static CUresult stub_cuMemFree(CUdeviceptr address)
{
    CUresult result = begin(COH_STUB_cuMemFree, 1);
    CUresult dropped = drop_range(STUB_DEVICE, (void *)(uintptr_t)address);
    return end(result != CUDA_SUCCESS ? result : dropped);
}

static CUresult stub_cuMemAllocHost(void **address, size_t bytes)
{
    BEGIN(cuMemAllocHost);
    if (posix_memalign(address, 4096, bytes) != 0)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    return end(add_range(STUB_HOST, *address, bytes));
}

static CUresult stub_cuMemFreeHost(void *address)
{
    CUresult result = begin(COH_STUB_cuMemFreeHost, 1);
    CUresult dropped = drop_range(STUB_HOST, address);
    return end(result != CUDA_SUCCESS ? result : dropped);
}

static CUresult stub_cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags)
{
    (void)flags;
    BEGIN(cuMemHostGetDevicePointer);
    *address = (CUdeviceptr)(uintptr_t)host;
    return end(coh_stub_reaches(host, 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult stub_cuMemHostRegister(void *base, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN(cuMemHostRegister);
    return end(add_range(STUB_REGISTERED, base, bytes));
}

static CUresult stub_cuMemHostUnregister(void *base)
{
    CUresult result = begin(COH_STUB_cuMemHostUnregister, 1);
    CUresult dropped = drop_range(STUB_REGISTERED, base);
    return end(result != CUDA_SUCCESS ? result : dropped);
}

/* ---- streams and events ---- */

static CUresult stub_cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    BEGIN(cuStreamCreate);
    int number = 0;
    while (number < STUB_STREAMS_MOST && coh_stub.streams[number] != NULL)
        number++;
    *stream = number < STUB_STREAMS_MOST ? calloc(1, sizeof(**stream)) : NULL;
    if (*stream == NULL)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    (*stream)->number = number;
    coh_stub.streams[number] = *stream;
    if (number == coh_stub.stream_count)
        coh_stub.stream_count++;
    coh_stub.live_count++;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamDestroy(CUstream stream)
{
    CUresult result = begin(COH_STUB_cuStreamDestroy, 1);
    (void)coh_stub_finish(stream);
    coh_stub.streams[stream->number] = NULL;
    coh_stub.live_count--;
    free(stream->commands);
    free(stream);
    return end(result);
}

static CUresult stub_cuStreamQuery(CUstream stream)
{
    BEGIN(cuStreamQuery);
    return end(stream->begin < stream->end ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

static CUresult stub_cuStreamSynchronize(CUstream stream)
{
    CUresult result = begin(COH_STUB_cuStreamSynchronize, 1);
    CUresult finished = coh_stub_finish(stream);
    return end(result != CUDA_SUCCESS ? result : finished);
}

static CUresult stub_cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    BEGIN(cuEventCreate);
    *event = calloc(1, sizeof(**event));
    if (*event == NULL)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    coh_stub.live_count++;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuEventDestroy(CUevent event)
{
    CUresult result = begin(COH_STUB_cuEventDestroy, 1);
    event->next = coh_stub.destroyed;
    coh_stub.destroyed = event;
    coh_stub.live_count--;
    return end(result);
}

static CUresult stub_cuEventRecord(CUevent event, CUstream stream)
{
    BEGIN(cuEventRecord);
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_RECORD, .event = event, .value = ++event->recorded });
    return end(CUDA_SUCCESS);
}

/* Waits for the record before this call; there was none: for nothing. */
static CUresult stub_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    BEGIN(cuStreamWaitEvent);
    coh_stub_push(stream, &(stub_command){
                              .kind = STUB_WAIT_EVENT, .event = event, .value = event->recorded });
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamWaitValue64(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                         unsigned flags)
{
    BEGIN(cuStreamWaitValue64);
    const void *from = (const void *)(uintptr_t)word;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || word % 8 != 0 || !coh_stub_reaches(from, 8))
        return end(CUDA_ERROR_INVALID_VALUE);
    coh_stub_push(stream, &(stub_command){ .kind = STUB_WAIT_VALUE, .from = from, .value = value });
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuStreamWriteValue64(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                          unsigned flags)
{
    BEGIN(cuStreamWriteValue64);
    void *to = (void *)(uintptr_t)word;
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || word % 8 != 0 || !coh_stub_reaches(to, 8))
        return end(CUDA_ERROR_INVALID_VALUE);
    coh_stub_push(stream, &(stub_command){ .kind = STUB_WRITE, .to = to, .value = value });
    return end(CUDA_SUCCESS);
}

/* Within one range of memory that was allocated or registered, or outside of all of them. */
static int is_copied(const void *address, size_t bytes)
{
    return coh_stub_reaches(address, bytes) || !coh_stub_touches(address, bytes);
}

/* Between memory that was allocated or registered, each side within one piece of it. Other memory
 * of the host would make it a copy that the caller waits for: allowed where it then does, which is
 * on no lane. */
static CUresult stub_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyAsync);
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    if (!coh_stub_reaches(target, bytes) && !coh_stub_reaches(source, bytes))
        return end(CUDA_ERROR_INVALID_VALUE);
    if (!is_copied(target, bytes) || !is_copied(source, bytes))
        return end(CUDA_ERROR_INVALID_VALUE);
    coh_stub.fetched_bytes += coh_stub_is_device(source) ? bytes : 0;
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_COPY, .to = target, .from = source, .bytes = bytes });
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                     CUstream stream)
{
    BEGIN(cuMemsetD8Async);
    void *target = (void *)(uintptr_t)to;
    if (!coh_stub_reaches(target, bytes))
        return end(CUDA_ERROR_INVALID_VALUE);
    coh_stub_push(
        stream, &(stub_command){ .kind = STUB_FILL, .to = target, .value = value, .bytes = bytes });
    return end(CUDA_SUCCESS);
}

/* ---- kernels ---- */

static CUresult stub_cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    BEGIN(cuModuleLoadData);
    *module = calloc(1, sizeof(**module));
    if (*module == NULL)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    coh_stub.used_bytes += coh_stub.module_bytes;
    coh_stub.live_count++;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuModuleUnload(CUmodule module)
{
    CUresult result = begin(COH_STUB_cuModuleUnload, 1);
    for (int i = 0; i < module->function_count; i++)
        free(module->functions[i]);
    free(module);
    coh_stub.used_bytes -= coh_stub.module_bytes;
    coh_stub.live_count--;
    return end(result);
}

static CUresult stub_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *symbol)
{
    BEGIN(cuModuleGetFunction);
    require((size_t)module->function_count < sizeof(module->functions) / sizeof(CUfunction));
    *function = calloc(1, sizeof(**function));
    if (*function == NULL)
        return end(CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < coh_stub.twin_count; i++)
        if (strcmp(coh_stub.twins[i].symbol, symbol) == 0) {
            (*function)->work = coh_stub.twins[i].work;
            (*function)->argument_bytes = coh_stub.twins[i].argument_bytes;
        }
    if ((*function)->work == NULL && coh_stub.kernels != NULL) {
        (*function)->argument_bytes = coh_stub.kernels->argument_bytes(symbol);
        (*function)->of_kernel = (*function)->argument_bytes > 0 ? symbol : NULL;
    }
    module->functions[module->function_count++] = *function;
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuFuncLoad(CUfunction function)
{
    (void)function;
    BEGIN(cuFuncLoad);
    return end(CUDA_SUCCESS);
}

static CUresult stub_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                        int value)
{
    BEGIN(cuFuncSetAttribute);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        function->shared_bytes = (unsigned)value;
    return end(CUDA_SUCCESS);
}

static void run_kernel(const void *launch)
{
    coh_stub.kernels->run(launch);
}

static CUresult stub_cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z,
                                    unsigned threads, unsigned threads_y, unsigned threads_z,
                                    unsigned shared_bytes, CUstream stream, void **parameters,
                                    void **extra)
{
    (void)threads_y;
    (void)threads_z;
    (void)extra;
    BEGIN(cuLaunchKernel);
    if (x == 0 || y == 0 || z == 0 || threads == 0 || threads > 1024 ||
        shared_bytes > function->shared_bytes)
        return end(CUDA_ERROR_INVALID_VALUE);
    if (function->work == NULL && function->of_kernel == NULL)
        return end(CUDA_ERROR_NOT_FOUND);
    stub_command c = { .kind = STUB_WORK, .work = function->work };
    if (function->work != NULL) {
        memcpy(c.arguments, parameters[0], function->argument_bytes);
    } else {
        coh_stub_launch launch = { function->of_kernel, x, y, z, threads, shared_bytes, { 0 } };
        memcpy(launch.arguments, parameters[0], function->argument_bytes);
        memcpy(c.arguments, &launch, sizeof(launch));
        c.work = run_kernel;
    }
    coh_stub_push(stream, &c);
    return end(CUDA_SUCCESS);
}

const coh_cuda_driver coh_stub_driver = {
#define FIELD(name) .name = stub_##name,
    COH_CUDA_DRIVER_LIST(FIELD)
#undef FIELD
};

/* ---- for tests ---- */

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
    coh_stub.memory_bytes = memory_bytes;
    coh_stub.used_bytes = coh_stub.context_bytes = coh_stub.module_bytes = 0;
    coh_stub.broken = CUDA_SUCCESS;
    coh_stub.depth = coh_stub.most_pending = coh_stub.fetched_bytes = 0;
    coh_stub.full_count = coh_stub.held_count = 0;
    coh_stub.fail_in = 0;
    coh_stub.fault_was_hit = 0;
    pthread_mutex_unlock(&coh_stub.mutex);
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

void coh_stub_fail_nth(coh_stub_call call, uint64_t n, CUresult result)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.fail_call = call;
    coh_stub.fail_in = n;
    coh_stub.fail_result = result;
    coh_stub.fault_was_hit = 0;
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

void coh_stub_set_kernels(const coh_stub_kernels *kernels)
{
    coh_stub.kernels = kernels;
}

void coh_stub_set_twin(const char *symbol, coh_stub_work work, size_t argument_bytes)
{
    require(coh_stub.twin_count < STUB_TWINS_MOST && argument_bytes <= COH_STUB_ARGUMENT_BYTES);
    coh_stub.twins[coh_stub.twin_count++] =
        (struct stub_twin){ .symbol = symbol, .work = work, .argument_bytes = argument_bytes };
}
