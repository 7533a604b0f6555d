/* queue_head.h - how every queue that kernels are given begins, whatever device it is of.
 *
 * A kernel is called with a `void *queue`: a pool on the host, a stream with its libraries on a
 * GPU. Who computes is asked of the queue itself, through its first member:
 *
 *     NULL                     the host, in the caller
 *     { kernels = NULL, ... }  the host: a pool
 *     { kernels = T, ... }     the device whose functions T holds (kernels/table.h)
 *
 * This file knows of the table only that there is one, so that pools may stand below kernels. */
#ifndef COH_BASE_QUEUE_HEAD_H
#define COH_BASE_QUEUE_HEAD_H

struct coh_kernel_table;

typedef struct coh_queue_head {
    const struct coh_kernel_table *kernels;
} coh_queue_head;

#endif
