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

typedef struct coh_placement {
    int node_count; /* nodes that pages are spread over; 1: one node, or nothing is bound */
    int is_near;    /* 1: they prefer the near node */
} coh_placement;

/* Says where the pages of [base, base + bytes), not touched yet, are to stand: on node `near`
 * (COH_NODE_ANY: none) where this process may use it and that much is free there, else spread over
 * all nodes that it may use. Of those only the ones count that its memory is bound to, or prefers,
 * where somebody said so (numactl). The near node is preferred: a page that finds no room there
 * after all stands on another. Where there is but one node, or binding is denied, nothing is bound.
 * Which node a page stands on never changes a result, so there is nothing to fail with.
 * `root` as in memory/node.h. */
void coh_topology_place(const char *root, int near, void *base, uint64_t bytes,
                        coh_placement *out_placement);

#endif
