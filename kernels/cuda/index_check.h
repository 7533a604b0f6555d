/* index_check.h - indices that the device finds outside their range, and how the host learns of
 * it: a note in pinned memory, which a kernel writes once: place, index, and the check's words.
 *
 *     device       check kernel  --where, what, which line-->  note
 *     coh-retire   before it tells of what is done: a note is there -> the device's failure
 *
 * The host runs ahead of the device, so lines behind the check are enqueued before its failure is
 * seen, and kernels leave such indices out. But whatever the host is told of as done was looked
 * through: no step ends well in which an index was wrong.
 *
 * Threads: the one that enqueues; coh_cuda_index_checks_look is one thread's, any. */
#ifndef COH_KERNELS_CUDA_INDEX_CHECK_H
#define COH_KERNELS_CUDA_INDEX_CHECK_H

#include <stdint.h>

#include "kernels/cuda/arguments.h"
#include "kernels/kernels.h"
#include "memory/cuda_queue.h"

typedef struct coh_cuda_index_checks {
    coh_cuda_index_note *note;  /* pinned; is_there 0: nothing was found */
    coh_cuda_index_note *there; /* the same, for the device */
    int is_told;
} coh_cuda_index_checks;

/* Fails: COH_ERR_DEVICE, COH_ERR_MEMORY; close it then as well. */
coh_status coh_cuda_index_checks_open(coh_cuda_queue *queue, coh_cuda_index_checks *checks);
void coh_cuda_index_checks_close(coh_cuda_queue *queue, coh_cuda_index_checks *checks);

/* COH_ERR_CORRUPT, in the host's words, where a note is there that nobody was told of, once. */
coh_status coh_cuda_index_checks_look(coh_cuda_index_checks *checks);

/* Those of a queue whose kernels are open. */
coh_cuda_index_checks *coh_cuda_queue_index_checks(void *queue);

#endif
