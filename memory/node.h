/* node.h - NUMA memory nodes, by the system's numbers.
 *
 * On a machine with several processors each has its own memory, and a device's copies from another
 * processor's memory cross between them. Files in /sys tell which node is nearest a device and how
 * much of it is free. `root` is put before their paths: "" for the machine itself, a test's own
 * folder in tests.
 *
 * Allocates nothing, opens no stream; any thread. */
#ifndef COH_MEMORY_NODE_H
#define COH_MEMORY_NODE_H

#include <stdint.h>

/* No particular node, or an unknown one. */
#define COH_NODE_ANY (-1)

/* Returns the free pages of that node now, in bytes, without the page cache: the kernel takes free
 * pages of other nodes before it shrinks the cache. 0: unknown. */
uint64_t coh_node_free_bytes(const char *root, int node);

/* Returns the node nearest the device at a PCI address such as "0000:1b:00.0"; COH_NODE_ANY if the
 * system does not know. */
int coh_node_of_pci(const char *root, const char *address);

#endif
