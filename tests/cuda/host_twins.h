/* host_twins.h - the host's kernels on the streams of the stub driver: each function of a kernel
 * table is put off as one command, which calls the host's function of the same name alone.
 *
 * So what a step computes on such a device has the bits of the host device, if copies, waits and
 * what goes between host and device are right: anything that runs before its turn, or reads what is
 * not there yet, shows. */
#ifndef COH_TESTS_CUDA_HOST_TWINS_H
#define COH_TESTS_CUDA_HOST_TWINS_H

#include "memory/device.h"

extern const coh_device_kernels host_twins;

#endif
