/* cuda_facts.h - which GPUs the driver sees, before any of them is used: plain data, no context.
 *
 * Set-up only. Any thread. */
#ifndef COH_MEMORY_CUDA_FACTS_H
#define COH_MEMORY_CUDA_FACTS_H

#include <stdint.h>

#include "base/check.h"

enum { COH_CUDA_GPUS_MOST = 16 };

typedef struct coh_cuda_gpu {
    char name[64];
    uint64_t memory_bytes; /* all of it, what others use as well */
    int32_t major, minor;  /* compute capability */
    int32_t multiprocessors;
    int32_t near_node; /* of coh_cuda_facts_read, where there are several; else COH_NODE_ANY */
} coh_cuda_gpu;

typedef struct coh_cuda_facts {
    int32_t driver_version; /* 13000: CUDA 13.0 */
    int32_t gpu_count;      /* as the driver says; facts of the first COH_CUDA_GPUS_MOST are here */
    coh_cuda_gpu gpus[COH_CUDA_GPUS_MOST];
} coh_cuda_facts;

struct coh_cuda_driver;

/* Asks this driver (memory/cuda_driver.h), which must be open.
 * Fails: COH_ERR_DEVICE naming the call. */
coh_status coh_cuda_facts_of(const struct coh_cuda_driver *driver, coh_cuda_facts *out_facts);

/* The memory node (memory/node.h) by a GPU, named by its handle: what the driver says, and where
 * that does not know, what the system says of the GPU's PCI address, in files below `root`.
 * COH_NODE_ANY: neither knows. A context is not needed. */
int coh_cuda_near_node(const struct coh_cuda_driver *driver, int gpu, const char *root);

/* Opens the machine's driver, asks it and closes it.
 * Fails: COH_ERR_DEVICE where there is none, or it is too old. */
coh_status coh_cuda_facts_read(coh_cuda_facts *out_facts);

#endif
