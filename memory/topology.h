/* topology.h - the machine's cores, caches and NUMA nodes, as needed to place memory and threads
 * (hwloc).
 *
 * Loading takes milliseconds and allocates, so it is done at start and never in a step. */
#ifndef COH_MEMORY_TOPOLOGY_H
#define COH_MEMORY_TOPOLOGY_H

#include <stdint.h>

#include "base/check.h"

/* Counts only what this process may use (its CPU set and cgroup). */
typedef struct coh_topology {
    int core_count;            /* default of --threads */
    int thread_count;          /* hardware threads */
    int node_count;            /* NUMA nodes with memory; at least 1 */
    uint64_t last_cache_bytes; /* one last-level cache; 0: unknown */
    uint64_t all_cache_bytes;  /* all last-level caches together */
    char cpu_name[64];         /* "": unknown */
} coh_topology;

/* Reads the topology. Fails: COH_ERR_DEVICE if hwloc cannot read the machine; the struct then holds
 * one core and one node. */
coh_status coh_topology_read(coh_topology *out_topology);

/* ---- memory nodes, by the system's numbers ----
 *
 * On a machine with several processors each has its own memory, and a device's copies from another
 * processor's memory cross between them. Files in /sys tell which node is nearest a device and how
 * much of it is free. `root` is put before their paths: "" for the machine itself, a test's own
 * folder in tests. */

/* No particular node, or an unknown one. */
#define COH_NODE_ANY (-1)

/* Returns the node of all processors that this thread may run on; COH_NODE_ANY if they are of
 * several, or of none. */
int coh_node_of_thread(void);

/* Returns the free pages of that node now, in bytes, without the page cache: the kernel takes free
 * pages of other nodes before it shrinks the cache. 0: unknown. */
uint64_t coh_node_free_bytes(const char *root, int node);

/* Returns the node nearest the device at a PCI address such as "0000:1b:00.0"; COH_NODE_ANY if the
 * system does not know. */
int coh_node_of_pci(const char *root, const char *address);

typedef struct coh_placement {
    int node_count; /* nodes that pages are spread over; 1: one node, or nothing is bound */
    int is_near;    /* 1: pages prefer the near node */
} coh_placement;

/* Places the pages of [base, base + bytes), which must not be touched yet, and reports how.
 *
 * Pages prefer node `near` (COH_NODE_ANY: none) if this process may use it and that much is free
 * there; a page that finds no room after all goes to another node. Otherwise they are spread over
 * all nodes that the process may use. If its memory is bound to some nodes, or prefers some
 * (numactl), only those count. With a single node, or if binding is denied, nothing is bound. The
 * node of a page never changes a result, so nothing here fails. */
void coh_topology_place(const char *root, int near, void *base, uint64_t bytes,
                        coh_placement *out_placement);

#endif
