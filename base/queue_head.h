/* queue_head.h - the first member of every queue that kernels get, on any device.
 *
 * A kernel is called with a `void *queue`: a pool on the host, a stream with its libraries on a
 * GPU. The first member of the queue tells which device computes:
 *
 *     NULL                     the host, in the caller
 *     { kernels = NULL, ... }  the host: a pool
 *     { kernels = T, ... }     the device whose functions T holds (kernels/table.h)
 *
 * The table is only declared here, so that pools can be in a layer below kernels. */
#ifndef COH_BASE_QUEUE_HEAD_H
#define COH_BASE_QUEUE_HEAD_H

struct coh_kernel_table;

typedef struct coh_queue_head {
    const struct coh_kernel_table *kernels;
} coh_queue_head;

#endif
