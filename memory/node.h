/* node.h - a memory node, by the number that the system gives it.
 *
 * On a machine with several processors each has memory of its own, and what a device copies from
 * another's crosses between them. Which node is by a device and what is free there stand in files
 * of /sys. `root` is put before their paths: "" for the machine itself, a folder of the test's own
 * in tests.
 *
 * Allocates nothing, opens no stream; any thread. */
#ifndef COH_MEMORY_NODE_H
#define COH_MEMORY_NODE_H

#include <stdint.h>

/* No node is meant, or none is known. */
#define COH_NODE_ANY (-1)

/* Free pages of that node now. The page cache's are not: the kernel looks for free ones on other
 * nodes before it gives them up. 0: not known. */
uint64_t coh_node_free_bytes(const char *root, int node);

/* The node by the device at a PCI address such as "0000:1b:00.0"; COH_NODE_ANY where the system
 * does not say. */
int coh_node_of_pci(const char *root, const char *address);

#endif
