/* gpu_check.h - what the tests of a real GPU share: one queue of its compute lane, whose kernels
 * are done when they return, and host memory that they see. The program gpu-check runs them all
 * and is skipped where there is no GPU. */
#ifndef COH_TESTS_CUDA_GPU_CHECK_H
#define COH_TESTS_CUDA_GPU_CHECK_H

#include <stddef.h>

#include "memory/cuda_queue.h"

extern coh_cuda_queue *gpu_check_queue;

/* Waits for what is enqueued; a failure fails the running test. */
void gpu_check_wait(void);

/* Whole pages of host memory, at the same address for kernels, until they are taken back. */
void gpu_check_share(void *memory, size_t bytes);
void gpu_check_unshare(void *memory);

/* Groups of tests: how many failed. */
int gpu_check_attention(void);

#endif
