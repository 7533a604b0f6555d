/* table.h - the kernel interface on CUDA: coh_cuda_pass and so on (kernels/table.h) take a
 * coh_cuda_queue, enqueue and return. A failure is kept in the queue.
 *
 * Scratch of a kernel may differ from the host's: kernels/cuda/scratch.h. */
#ifndef COH_KERNELS_CUDA_TABLE_H
#define COH_KERNELS_CUDA_TABLE_H

#include "kernels/table.h"

#define COH_KERNEL_CUDA(name, parameters, arguments) void coh_cuda_##name parameters;
COH_KERNEL_LIST(COH_KERNEL_CUDA)
#undef COH_KERNEL_CUDA
coh_status coh_cuda_check_indices(void *queue, const coh_index_check *check);

extern const coh_kernel_table coh_kernel_table_cuda;

/* ---- for the launches of several files ---- */

/* Partial sums [rows, columns], whose rows are `stride` elements apart; `second`'s lie behind the
 * columns of `first`. */
typedef struct coh_cuda_partials {
    const float *partials;
    int64_t rows, columns, stride;
    void *first, *second; /* NULL: no sums */
    int first_adds, second_adds;
} coh_cuda_partials;

/* first, second [columns] (= or +=) the column sums of partials, rounded once to `dtype`. */
void coh_cuda_fold_rows(void *queue, coh_dtype dtype, const coh_cuda_partials *of);

/* to = from; from NULL: zeros. */
void coh_cuda_copy(void *queue, void *to, const void *from, int64_t bytes);

#endif
