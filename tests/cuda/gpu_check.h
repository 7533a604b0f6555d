/* gpu_check.h - gpu-check: one program that holds every test that needs a GPU.
 *
 *     gpu-check [GROUP...]     runs all groups, or those named; prints a line for each: right,
 *                              WRONG, or skipped, if a library that it checks is missing
 *     exit 0 all right, 1 something is wrong, 2 no such group, 77 there is no usable GPU
 *
 * Groups compute as a run does, with coh_cuda_device_kernels on one queue, and compare with
 * references in double or with the host's kernels: random operands, results poisoned before (NaN),
 * each call run twice for the same bits. Other groups check that the device and an engine on it
 * behave as with the stub driver. Most calls are rehearsed first (coh_device_ops.rehearse), which
 * reveals anything that a rehearsal leaves behind. A group's memory is free when the group ends. */
#ifndef COH_TESTS_CUDA_GPU_CHECK_H
#define COH_TESTS_CUDA_GPU_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "memory/device.h"

enum { GPU_SHARES_MOST = 64 };

typedef struct gpu_check {
    coh_device *device;
    coh_queue *queue; /* of the compute lane; passed to kernels */
    coh_counter counter;
    int counter_is_made, is_inside; /* is_inside: the device's context is current */
    uint64_t issued;
    char *arena; /* in device memory, after the libraries' workspace */
    size_t arena_bytes, used_bytes;
    char *shared; /* host memory, which kernels see at the same address */
    size_t shared_bytes, shared_used_bytes;
    /* host memory of tests that kernels see, too: gpu_check_share */
    void *shares[GPU_SHARES_MOST];
    size_t share_bytes[GPU_SHARES_MOST];
    int share_count;
    char failure[1024]; /* "": none yet */
    /* 1: a library multiplies, which may round a product to bf16 before it adds anything to it */
    int rounds_products;
    int64_t rounded_elements;
    int rounded_forms, wrong_forms; /* of products: so rounded; wrong */
} gpu_check;

/* The instance of this program. */
extern gpu_check gpu;

/* Makes device, memory and queue, for a thread that then enqueues; the device's context is current
 * on that thread until gpu_close. Errors: those of device, memory and queue; device is NULL if
 * there is no usable GPU. gpu_close frees what was made. */
coh_status gpu_open(gpu_check *check);
void gpu_close(gpu_check *check);

/* Allocates device memory, aligned to 256 bytes; NULL, with a failure, if none is left. */
void *gpu_take(gpu_check *check, size_t bytes);
/* Copies bytes to and from the device, while nothing is in progress there. */
void gpu_put(gpu_check *check, void *to, const void *from, size_t bytes);
void gpu_get(gpu_check *check, void *to, const void *from, size_t bytes);

/* Calls `enqueue`, which enqueues work on check->queue, first in a rehearsal, then for real, as a
 * line with this predicate (NULL: none), and waits until the work is done. */
void gpu_run(gpu_check *check, void (*enqueue)(void *queue, void *context), void *context,
             const int32_t *predicate);

/* Waits for everything on the program's queue; a GPU failure fails the running test. */
void gpu_check_wait(void);
/* Maps whole pages of host memory at the same address for kernels, until they are unshared. */
void gpu_check_share(void *memory, size_t bytes);
void gpu_check_unshare(void *memory);

/* Keeps the first message. Returns 1 from the first failure on. */
void gpu_fail(gpu_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
int gpu_failed(const gpu_check *check);

/* by the project's kernels */
int gpu_check_attention(void);         /* by the project's kernels */
int gpu_check_attention_library(void); /* by cuDNN, for shapes it accepts */
int gpu_check_matmul(void);
int gpu_check_matmul_library(void); /* by cuBLASLt, except what it refuses */
int gpu_check_indices(void);
int gpu_check_device(void);    /* lanes, waits, graphs, pinning */
int gpu_check_operators(void); /* coh_op_check of the library's kinds */
int gpu_check_nccl(void);      /* a world and a communicator of one rank */
/* Returns why there is no NCCL; NULL: there is. */
const char *gpu_check_nccl_missing(void);
int gpu_check_engine(void); /* training with the cohobate library, as a program uses it */

#endif
