/* Reads cores, caches and NUMA nodes with hwloc, a node's free memory and a PCI device's node from
 * /sys, and binds an arena's pages to nodes: preferring the near node if it has room, else
 * interleaved. Read topology.h first. */
#include "memory/topology.h"

#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/small_file.h"

/* hwloc's default filters omit PCI and other I/O devices, whose discovery is slow. */
static int load(hwloc_topology_t *out_topology)
{
    if (hwloc_topology_init(out_topology) != 0)
        return 0;
    if (hwloc_topology_load(*out_topology) != 0) {
        hwloc_topology_destroy(*out_topology);
        return 0;
    }
    return 1;
}

/* Returns the CPUs of this thread, whose mask new threads inherit; of the process, hwloc also asks
 * threads that are just ending. NULL: out of memory. The caller frees the bitmap. */
static hwloc_bitmap_t usable_cpus(hwloc_topology_t topology)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus != NULL && hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(cpus, hwloc_topology_get_allowed_cpuset(topology));
    return cpus;
}

/* Counts the objects of a kind among the CPUs that this process may run on (taskset, cpuset). */
static int count_usable(hwloc_topology_t topology, hwloc_const_cpuset_t cpus, hwloc_obj_type_t type)
{
    int count = 0;
    for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology, type, NULL); object != NULL;
         object = hwloc_get_next_obj_by_type(topology, type, object))
        count += object->cpuset != NULL && hwloc_bitmap_intersects(object->cpuset, cpus);
    return count;
}

static void read_caches(hwloc_topology_t topology, hwloc_const_cpuset_t cpus, coh_topology *out)
{
    static const hwloc_obj_type_t caches[] = { HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE };
    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
        const hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, caches[i], NULL);
        if (cache == NULL)
            continue;
        out->last_cache_bytes = cache->attr->cache.size;
        out->all_cache_bytes =
            cache->attr->cache.size * (uint64_t)count_usable(topology, cpus, caches[i]);
        return;
    }
}

coh_status coh_topology_read(coh_topology *out_topology)
{
    *out_topology = (coh_topology){ .core_count = 1, .thread_count = 1, .node_count = 1 };
    hwloc_topology_t topology;
    if (!load(&topology))
        return coh_fail(COH_ERR_DEVICE, "hwloc cannot read this machine's topology: one core and "
                                        "one memory node are assumed");
    hwloc_bitmap_t cpus = usable_cpus(topology);
    if (cpus != NULL) {
        int core_count = count_usable(topology, cpus, HWLOC_OBJ_CORE);
        int thread_count = count_usable(topology, cpus, HWLOC_OBJ_PU);
        out_topology->thread_count = thread_count > 0 ? thread_count : 1;
        out_topology->core_count = core_count > 0 ? core_count : out_topology->thread_count;
        read_caches(topology, cpus, out_topology);
        hwloc_bitmap_free(cpus);
    }
    int node_count = hwloc_bitmap_weight(hwloc_topology_get_allowed_nodeset(topology));
    out_topology->node_count = node_count > 0 ? node_count : 1;
    hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, NULL);
    const char *name = package == NULL ? NULL : hwloc_obj_get_info_by_name(package, "CPUModel");
    if (name != NULL)
        snprintf(out_topology->cpu_name, sizeof(out_topology->cpu_name), "%s", name);
    hwloc_topology_destroy(topology);
    return COH_OK;
}

/* ---- memory nodes ---- */

int coh_node_of_thread(void)
{
    hwloc_topology_t topology;
    int node = COH_NODE_ANY;
    if (!load(&topology))
        return COH_NODE_ANY;
    hwloc_bitmap_t cpus = usable_cpus(topology), nodes = hwloc_bitmap_alloc();
    if (cpus != NULL && nodes != NULL) {
        hwloc_cpuset_to_nodeset(topology, cpus, nodes);
        if (hwloc_bitmap_weight(nodes) == 1)
            node = hwloc_bitmap_first(nodes);
    }
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(topology);
    return node;
}

uint64_t coh_node_free_bytes(const char *root, int node)
{
    char path[64], key[32], text[4096];
    uint64_t kib;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", node);
    snprintf(key, sizeof(key), "Node %d MemFree:", node);
    if (!coh_small_file_read(root, path, "/meminfo", text, sizeof(text)) ||
        !coh_small_file_number(text, key, &kib))
        return 0;
    return kib * 1024;
}

int coh_node_of_pci(const char *root, const char *address)
{
    char path[64], text[32];
    uint64_t node;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
    /* "-1" (no node) is parsed as the largest number. */
    if (!coh_small_file_read(root, path, "/numa_node", text, sizeof(text)) ||
        !coh_small_file_number(text, "", &node) || node > INT_MAX)
        return COH_NODE_ANY;
    return (int)node;
}

static int bind_pages(hwloc_topology_t topology, void *base, uint64_t bytes,
                      hwloc_const_nodeset_t nodes, hwloc_membind_policy_t policy)
{
    return hwloc_set_area_membind(topology, base, bytes, nodes, policy, HWLOC_MEMBIND_BYNODESET) ==
           0;
}

/* Prefers the node: without HWLOC_MEMBIND_STRICT a bound page may go to another node. */
static int prefer(hwloc_topology_t topology, void *base, uint64_t bytes, int node)
{
    hwloc_bitmap_t only = hwloc_bitmap_alloc();
    const int is_bound = only != NULL && hwloc_bitmap_only(only, (unsigned)node) == 0 &&
                         bind_pages(topology, base, bytes, only, HWLOC_MEMBIND_BIND);
    hwloc_bitmap_free(only);
    return is_bound;
}

static int has_room(const char *root, hwloc_const_nodeset_t usable, int node, uint64_t bytes)
{
    return node >= 0 && hwloc_bitmap_isset(usable, (unsigned)node) &&
           coh_node_free_bytes(root, node) >= bytes;
}

/* Returns the nodes that this process may use; if its memory is bound to some or prefers some
 * (numactl --membind, --preferred), only those. NULL: out of memory. The caller frees the
 * bitmap. */
static hwloc_bitmap_t usable_nodes(hwloc_topology_t topology)
{
    hwloc_bitmap_t usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_nodeset(topology));
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy;
    const int flags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;
    if (usable != NULL && bound != NULL &&
        hwloc_get_membind(topology, bound, &policy, flags) == 0 &&
        hwloc_bitmap_intersects(usable, bound))
        hwloc_bitmap_and(usable, usable, bound);
    hwloc_bitmap_free(bound);
    return usable;
}

void coh_topology_place(const char *root, int near, void *base, uint64_t bytes,
                        coh_placement *out_placement)
{
    *out_placement = (coh_placement){ .node_count = 1 };
    hwloc_topology_t topology;
    if (!load(&topology))
        return;
    hwloc_bitmap_t usable = usable_nodes(topology);
    const int node_count = usable != NULL ? hwloc_bitmap_weight(usable) : 1;
    if (node_count > 1) {
        out_placement->is_near =
            has_room(root, usable, near, bytes) && prefer(topology, base, bytes, near);
        if (!out_placement->is_near &&
            bind_pages(topology, base, bytes, usable, HWLOC_MEMBIND_INTERLEAVE))
            out_placement->node_count = node_count;
    }
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
}
