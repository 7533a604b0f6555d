/* cuda_facts.h - lists the GPUs that the driver sees, without creating a context: plain data.
 *
 * Set-up only. Any thread. */
#ifndef COH_MEMORY_CUDA_FACTS_H
#define COH_MEMORY_CUDA_FACTS_H

#include <stdint.h>

#include "base/check.h"
#include "memory/nvml.h"

enum { COH_CUDA_GPUS_MOST = 16 };

typedef struct coh_cuda_gpu {
    char name[64];
    uint64_t memory_bytes; /* total, including what other programs use */
    int32_t major, minor;  /* compute capability */
    int32_t multiprocessors;
    /* nearest memory node, from coh_cuda_facts_read, if there are several; else COH_NODE_ANY */
    int32_t near_node;
} coh_cuda_gpu;

typedef struct coh_cuda_facts {
    int32_t driver_version; /* 13000: CUDA 13.0 */
    int32_t gpu_count;      /* may exceed COH_CUDA_GPUS_MOST, of which the facts are here */
    coh_cuda_gpu gpus[COH_CUDA_GPUS_MOST];
} coh_cuda_facts;

struct coh_cuda_driver;

/* Reads the facts from this open driver (memory/cuda_driver.h).
 * Fails: COH_ERR_DEVICE naming the call. */
coh_status coh_cuda_facts_of(const struct coh_cuda_driver *driver, coh_cuda_facts *out_facts);

/* Returns the memory node (memory/topology.h) nearest a GPU, which is named by its handle. Asks the
 * driver first; if the driver does not know, uses what the system reports for the GPU's PCI
 * address, in files below `root`. COH_NODE_ANY: neither knows. Needs no context. */
int coh_cuda_near_node(const struct coh_cuda_driver *driver, int gpu, const char *root);

/* Where a GPU is, and what it is linked with. */
typedef struct coh_cuda_place {
    char address[COH_NVML_ADDRESS_BYTES]; /* as of coh_nvml_links; "": unknown */
    int32_t near_node;                    /* COH_NODE_ANY: unknown */
    coh_nvml_links links;                 /* none without NVML */
} coh_cuda_place;

/* Finds the place of GPU `index`. Needs no context. Fails: COH_ERR_DEVICE: there is none. */
coh_status coh_cuda_place_of(const struct coh_cuda_driver *driver, int index,
                             coh_cuda_place *out_place);
/* The same from the machine's driver, which is opened for it. Fails: also if there is none. */
coh_status coh_cuda_place_read(int index, coh_cuda_place *out_place);

/* Returns the memory of GPU `index` that no program uses. Opens NVML for it, and needs no context.
 * UINT64_MAX: not known. */
uint64_t coh_cuda_free_bytes_of(const struct coh_cuda_driver *driver, int index);

/* The same from the machine's driver, which is opened for it. */
uint64_t coh_cuda_free_bytes(int index);

/* Opens the machine's driver, reads the facts and closes it.
 * Fails: COH_ERR_DEVICE if there is no driver, or it is too old. */
coh_status coh_cuda_facts_read(coh_cuda_facts *out_facts);

#endif
