/* nvml.h - clock, power, free memory and links of a GPU, read from NVIDIA's management library.
 *
 * libnvidia-ml.so.1 comes with the driver. It is opened at run time, where the loader finds it, as
 * the driver itself is. Without it a GPU has no meter.
 *
 * Threads: one at a time per meter. A reading takes some 10 us, on some GPUs a millisecond; so
 * readings less than COH_NVML_PAUSE_NS apart return the same numbers. Links are read each time. */
#ifndef COH_MEMORY_NVML_H
#define COH_MEMORY_NVML_H

#include <stdint.h>

#include "base/check.h"
#include "memory/device.h"

#define COH_NVML_PAUSE_NS ((uint64_t)250 * 1000 * 1000)

typedef struct coh_nvml coh_nvml;

/* Opens the meter of the GPU at a PCI address ("0000:3b:00.0", as cuDeviceGetPCIBusId writes it).
 * Fails: COH_ERR_DEVICE: no library, or it does not know the GPU; COH_ERR_IO, COH_ERR_CORRUPT: the
 * library is damaged; COH_ERR_MEMORY. */
coh_status coh_nvml_open(const char *pci_address, coh_nvml **out_nvml);
void coh_nvml_close(coh_nvml *nvml); /* accepts NULL */

/* The other end of an active NVLink: a GPU or a switch, by its PCI address, in lower case. */
enum { COH_NVML_LINKS_MOST = 32, COH_NVML_ADDRESS_BYTES = 20 };
typedef struct coh_nvml_links {
    int32_t count;
    char at[COH_NVML_LINKS_MOST][COH_NVML_ADDRESS_BYTES];
} coh_nvml_links;

/* Lists the GPU's active links; none if the library does not know of links. */
void coh_nvml_list_links(coh_nvml *nvml, coh_nvml_links *out_links);

/* Reads the meter at `now_ns`, a time of coh_clock_ns. */
void coh_nvml_read(coh_nvml *nvml, uint64_t now_ns, coh_device_meter *out_meter);
/* Returns the GPU's memory that no program uses, this one's context included; it needs no context.
 * UINT64_MAX: not known. */
uint64_t coh_nvml_free_bytes(coh_nvml *nvml);

#endif
