/* sums.h - copies and folds for the launches of several files. They enqueue and return. */
#ifndef COH_KERNELS_CUDA_SUMS_H
#define COH_KERNELS_CUDA_SUMS_H

#include <stdint.h>

#include "cohobate/model.h"

/* sums [columns] (= or +=) the column sums of partials [rows, columns], whose rows are `stride`
 * elements apart, rounded once to `dtype`. */
void coh_cuda_fold(void *queue, coh_dtype dtype, void *sums, const float *partials, int64_t rows,
                   int64_t columns, int64_t stride, int adds);

/* to = from; from NULL: zeros. */
void coh_cuda_copy(void *queue, void *to, const void *from, int64_t bytes);

#endif
