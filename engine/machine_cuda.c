/* The GPU part of `cohobate doctor`: driver, devices, and the libraries that a GPU's work uses.
 * Next: machine_findings.h, memory/cuda_facts.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/plural.h"
#include "coh_config.h"
#include "engine/machine_findings.h"
#include "memory/cuda_facts.h"
#include "memory/cuda_library.h"

#ifdef COH_HAVE_CUDA
#include "base/bytes.h"
#include "cohobate/terms.h"
#include "kernels/cuda/device_kernels.h"
#include "memory/device_cuda.h"
#include "memory/topology.h"
#endif

/* Counts devices that the kernel module offers, even if no driver library can use them. */
static int count_device_files(void)
{
    int count = 0;
    for (int i = 0; i < COH_CUDA_GPUS_MOST; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/dev/nvidia%d", i);
        count += access(path, F_OK) == 0;
    }
    return count;
}

#ifdef COH_HAVE_CUDA

enum { CAPABILITY_LEAST = 8 }; /* for bf16 products on tensor cores, cp.async */

static void examine_gpu(coh_finding_list *list, int index, const coh_cuda_gpu *gpu)
{
    char subject[32], bytes[32];
    snprintf(subject, sizeof(subject), "GPU %d", index);
    coh_finding *finding = coh_finding_next(list, subject);
    COH_FINDING_SAY(finding->found,
                    "%s, %s, compute capability %" PRId32 ".%" PRId32 ", %" PRId32
                    " multiprocessors",
                    gpu->name, coh_size_format(gpu->memory_bytes, bytes, sizeof(bytes)), gpu->major,
                    gpu->minor, gpu->multiprocessors);
    const size_t used = strlen(finding->found);
    if (gpu->near_node != COH_NODE_ANY)
        coh_finding_print(finding->found + used, sizeof(finding->found) - used,
                          ", near memory node %" PRId32, gpu->near_node);
    if (gpu->major >= CAPABILITY_LEAST)
        return;
    finding->level = COH_FINDING_WARN;
    COH_FINDING_SAY(finding->cost, "it cannot be used: kernels need compute capability %d.0",
                    CAPABILITY_LEAST);
    COH_FINDING_SAY(finding->remedy, "use another device, or %s host",
                    coh_term_text(COH_TERM_DEVICE));
}

/* Measures a device as a run creates it, with an arena only for the libraries' workspaces. */
static coh_status measure_overhead(int index, coh_device_overhead *out_overhead,
                                   uint64_t *out_room_bytes)
{
    const coh_device_ops *ops = &coh_device_cuda;
    const coh_device_config config = { .index = index,
                                       .thread_count = 1,
                                       .kernels = &coh_cuda_device_kernels };
    coh_device *device;
    coh_queue *queue = NULL;
    coh_device_facts facts;
    void *arena = NULL;
    coh_status status;
    COH_TRY(ops->create(&config, &device));
    ops->facts(device, &facts);
    *out_room_bytes = facts.memory_bytes;
    COH_TRY_GOTO(status,
                 ops->arena_create(device, COH_TIER_DEVICE,
                                   coh_bytes_round_page(coh_cuda_device_kernels.workspace_bytes),
                                   &arena),
                 done);
    COH_TRY_GOTO(status, ops->queue_create(device, COH_LANE_COMPUTE, &queue), done);
    status = ops->overhead(device, out_overhead);
done:
    ops->queue_destroy(queue);
    if (arena != NULL)
        ops->arena_destroy(device, COH_TIER_DEVICE);
    ops->destroy(device);
    return status;
}

/* Reports the part of its memory that no arena can use. */
static void examine_overhead(coh_finding_list *list, int index)
{
    char subject[32], room[32], context[32], libraries[32], kept[32];
    coh_device_overhead overhead;
    uint64_t room_bytes = 0;
    snprintf(subject, sizeof(subject), "GPU %d memory", index);
    coh_finding *finding = coh_finding_next(list, subject);
    if (measure_overhead(index, &overhead, &room_bytes) != COH_OK) {
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->found, "%s", coh_last_error());
        COH_FINDING_SAY(finding->cost, "nothing runs on this GPU now");
        return;
    }
    coh_size_format(COH_CUDA_RESERVE_BYTES - COH_CUDA_GRAPH_BYTES, kept, sizeof(kept));
    COH_FINDING_SAY(finding->found,
                    "overhead: context and other programs %s, kernels and libraries %s; an arena "
                    "may have %s now",
                    coh_size_format(overhead.context_bytes, context, sizeof(context)),
                    coh_size_format(overhead.library_bytes, libraries, sizeof(libraries)),
                    coh_size_format(room_bytes, room, sizeof(room)));
    if (overhead.library_bytes <= COH_CUDA_RESERVE_BYTES - COH_CUDA_GRAPH_BYTES)
        return;
    finding->level = COH_FINDING_WARN;
    COH_FINDING_SAY(finding->cost, "an arena of that size fails: only %s are kept for them", kept);
    COH_FINDING_SAY(finding->remedy, "keep %s that much lower",
                    coh_term_text(COH_TERM_DEVICE_MEMORY));
}

/* Returns the number of GPUs. */
static int examine_driver(coh_finding_list *list)
{
    coh_cuda_facts facts;
    coh_finding *finding = coh_finding_next(list, "CUDA");
    if (coh_cuda_facts_read(&facts) != COH_OK) {
        const int device_count = count_device_files();
        COH_FINDING_SAY(finding->found, "%s", coh_last_error());
        if (device_count == 0)
            return 0;
        finding->level = COH_FINDING_WARN;
        COH_FINDING_SAY(finding->cost,
                        "%d NVIDIA device%s here idle%s: everything is computed on the processor",
                        device_count, COH_PLURAL_S(device_count), device_count == 1 ? "s" : "");
        COH_FINDING_SAY(finding->remedy,
                        "do as the sentence says; the driver must be for CUDA 13 or later");
        return 0;
    }
    COH_FINDING_SAY(finding->found, "a driver for CUDA %d.%d and %d GPU%s",
                    facts.driver_version / 1000, facts.driver_version % 1000 / 10, facts.gpu_count,
                    COH_PLURAL_S(facts.gpu_count));
    for (int i = 0; i < facts.gpu_count && i < COH_CUDA_GPUS_MOST; i++) {
        examine_gpu(list, i, &facts.gpus[i]);
        if (facts.gpus[i].major >= CAPABILITY_LEAST)
            examine_overhead(list, i);
    }
    return facts.gpu_count;
}

/* `wanted`: some GPU would use it. The library is opened only then, since that is slow. */
static void examine_library(coh_finding_list *list, const coh_cuda_library_name *name,
                            const char *cost, int wanted)
{
    char path[COH_CUDA_LIBRARY_PATH_BYTES], version[COH_CUDA_VERSION_BYTES];
    void *library;
    coh_finding *finding = coh_finding_next(list, name->product);
    if (!wanted) {
        if (coh_cuda_library_find("", name, path))
            COH_FINDING_SAY(finding->found, "%.240s", path);
        else
            COH_FINDING_SAY(finding->found, "%s is not here", name->file);
        return;
    }
    if (coh_cuda_library_open("", name, &library, path) == COH_OK &&
        coh_cuda_library_accept(name, coh_cuda_library_version(library, name, version)) == COH_OK) {
        COH_FINDING_SAY(finding->found, "%s, %.200s", version, path);
        return;
    }
    COH_FINDING_SAY(finding->found, "%s", coh_last_error());
    coh_finding_blame(finding, COH_FINDING_NOTE, cost,
                      "pip install %s, or the CUDA toolkit 13; a folder of your own is named in "
                      "COH_CUDA_LIBRARIES",
                      name->package);
}

void coh_examine_cuda(coh_finding_list *list)
{
    const int gpu_count = examine_driver(list);
    examine_library(list, &coh_cuda_library_cublaslt,
                    "matrix products run on our own kernels, which are slower", gpu_count > 0);
    examine_library(list, &coh_cuda_library_cudnn,
                    "attention runs on our own kernels, which are slower", gpu_count > 0);
#ifdef COH_HAVE_NCCL
    examine_library(list, &coh_cuda_library_nccl, "several GPUs cannot train together",
                    gpu_count > 1);
#endif
}

#else

/* This build has no device code for CUDA; an unused GPU is still reported. */
void coh_examine_cuda(coh_finding_list *list)
{
    coh_finding *finding = coh_finding_next(list, "CUDA");
    const int gpu_count = count_device_files();
    COH_FINDING_SAY(finding->found,
                    "this build has no CUDA device code (docs/building.md has how to build it); %d "
                    "NVIDIA device%s %s here",
                    gpu_count, COH_PLURAL_S(gpu_count), gpu_count == 1 ? "is" : "are");
    if (gpu_count == 0)
        return;
    coh_finding_blame(finding, COH_FINDING_NOTE,
                      "the GPU stays idle: everything is computed on the processor",
                      "build with nvcc and cuda.h of CUDA 13 (docs/building.md)");
}

#endif
