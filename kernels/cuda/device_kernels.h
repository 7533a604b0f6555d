/* device_kernels.h - what the compute queue of a GPU is given when it is made: the table that kinds
 * call, the compiled kernels, the note of bad indices, and the libraries that are on this machine.
 *
 * A library that is missing is no failure: kernels of ours do its work. One that is there and
 * cannot be opened or started is, for it would be out of use without a word, and other bits would
 * come.
 *
 * Libraries work in a slot of the device's arena (memory/library_workspace.h), which the queue is
 * made with and which is its own: two streams must not share one. */
#ifndef COH_KERNELS_CUDA_DEVICE_KERNELS_H
#define COH_KERNELS_CUDA_DEVICE_KERNELS_H

#include "memory/device.h"

/* For coh_device_config. open fails: COH_ERR_DEVICE, COH_ERR_IO, COH_ERR_CORRUPT, COH_ERR_MEMORY;
 * COH_ERR_INTERNAL where the slot is too small; nothing is left then. */
extern const coh_device_kernels coh_cuda_device_kernels;

#endif
