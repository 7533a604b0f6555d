/* cuda_queue.h - what a queue is on CUDA: one stream, and what kernels need to enqueue on it.
 *
 * A coh_queue of coh_device_cuda (memory/device_cuda.h) begins with this struct, so the pointer
 * that a kind finds in call->queue can be read as a coh_cuda_queue. Its first member says which
 * kernels compute there (base/queue_head.h).
 *
 * Threads: the one that enqueues. */
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
    /* 1: nothing is to be enqueued, only made ready (coh_device_ops.rehearse), but for what makes
     * something ready by running: a kernel of a library, which is loaded when it runs first. */
    int is_rehearsing;
    /* 1: what is enqueued is recorded (coh_device_ops.record_begin). What fails ends the recording,
     * not the device. */
    int is_recording;

    /* coh_device_config's; NULL: nobody listens. */
    void (*log)(void *context, const char *sentence);
    void *log_context;

    /* coh_device_kernels.open sets them, close takes them away; NULL: none. */
    struct coh_cuda_kernels *kernels;
    const struct coh_cuda_libraries *libraries;
    struct coh_cuda_index_checks *index_checks;

    /* The line that `launch` was told last. Not of which step: that may not be an argument. */
    uint32_t line_index;

    /* While `launch` runs its work: the address on the device of the line's predicate, NULL: none.
     * The kernels of a line that has one read it themselves, for the host is long past it: whoever
     * launches them takes it (coh_cuda_take_predicate), and a line whose predicate nobody took is
     * an error. */
    const int32_t *predicate;
    int predicate_is_taken;

    /* coh_cuda_queue_admit; NULL: there is always room. */
    int (*admit)(struct coh_cuda_queue *queue, uint32_t count);
} coh_cuda_queue;

/* Before `count` commands (a few; what a library makes of one call is estimated) are enqueued on
 * the stream itself: waits for room, so that the driver need not (memory/device_cuda.h).
 * 0: the device is closed, nothing is to be enqueued. */
static inline int coh_cuda_queue_admit(coh_cuda_queue *queue, uint32_t count)
{
    return queue->admit == NULL || queue->admit(queue, count);
}

/* Keeps `status` with this thread's error text as the failure of the queue's device, or of what it
 * records; the first one wins, and everything on the device stops. COH_OK is no failure. */
void coh_cuda_queue_fail(coh_cuda_queue *queue, coh_status status);

#endif
