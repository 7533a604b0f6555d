/* gpu_check.h - gpu-check: one program that holds every test that needs a GPU.
 *
 *     gpu-check [GROUP...]     all groups, or those named; a line for each: right, WRONG, or
 *                              skipped, where a library that it is about is not on this machine
 *     exit 0 all right, 1 something is wrong, 2 no such group, 77 there is no GPU that can be used
 *
 * Groups compute as a run does, by coh_cuda_device_kernels, on one queue, and compare with
 * references in double or with the host's kernels: random operands, results poisoned before (NaN),
 * run twice for the same bits; and see that the device itself and an engine on it do what the stub
 * driver shows of them. Most calls are rehearsed first (coh_device_ops.rehearse), so that
 * what a rehearsal leaves behind shows. What a group took of memory is free when it ends. */
#ifndef COH_TESTS_CUDA_GPU_CHECK_H
#define COH_TESTS_CUDA_GPU_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "memory/device.h"

typedef struct gpu_check {
    coh_device *device;
    coh_queue *queue; /* of the compute lane: what kernels are given */
    coh_counter counter;
    int counter_is_made, is_inside; /* of the device's context */
    uint64_t issued;
    char *arena; /* the device's, behind the libraries' workspace */
    size_t arena_bytes, used_bytes;
    char *shared; /* the host's, which kernels see by the same address */
    size_t shared_bytes, shared_used_bytes;
    char failure[1024]; /* "": none yet */
} gpu_check;

/* The one of this program. */
extern gpu_check gpu;

/* Makes device, memory and queue, for a thread that then enqueues; the device's context is that
 * thread's until gpu_close. Fails: as those; device NULL
 * where there is no GPU to be used. gpu_close takes back what was made. */
coh_status gpu_open(gpu_check *check);
void gpu_close(gpu_check *check);

/* Memory of the device, on a boundary of 256 bytes; NULL, and a failure, when there is no more. */
void *gpu_take(gpu_check *check, size_t bytes);
/* Bytes to and from the device, while nothing is under way there. */
void gpu_put(gpu_check *check, void *to, const void *from, size_t bytes);
void gpu_get(gpu_check *check, void *to, const void *from, size_t bytes);

/* Calls `enqueue`, which gives work to check->queue, in a rehearsal and then in earnest, as a line
 * with this predicate (NULL: none), and waits until it is done. */
void gpu_run(gpu_check *check, void (*enqueue)(void *queue, void *context), void *context,
             const int32_t *predicate);

/* Waits for what was enqueued on the program's queue; the GPU's failure fails the running test. */
void gpu_check_wait(void);
/* Whole pages of the host's, at the same address for kernels, until they are taken back. */
void gpu_check_share(void *memory, size_t bytes);
void gpu_check_unshare(void *memory);

/* Keeps the first sentence. Returns 1 from the first failure on. */
void gpu_fail(gpu_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
int gpu_failed(const gpu_check *check);

/* Groups, each in a file of its own: how many tests fail. */
int gpu_check_attention(void);         /* by own kernels */
int gpu_check_attention_library(void); /* by cuDNN, where it takes the shape */
int gpu_check_matmul(void);
int gpu_check_matmul_library(void); /* by cuBLASLt, but for what it refuses */
int gpu_check_indices(void);
int gpu_check_device(void); /* lanes, waits, graphs, pinning */
int gpu_check_engine(void); /* training, by the cohobate library as a program runs it */

#endif
