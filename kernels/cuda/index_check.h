/* index_check.h - reports indices that the device finds outside their range. A kernel writes a note
 * in pinned memory once: place, index, and the check's texts.
 *
 *    device       check kernel  --where, what, which instruction-->  note
 *    coh-retire   before it reports work as done: if there is a note, the device fails
 *
 * The host runs ahead of the device, so later instructions are enqueued before the failure is seen,
 * and kernels skip such indices. But everything that is reported to the host as done was checked:
 * no step with a bad index ends successfully.
 *
 * Threads: the one that enqueues; coh_cuda_index_checks_look belongs to one thread, any. */
#ifndef COH_KERNELS_CUDA_INDEX_CHECK_H
#define COH_KERNELS_CUDA_INDEX_CHECK_H

#include <stdint.h>

#include "kernels/cuda/arguments.h"
#include "kernels/kernels.h"
#include "memory/cuda_queue.h"

typedef struct coh_cuda_index_checks {
    coh_cuda_index_note *note;  /* pinned; is_there 0: no bad index */
    coh_cuda_index_note *there; /* its device address */
    int is_told;
} coh_cuda_index_checks;

/* Fails: COH_ERR_DEVICE, COH_ERR_MEMORY; close it then as well. */
coh_status coh_cuda_index_checks_open(coh_cuda_queue *queue, coh_cuda_index_checks *checks);
void coh_cuda_index_checks_close(coh_cuda_queue *queue, coh_cuda_index_checks *checks);

/* Returns COH_ERR_CORRUPT with the check's text if there is a note that was not reported yet. */
coh_status coh_cuda_index_checks_look(coh_cuda_index_checks *checks);

/* Returns the checks of a queue whose kernels are open. */
coh_cuda_index_checks *coh_cuda_queue_index_checks(void *queue);

#endif
