/* machine.h - examines this machine: its parts, the cost of what is missing, and the remedy. Also
 * its free memory, its devices, and sizes as text.
 * Threads: any. */
#ifndef COHOBATE_MACHINE_H
#define COHOBATE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/disk.h"
#include "cohobate/status.h"
#include "cohobate/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weight of a finding: OK, NOTE (worth knowing) or WARN (it slows runs down, or stops them). */
typedef enum coh_finding_level {
    COH_FINDING_OK,
    COH_FINDING_NOTE,
    COH_FINDING_WARN
} coh_finding_level;

/* One line of `cohobate doctor`: what was found, what it costs, what to do ("" if nothing). `level`
 * weighs the finding; `found`, `cost` and `remedy` are sentences. */
typedef struct coh_finding {
    char subject[32]; /* "cores", "instruction set", "BLAS", "memory", "memlock", "io_uring", ... */
    coh_finding_level level;
    char found[256], cost[256], remedy[256];
} coh_finding;

/* Examines cores, instruction set, BLAS core type (and environment variables that slow it), memory
 * and cgroup, huge pages, NUMA, memlock, io_uring, O_DIRECT and the drive's rate in each folder,
 * the CUDA driver, each GPU, and the libraries that GPU work uses. On each GPU it briefly loads a
 * context, the kernels and the libraries, to measure the memory they take. Writes 64 MiB to an
 * unnamed file in each folder if all limits allow it. Fills at most `most` findings; 96 are enough.
 * Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_machine_examine(const coh_disk *disks, uint32_t disk_count,
                                       coh_finding *out_findings, size_t most, size_t *out_count);

/* Examines a world of processes, which all call it together: the launcher, the transport, the sizes
 * of the levels, and latency and rate of the exchanges within a pair, within a node and between
 * nodes, in main memory. About a second. The figures are rank 0's. No engine can use the world
 * afterwards. Fills at most `most` findings; 8 are enough.
 * Fails: COH_ERR_ARGUMENT, COH_ERR_MEMORY, a stopped world. */
COH_API coh_status coh_machine_examine_world(coh_world *world, coh_finding *out_findings,
                                             size_t most, size_t *out_count);

/* Returns the bytes that may be taken now: the smallest of MemAvailable and of the limits of memory
 * nodes, commit charge, cgroup and process (coh_machine_limit), minus a reserve of 256 MiB or 1/16,
 * whichever is larger. */
COH_API uint64_t coh_machine_free_bytes(void);
/* Returns the largest total of arenas that an engine may allocate now: coh_machine_arena_bytes of
 * one process without a GPU. */
COH_API uint64_t coh_machine_most_bytes(void);
/* Returns 1 if a limit of this process (RLIMIT_AS, RLIMIT_DATA) bounds these numbers, and not the
 * memory of the machine or of its cgroup. */
COH_API int coh_machine_is_limited(void);
/* Returns the largest total of arenas in main memory that each of `process_count` processes like
 * this one may allocate now: its part of the same limits, minus the memory that it takes in
 * addition, 128 MiB; with `is_gpu` 2 GiB, for the GPU's driver and libraries, too. Planning takes
 * some of it: a budget that is chosen before leaves more. */
COH_API uint64_t coh_machine_arena_bytes(int32_t process_count, int32_t is_gpu);
/* Returns what the arenas of `process_count` processes and their files in memory (a store on tmpfs)
 * may take together now: the same limits without those of a process, which such files are not in,
 * minus 128 MiB for each process. */
COH_API uint64_t coh_machine_file_bytes(int32_t process_count);
/* Names the limit that bounds these numbers: "MemAvailable", "the memory nodes", "the commit
 * limit", "the memory cgroup", "RLIMIT_AS" or "RLIMIT_DATA". *out_remedy (may be NULL): how to
 * raise it. */
COH_API const char *coh_machine_limit(const char **out_remedy);
/* Returns the lowest memory limit of this process's control groups, UINT64_MAX if there is none. */
COH_API uint64_t coh_machine_cgroup_bytes(void);
/* A device that an engine may run on. */
typedef struct coh_device_summary {
    uint32_t struct_bytes;
    char name[64];         /* "host", or the GPU's name: "NVIDIA H200" */
    int32_t is_gpu;        /* 0: the host */
    uint64_t memory_bytes; /* largest arena possible; of a GPU next to what others use now */
    /* The kernels in use, for coh_plan_options: equal paths give equal bits. */
    char kernel_path[128];
    uint64_t total_bytes; /* all memory of the GPU or the machine, also what others use */
} coh_device_summary;

/* Describes a device. `device` is NULL or "host", or "cuda:0", "cuda" (the same), "cuda:1", ...
 * Fails: COH_ERR_ARGUMENT (no such device name), COH_ERR_DEVICE (no driver, no such GPU, a GPU that
 * is too old, a build without CUDA). */
COH_API coh_status coh_device_summarize(const char *device, coh_device_summary *out_summary);

/* Returns the number of cores this process may use (affinity and cgroup quota, rounded up). */
COH_API int coh_machine_core_count(void);

/* Returns 1 if bf16 is the faster dtype: the processor multiplies it in hardware, or the test
 * setting COH_ISA=bf16-pretended makes us assume so (coh_kernel_path() names it). Any thread. */
COH_API int coh_machine_bf16_is_fast(void);

/* Parses a size: "64MiB", "40GB"; GB = 10^9, GiB = 2^30. A number without unit is refused.
 * Fails: COH_ERR_ARGUMENT. */
COH_API coh_status coh_size_parse(const char *text, uint64_t *out_bytes);
/* Formats a size as "1.50 GiB". Returns `text`. */
COH_API const char *coh_size_format(uint64_t bytes, char *text, size_t text_bytes);
/* Bytes that suffice for coh_size_round_up. */
enum { COH_SIZE_TEXT_BYTES = 32 };
/* Formats a size to be typed: coh_size_parse of "161.1GiB" gives at least `bytes`, and less than
 * 0.2 % more. Returns `text`; a text that would be cut is "" instead. `text` NULL, or of no bytes:
 * returns "". */
COH_API const char *coh_size_round_up(uint64_t bytes, char *text, size_t text_bytes);
/* Formats bytes written in a day, to be typed: "2.731TB/day" is at least `bytes`, rounded up to
 * whole GB, below 100 GB to whole MB, and not at all if that exceeds 64 bits. Returns `text`, as
 * coh_size_round_up. */
COH_API const char *coh_daily_round_up(uint64_t bytes, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
