/* A libcuda.so.1 without a GPU, with just enough functions for cuDNN to finish plans for a
 * described device: cuDNN compiles, loads and names kernels, but never launches one. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { NOT_FOUND = 500 };

#define DOES_NOTHING(name)                                                                         \
    EXPORT int name(void);                                                                         \
    EXPORT int name(void)                                                                          \
    {                                                                                              \
        return 0;                                                                                  \
    }

DOES_NOTHING(cuInit)
DOES_NOTHING(cuGetErrorName)
DOES_NOTHING(cuGetErrorString)
DOES_NOTHING(cuCtxGetCurrent)
DOES_NOTHING(cuCtxGetLimit)
DOES_NOTHING(cuCtxPopCurrent)
DOES_NOTHING(cuCtxPushCurrent)
DOES_NOTHING(cuDeviceGet)
DOES_NOTHING(cuDeviceGetCount)
DOES_NOTHING(cuDriverGetVersion)
DOES_NOTHING(cuKernelGetAttribute)
DOES_NOTHING(cuKernelSetAttribute)
DOES_NOTHING(cuLaunchCooperativeKernel)
DOES_NOTHING(cuLaunchKernel)
DOES_NOTHING(cuLaunchKernelEx)
DOES_NOTHING(cuLibraryLoadFromFile)
DOES_NOTHING(cuLibraryUnload)
DOES_NOTHING(cuLinkAddData)
DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkCreate)
DOES_NOTHING(cuLinkDestroy)
DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
DOES_NOTHING(cuStreamGetCtx)

/* Never provides a table: its callers would call through it. */
EXPORT int cuGetExportTable(const void **table, const void *id);
EXPORT int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

static int handle; /* not NULL, never dereferenced */

EXPORT int cuLibraryLoadData(void **library);
EXPORT int cuLibraryLoadData(void **library)
{
    *library = &handle;
    return 0;
}

EXPORT int cuLibraryGetKernel(void **kernel);
EXPORT int cuLibraryGetKernel(void **kernel)
{
    *kernel = &handle;
    return 0;
}
