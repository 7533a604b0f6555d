/* Loads libcuda.so.1 and fills the table of its functions, after checking versions and the
 * environment. Also turns CUDA's error codes into our texts. Read cuda_driver.h first. */
#include "memory/cuda_driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/terms.h"

#define LIBRARY "libcuda.so.1"

typedef struct open_driver {
    coh_cuda_driver driver; /* first member: callers' pointers point at both */
    void *library;
} open_driver;

typedef struct entry {
    const char *name;
    size_t offset;
} entry;

#define TEXT(name)  #name
#define ENTRY(name) { TEXT(name), offsetof(coh_cuda_driver, name) },
static const entry entries[] = { COH_CUDA_DRIVER_LIST(ENTRY) };

enum { ENTRY_COUNT = sizeof(entries) / sizeof(entries[0]), CHANNELS_LEAST = 8 };

static coh_status find_functions(open_driver *opened)
{
    for (int i = 0; i < ENTRY_COUNT; i++) {
        void *function = dlsym(opened->library, entries[i].name);
        if (function == NULL)
            return coh_fail(COH_ERR_DEVICE,
                            "the CUDA driver (" LIBRARY ") has no function %s: install a driver "
                            "for CUDA %d.%d or later",
                            entries[i].name, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
        memcpy((char *)&opened->driver + entries[i].offset, &function, sizeof(function));
    }
    return COH_OK;
}

/* Refuses settings that could deadlock. Streams wait for words that the host writes; a stream that
 * shares a channel with such a stream waits, too, and the host may need what is behind it. */
static coh_status check_environment(void)
{
    const char *channels = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (channels != NULL && atoi(channels) < CHANNELS_LEAST)
        return coh_fail(COH_ERR_DEVICE,
                        "CUDA_DEVICE_MAX_CONNECTIONS=%s would let streams block one another's "
                        "way for ever: unset it, or give %d or more",
                        channels, CHANNELS_LEAST);
    if (blocking != NULL && strcmp(blocking, "0") != 0)
        return coh_fail(COH_ERR_DEVICE,
                        "CUDA_LAUNCH_BLOCKING=%s would have a launch wait for what is launched "
                        "after it: unset it",
                        blocking);
    return COH_OK;
}

/* Checks the driver's version: kernels that nvcc of one major version made run under drivers of
 * that version and later ones. */
static coh_status start(const coh_cuda_driver *driver)
{
    int version = 0, needed = CUDA_VERSION / 1000 * 1000;
    COH_TRY(coh_cuda_check(driver, driver->cuDriverGetVersion(&version), "cuDriverGetVersion"));
    if (version < needed)
        return coh_fail(COH_ERR_DEVICE,
                        "the CUDA driver serves CUDA %d.%d, this build needs %d.%d: install a "
                        "newer driver",
                        version / 1000, version % 1000 / 10, needed / 1000, needed % 1000 / 10);
    return coh_cuda_check(driver, driver->cuInit(0), "cuInit");
}

coh_status coh_cuda_driver_open(coh_cuda_driver **out_driver)
{
    *out_driver = NULL;
    coh_status status = COH_OK;
    open_driver *opened;
    COH_TRY(COH_ALLOC(1, &opened));
    /* NODELETE: the driver's own threads may outlive the last device. */
    opened->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (opened->library == NULL) {
        status = coh_fail(COH_ERR_DEVICE,
                          "no CUDA driver is here (%s): install NVIDIA's driver, give a "
                          "container its GPUs (NVIDIA's container toolkit), or use %s host",
                          dlerror(), coh_term_text(COH_TERM_DEVICE));
        goto failed;
    }
    COH_TRY_GOTO(status, check_environment(), failed);
    COH_TRY_GOTO(status, find_functions(opened), failed);
    COH_TRY_GOTO(status, start(&opened->driver), failed);
    *out_driver = &opened->driver;
    return COH_OK;
failed:
    coh_cuda_driver_close(&opened->driver);
    return status;
}

void coh_cuda_driver_close(coh_cuda_driver *driver)
{
    if (driver == NULL)
        return;
    open_driver *opened = (open_driver *)(void *)driver;
    if (opened->library != NULL)
        (void)dlclose(opened->library);
    coh_free(opened);
}

/* Returns 1 for errors after which the context, and all of the process's GPU memory, is lost. */
static int is_final(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return 1;
    default:
        return 0;
    }
}

/* Do the words begin with a call that takes main memory (cuMemAllocHost, cuMemHostRegister)? Less
 * of the GPU's memory would not help there, and callers name the flag that does. */
static int is_of_main_memory(const char *text)
{
    return strncmp(text, "cuMemAllocHost", 14) == 0 || strncmp(text, "cuMemHost", 9) == 0;
}

/* The way on after the failure of a call, if a machine's set-up causes it; "": none is known. */
static const char *remedy_of(CUresult result, const char *text)
{
    switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return is_of_main_memory(text)
                   ? ""
                   : "; give the run less memory, or end what else uses this GPU";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return "; another process has the GPU to itself: end it, or allow several (nvidia-smi -c "
               "DEFAULT)";
    case CUDA_ERROR_NO_DEVICE:
        return "; look at CUDA_VISIBLE_DEVICES, and give a container its GPUs (NVIDIA's container "
               "toolkit)";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "; build for this GPU (-Dgpu_archs=, docs/building.md), or install a newer driver";
    case CUDA_ERROR_LAUNCH_TIMEOUT:
        return "; a GPU with a display ends long kernels: compute on one without, or give smaller "
               "micro-batches";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "; the driver was updated: restart the machine";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return "; take CUDA's compatibility libraries out of LD_LIBRARY_PATH, or install a newer "
               "driver";
    case CUDA_ERROR_UNKNOWN:
        return "; after a suspend load the module nvidia_uvm again, else restart the machine";
    default:
        return "";
    }
}

coh_status coh_cuda_check(const coh_cuda_driver *driver, CUresult result, const char *what, ...)
{
    if (result == CUDA_SUCCESS)
        return COH_OK;
    char text[256];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(text, sizeof(text), what, arguments);
    va_end(arguments);
    const char *name = NULL, *meaning = NULL;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "a CUDA error without a name";
    if (driver->cuGetErrorString(result, &meaning) != CUDA_SUCCESS || meaning == NULL)
        meaning = "unknown";
    coh_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? COH_ERR_MEMORY : COH_ERR_DEVICE;
    return coh_fail(status, "%s: %s (%s, number %d)%s%s", text, name, meaning, (int)result,
                    is_final(result) ? "; the GPU answers this process no more: start it again"
                                     : "",
                    remedy_of(result, text));
}
