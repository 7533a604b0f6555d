/* available.h - how much memory this process can still take without being killed for it, and how
 * much processor time it may use.
 *
 * Linux grants almost any mapping and kills later, so a budget must be compared with the memory
 * that really exists before it is touched. These limits apply; the lowest one counts:
 *
 *   machine   MemAvailable: free pages and what the kernel would give back
 *   nodes     if the process may not use all memory nodes (cpuset.mems, numactl --membind):
 *             MemFree + Active(file) + Inactive(file) of those that it may use
 *   commit    if vm.overcommit_memory is 2: CommitLimit - Committed_AS - the kernel's reserves
 *   cgroup    limit - usage + file pages + slab_reclaimable (v2) - dirty pages - pages in
 *             writeback, of our group and each above it (v1 and v2). The limit is the lower one of
 *             memory.max and memory.high
 *   process   RLIMIT_AS - mapped; RLIMIT_DATA - private writable mappings
 *
 * Allocates nothing, uses no stdio; any thread. */
#ifndef COH_MEMORY_AVAILABLE_H
#define COH_MEMORY_AVAILABLE_H

#include <stdint.h>

/* Returns the lowest of the limits, in bytes; UINT64_MAX if none can be read. `out_source` (may be
 * NULL) receives a static text that names the limit: "MemAvailable", "the memory nodes", "the
 * commit limit", "the memory cgroup", "RLIMIT_AS", "RLIMIT_DATA". */
uint64_t coh_memory_available_bytes(const char **out_source);

/* As above, with files below `root` ("" is the machine itself; tests make their own tree). The
 * process's limits, and the nodes that numactl binds it to, are still the real ones. */
uint64_t coh_memory_available_under(const char *root, const char **out_source);

/* Returns the lowest of the limits without those of the process: files in memory (tmpfs) are
 * written and not mapped, so only the machine's and the cgroup's limits apply to them. */
uint64_t coh_memory_of_files_bytes(void);

/* Returns the lowest cgroup limit above this process, UINT64_MAX if none; for reports. */
uint64_t coh_memory_limit_bytes(void);

/* Returns the quota of processor time in cores, or 0 if there is no limit. A container may see 64
 * cores and be throttled after 2 cores' worth of each 100 ms. The quota of our group and of each
 * group above it counts; the smallest one is the limit. `root` as above. */
double coh_cpu_quota_cores(const char *root);

/* Opens the file that counts how long the CPU limit of the nearest group, of our group and those
 * above it, kept processes from running. Returns its descriptor, or -1 if there is none. */
int coh_cpu_throttle_open(const char *root);
/* Reads the time so far; UINT64_MAX if it cannot be read, or `descriptor` is -1. */
uint64_t coh_cpu_throttled_ns(int descriptor);

#endif
