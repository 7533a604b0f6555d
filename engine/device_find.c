/* Translates "cuda:1" into an engine's device, and describes a device for plans: its kernel path
 * holds everything that results depend on bit for bit. Next: device_find.h, cohobate/machine.h. */
#include "engine/device_find.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/struct_bytes.h"
#include "coh_config.h"
#include "cohobate/machine.h"
#include "kernels/product.h"

#ifdef COH_HAVE_CUDA
#include <inttypes.h>

#include "kernels/algorithm.h"
#include "kernels/cuda/device_kernels.h"
#include "memory/cuda_facts.h"
#include "memory/cuda_library.h"
#include "memory/device_cuda.h"

enum { CAPABILITY_LEAST = 8 }; /* for bf16 products on tensor cores, cp.async */
#define OTHERS_GROW_BYTES ((uint64_t)128 << 20)
#endif

static int is_host(const char *name)
{
    return name == NULL || strcmp(name, "host") == 0;
}

/* Parses "cuda" and "cuda:3". */
static int parse_index(const char *name, int *out_index)
{
    char end;
    *out_index = 0;
    if (strcmp(name, "cuda") == 0)
        return 1;
    return strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9' &&
           sscanf(name + 5, "%3d%c", out_index, &end) == 1;
}

coh_status coh_device_find(const char *name, coh_engine_device *out_device)
{
    *out_device = (coh_engine_device){ .ops = &coh_device_host };
    if (is_host(name))
        return COH_OK;
    if (!parse_index(name, &out_device->index))
        return coh_fail(COH_ERR_ARGUMENT, "no device is called '%s': host, or cuda:0, cuda:1, ...",
                        name);
#ifdef COH_HAVE_CUDA
    out_device->ops = &coh_device_cuda;
    out_device->kernels = &coh_cuda_device_kernels;
    return COH_OK;
#else
    return coh_fail(COH_ERR_DEVICE,
                    "this program was built without CUDA: build it where nvcc, cuda.h, "
                    "cublasLt.h and cudnn_graph.h are (docs/building.md), or compute on the host");
#endif
}

#ifdef COH_HAVE_CUDA
/* Adds ", cuBLASLt 13.1.0" to the path if the library is installed and used. Fails as a run would,
 * if the library is installed but cannot be opened. */
static coh_status add_library(const coh_cuda_library_name *name, coh_device_summary *out,
                              int32_t *out_version)
{
    char file[COH_CUDA_LIBRARY_PATH_BYTES], version[COH_CUDA_VERSION_BYTES];
    void *library;
    const size_t used = strlen(out->kernel_path);
    const coh_status status = coh_cuda_library_open("", name, &library, file);
    *out_version = 0;
    if (status == COH_ERR_DEVICE)
        return COH_OK;
    COH_TRY(status);
    *out_version = coh_cuda_library_version(library, name, version);
    if (coh_cuda_library_accept(name, *out_version) != COH_OK)
        return COH_OK;
    snprintf(out->kernel_path + used, sizeof(out->kernel_path) - used, ", %s %s", name->product,
             version);
    return COH_OK;
}

/* Describes everything that bits depend on, most important first, since the end may be cut off:
 * which GPU, the libraries' versions, and the stored algorithms of products for them. */
static coh_status describe_kernels(const coh_cuda_gpu *gpu, coh_device_summary *out)
{
    coh_algorithm_device device = { .multiprocessors = gpu->multiprocessors };
    int32_t cublaslt, cudnn;
    snprintf(out->kernel_path, sizeof(out->kernel_path), "cuda: %.48s, sums %d", gpu->name,
             COH_CUDA_SUMS_REVISION);
    COH_TRY(add_library(&coh_cuda_library_cublaslt, out, &cublaslt));
    COH_TRY(add_library(&coh_cuda_library_cudnn, out, &cudnn));
    snprintf(device.name, sizeof(device.name), "%s", gpu->name);
    device.library_version = cublaslt;
    const uint64_t hash = coh_algorithms_hash(&device);
    const size_t used = strlen(out->kernel_path);
    if (hash != 0)
        snprintf(out->kernel_path + used, sizeof(out->kernel_path) - used, ", table %016" PRIx64,
                 hash);
    return COH_OK;
}

/* The largest arena next to a context, libraries and other programs. Next to those it leaves some
 * memory, since a desktop's takes more at times. */
static uint64_t room_of(uint64_t total_bytes, uint64_t free_bytes)
{
    uint64_t bytes = total_bytes, kept = COH_CUDA_RESERVE_BYTES + COH_CUDA_CONTEXT_BYTES;
    if (free_bytes < bytes) {
        bytes = free_bytes;
        kept += OTHERS_GROW_BYTES;
    }
    return bytes > kept ? bytes - kept : 0;
}

static coh_status summarize_gpu(int index, coh_device_summary *out)
{
    coh_cuda_facts facts;
    COH_TRY(coh_cuda_facts_read(&facts));
    if (index >= facts.gpu_count || index >= COH_CUDA_GPUS_MOST)
        return coh_fail(COH_ERR_DEVICE,
                        "there is no GPU %d, the driver sees %d: name one of those, or the host",
                        index, facts.gpu_count);
    const coh_cuda_gpu *gpu = &facts.gpus[index];
    if (gpu->major < CAPABILITY_LEAST)
        return coh_fail(COH_ERR_DEVICE,
                        "GPU %d (%s) has compute capability %d.%d, and kernels need %d.0: take "
                        "another, or the host",
                        index, gpu->name, gpu->major, gpu->minor, CAPABILITY_LEAST);
    snprintf(out->name, sizeof(out->name), "%s", gpu->name);
    COH_TRY(describe_kernels(gpu, out));
    out->is_gpu = 1;
    out->total_bytes = gpu->memory_bytes;
    out->memory_bytes = room_of(gpu->memory_bytes, coh_cuda_free_bytes(index));
    return COH_OK;
}
#endif

static coh_status summarize(const char *device, coh_device_summary *out)
{
    coh_engine_device found;
    COH_TRY(coh_device_find(device, &found));
#ifdef COH_HAVE_CUDA
    if (found.kernels != NULL)
        return summarize_gpu(found.index, out);
#endif
    snprintf(out->kernel_path, sizeof(out->kernel_path), "%s", coh_kernel_path());
    out->memory_bytes = coh_machine_most_bytes();
    out->total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return COH_OK;
}

coh_status coh_device_summarize(const char *device, coh_device_summary *out_summary)
{
    COH_NEED_STRUCT(coh_device_summary, out_summary);
    coh_device_summary summary = { .name = "host" };
    COH_TRY(summarize(device, &summary));
    COH_STRUCT_FILL(summary, out_summary);
    return COH_OK;
}
