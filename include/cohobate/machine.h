/* machine.h - what this machine has, what that costs, and what to do about it. */
#ifndef COHOBATE_MACHINE_H
#define COHOBATE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum coh_finding_level {
    COH_FINDING_OK,
    COH_FINDING_NOTE,
    COH_FINDING_WARN
} coh_finding_level;

/* One line of `cohobate doctor`: what is there, what it costs, what to do ("" where nothing is). */
typedef struct coh_finding {
    char subject[32]; /* "cores", "instruction set", "BLAS", "memory", "memlock", "io_uring", ... */
    coh_finding_level level;
    char found[256], cost[256], remedy[256];
} coh_finding;

/* Looks at cores, instruction set, BLAS core type (and preset variables that slow it), memory and
 * cgroup, huge pages, NUMA, memlock, io_uring, O_DIRECT in `folder`, the CUDA driver, each GPU, and
 * the libraries that a GPU's work uses. On each GPU a context, the kernels and the libraries are
 * loaded for a moment, to see what of its memory they take. Fills at most `most`: 64 are enough. */
COH_API coh_status coh_machine_examine(const char *folder, coh_finding *out_findings, size_t most,
                                       size_t *out_count);

/* Bytes that may be taken now: MemAvailable and the cgroup's limit, the smaller, minus a reserve of
 * 256 MiB or 1/16, the larger. */
COH_API uint64_t coh_machine_free_bytes(void);
/* The most that a run's arenas are given now: the same with what an engine itself keeps back. */
COH_API uint64_t coh_machine_most_bytes(void);
/* 1 if the limit of this process's address space (ulimit -v, RLIMIT_AS) is what bounds both, and
 * not the machine's memory or its control group's. */
COH_API int coh_machine_is_limited(void);
/* A device that an engine may run on. */
typedef struct coh_device_summary {
    char name[64]; /* "host", or the GPU's own: "NVIDIA H200" */
    int32_t is_gpu;
    uint64_t
        memory_bytes; /* the most that a run's arena may be given; a GPU's if nobody else uses it */
    /* What computes there, for coh_plan_options: bits are promised where it is the same. */
    char kernel_path[128];
} coh_device_summary;

/* `device`: NULL or "host"; "cuda:0" or "cuda", "cuda:1", ...
 * Fails: COH_ERR_ARGUMENT (no device is called so), COH_ERR_DEVICE (no driver, no such GPU, one
 * that is too old, a build without CUDA). */
COH_API coh_status coh_device_summarize(const char *device, coh_device_summary *out_summary);

/* Cores this process may use (affinity and cgroup quota, rounded up). */
COH_API int coh_machine_core_count(void);

/* 1 if bf16 is the faster dtype: this processor multiplies it in hardware, or the test setting
 * COH_ISA=bf16-pretended takes it for one that does (then coh_kernel_path() names the setting).
 * Any thread. */
COH_API int coh_machine_bf16_is_fast(void);

/* Sizes: "64MiB", "40GB"; GB = 10^9, GiB = 2^30. A bare number is refused.
 * Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_size_parse(const char *text, uint64_t *out_bytes);
/* "1.50 GiB". Returns `text`. */
COH_API const char *coh_size_format(uint64_t bytes, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
