/* Reads a NUMA node's free memory and a PCI device's node from /sys. Read node.h first. */
#include "memory/node.h"

#include <limits.h>
#include <stdio.h>

#include "base/small_file.h"

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
