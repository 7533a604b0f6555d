/* cuda_queue.h - a queue on CUDA: one stream, and what kernels need to enqueue work on it.
 *
 * A coh_queue of coh_device_cuda (memory/device_cuda.h) begins with this struct, so a kind can read
 * the pointer in call->queue as a coh_cuda_queue. Its first member identifies the kernels that
 * compute on it (base/queue_head.h).
 *
 * Threads: only the enqueuing thread. */
#ifndef COH_MEMORY_CUDA_QUEUE_H
#define COH_MEMORY_CUDA_QUEUE_H

#include <stdint.h>

#include "base/queue_head.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"

struct coh_cuda_kernels;      /* modules and functions: kernels/cuda/launch.h */
struct coh_cuda_libraries;    /* handles of cuBLASLt and cuDNN */
struct coh_cuda_index_checks; /* kernels/cuda/index_check.h */

typedef struct coh_cuda_queue {
    coh_queue_head head;
    const coh_cuda_driver *driver;
    coh_device *device;
    CUstream stream;
    coh_lane lane;
    int multiprocessor_count;

    /* A slot of the device's arena, set before coh_device_kernels.open; NULL, 0: none. */
    void *workspace;
    size_t workspace_bytes;
    /* 1: work is prepared but not enqueued (coh_device_ops.rehearse). Exception: work that can be
     * prepared only by running, such as a library kernel that is loaded at its first run. */
    int is_rehearsing;
    /* 1: enqueued work is recorded (coh_device_ops.record_begin). A failure then ends the
     * recording, not the device. */
    int is_recording;

    /* from coh_device_config; NULL: none */
    void (*log)(void *context, const char *sentence);
    void *log_context;

    /* set by coh_device_kernels.open and reset by close; NULL: none */
    struct coh_cuda_kernels *kernels;
    const struct coh_cuda_libraries *libraries;
    struct coh_cuda_index_checks *index_checks;

    /* Instruction of the last `launch`. Without its step, because no value of a step may be an
     * argument. */
    uint32_t instruction_index;

    /* While `launch` runs its work: device address of the instruction's predicate; NULL: none.
     * Kernels of such an instruction read the predicate themselves, because the host is already far
     * ahead. The code that launches them takes it (coh_cuda_take_predicate); an instruction whose
     * predicate was not taken is an error. */
    const int32_t *predicate;
    int predicate_is_taken;

    /* implements coh_cuda_queue_admit; NULL: there is always room */
    int (*admit)(struct coh_cuda_queue *queue, uint32_t count);
} coh_cuda_queue;

/* Waits for room for `count` commands, so that the driver's own queue never fills up and blocks
 * (memory/device_cuda.h). Call it before enqueuing on the stream; `count` is small, and an estimate
 * if a library call makes several commands. Returns 0 if the device is closed: enqueue nothing
 * then. */
static inline int coh_cuda_queue_admit(coh_cuda_queue *queue, uint32_t count)
{
    return queue->admit == NULL || queue->admit(queue, count);
}

/* Records `status`, with this thread's error text, as the failure of the queue's device, or of the
 * recording in progress. The first failure wins and stops everything on the device. COH_OK is
 * ignored. */
void coh_cuda_queue_fail(coh_cuda_queue *queue, coh_status status);

#endif
