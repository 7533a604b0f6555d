/* library_workspace.h - scratch that libraries of a GPU want for as long as a plan runs.
 *
 * It is a slot of the device's arena like all else, so that a budget holds: the planner pins one
 * where it plans for a GPU (layout->libraries), and the compute lane's queue is made with it. */
#ifndef COH_MEMORY_LIBRARY_WORKSPACE_H
#define COH_MEMORY_LIBRARY_WORKSPACE_H

#include <stddef.h>

/* What cuBLAS itself takes on sm_90 (4 MiB before): the heuristic's choice depends on it, so it is
 * one for all devices and budgets. */
#define COH_CUDA_PRODUCT_WORKSPACE_BYTES ((size_t)32 << 20)
/* Plans of attention's forward have been seen to want 256 bytes. */
#define COH_CUDA_ATTENTION_WORKSPACE_BYTES ((size_t)4096)
#define COH_CUDA_LIBRARY_BYTES                                                                     \
    (COH_CUDA_PRODUCT_WORKSPACE_BYTES + COH_CUDA_ATTENTION_WORKSPACE_BYTES)

#endif
