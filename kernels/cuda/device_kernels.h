/* device_kernels.h - the parts of a GPU's compute queue: the table that kinds call, the compiled
 * kernels, the note of bad indices, and NVIDIA's libraries on this machine.
 *
 * A missing library is not an error: our kernels do its work. A library that is installed and
 * cannot be opened or started is an error. Otherwise it would silently not be used, and the bits
 * would change.
 *
 * Libraries work in a slot of the device's arena (memory/library_workspace.h). Each queue gets its
 * own slot, because two streams must not share one. */
#ifndef COH_KERNELS_CUDA_DEVICE_KERNELS_H
#define COH_KERNELS_CUDA_DEVICE_KERNELS_H

#include "memory/device.h"

/* Part of the numeric plan of a GPU: raise it if a kernel adds in another order. */
#define COH_CUDA_SUMS_REVISION 2

/* For coh_device_config. open fails: COH_ERR_DEVICE, COH_ERR_IO, COH_ERR_CORRUPT, COH_ERR_MEMORY;
 * COH_ERR_INTERNAL if the slot is too small. A failed open leaves nothing to close. */
extern const coh_device_kernels coh_cuda_device_kernels;

#endif
