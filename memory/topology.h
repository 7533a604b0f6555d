/* topology.h - what the machine is made of, as far as placing memory and threads needs it (hwloc).
 *
 * Cold: loading it costs milliseconds and allocates; done at start, never in a step. */
#ifndef COH_MEMORY_TOPOLOGY_H
#define COH_MEMORY_TOPOLOGY_H

#include <stdint.h>

#include "base/check.h"

/* Only what this process may use (its CPU set and cgroup) is counted. */
typedef struct coh_topology {
    int core_count;            /* cores; what --threads defaults to */
    int thread_count;          /* hardware threads */
    int node_count;            /* NUMA nodes with memory; at least 1 */
    uint64_t last_cache_bytes; /* one last-level cache; 0: unknown */
    char cpu_name[64];         /* "" where it is not known */
} coh_topology;

/* Fails: COH_ERR_DEVICE when hwloc cannot read the machine; the struct then holds one core, one
 * node. */
coh_status coh_topology_read(coh_topology *out_topology);

/* Spread the pages of [base, base + bytes), not touched yet, over the nodes this process may use.
 * Returns the number of nodes: 1 where there is but one, or where binding is denied; nothing is
 * bound then. Which node a page stands on never changes a result, so there is
 * nothing to fail with. */
int coh_topology_interleave(void *base, uint64_t bytes);

#endif
