/* available.h - how much memory this process could still take without being killed for it.
 *
 * Linux grants almost any mapping and kills later, so a budget must be weighed against what is
 * really there before it is touched. Several walls stand at once; the nearest one counts:
 *
 *   machine   MemAvailable: free pages and what the kernel would give back
 *   cgroup    limit - usage + inactive file pages, of our group and each above it (v1 and v2)
 *   process   RLIMIT_AS - mapped
 *
 * Allocates nothing, uses no stdio; any thread. */
#ifndef COH_MEMORY_AVAILABLE_H
#define COH_MEMORY_AVAILABLE_H

#include <stdint.h>

/* The least of the walls, in bytes. Where nothing can be read: UINT64_MAX. `out_source` (may be
 * NULL) gets a static text that names the wall: "MemAvailable", "the memory
 * cgroup", "RLIMIT_AS". */
uint64_t coh_memory_available_bytes(const char **out_source);

/* The same for files below `root` ("" is the machine itself; tests make a tree of their own).
 * RLIMIT_AS is the process's own all the same. */
uint64_t coh_memory_available_under(const char *root, const char **out_source);

/* The lowest cgroup limit above this process, UINT64_MAX if none; for reports. */
uint64_t coh_memory_limit_bytes(void);

#endif
