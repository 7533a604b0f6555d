/* host_twins.h - the host's kernels on the streams of the stub driver: each function of a kernel
 * table enqueues one command, which calls the host's function of the same name.
 *
 * A step on such a device has the bits of the host device if copies, waits and exchanges between
 * host and device are right. Anything that runs too early, or reads data that have not arrived,
 * changes the bits. */
#ifndef COH_TESTS_CUDA_HOST_TWINS_H
#define COH_TESTS_CUDA_HOST_TWINS_H

#include "memory/device.h"

extern const coh_device_kernels host_twins;

#endif
