/* library_workspace.h - scratch memory that GPU libraries need as long as a plan runs.
 *
 * It is a slot of the device's arena like everything else, so that the budget holds: the planner
 * pins one when it plans for a GPU (layout->libraries), and the compute lane's queue is made with
 * it. */
#ifndef COH_MEMORY_LIBRARY_WORKSPACE_H
#define COH_MEMORY_LIBRARY_WORKSPACE_H

#include <stddef.h>

/* The size that cuBLAS itself takes on sm_90 (4 MiB on older ones). The heuristic's choice of
 * algorithm depends on it, so all devices and budgets use the same size. */
#define COH_CUDA_PRODUCT_WORKSPACE_BYTES ((size_t)32 << 20)
/* Enough for attention's forward: cuDNN's plans were seen to need 256 bytes. */
#define COH_CUDA_ATTENTION_WORKSPACE_BYTES ((size_t)4096)
#define COH_CUDA_LIBRARY_BYTES                                                                     \
    (COH_CUDA_PRODUCT_WORKSPACE_BYTES + COH_CUDA_ATTENTION_WORKSPACE_BYTES)

#endif
