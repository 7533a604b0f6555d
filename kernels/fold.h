/* fold.h - adds the contributions of several ranks or replicas to one gradient.
 *
 *     to[i] = the sum of contributions[0][i], contributions[1][i], ... in the order of a fold shape
 *
 * The order is that of cohobate/fold_shape.h and nothing else decides it. Sums are f32 whatever the
 * stored types. They start with the first contribution (not with 0, which would lose the sign of
 * -0), and are rounded once, when they are stored. So the bits are the same on every instruction
 * set, for any number of threads and for any range of elements that a call folds.
 *
 * The exact REDUCE folds with it what comm/exchange.h has brought together. Memory-bound: each
 * contribution is read once and the result written once. The bits are the same on the host and on
 * CUDA, except those of a NaN. Queues: kernels/table.h. */
#ifndef COH_KERNELS_FOLD_H
#define COH_KERNELS_FOLD_H

#include <stdint.h>

#include "cohobate/fold_shape.h"
#include "cohobate/model.h"

typedef struct coh_fold_call {
    coh_fold_shape shape; /* checked (base/fold_shape.h) */
    /* By replica, each [count] of `dtype`; on CUDA at most COH_FOLD_CUDA_MOST. The list is read
     * before the call returns. */
    const void *const *contributions;
    void *to;                  /* [count]; may be a contribution if both have one dtype */
    coh_dtype dtype, to_dtype; /* COH_DTYPE_F32 or COH_DTYPE_BF16 */
    int64_t count;
    /* One for each grain of `to`: the sum of the squares of the stored values in double, as
     * coh_kernel_square_sum gives it; NULL: not wanted. On the host only. */
    double *square_sums;
} coh_fold_call;

/* Contributions whose addresses fit into a kernel's arguments. */
enum { COH_FOLD_CUDA_MOST = 192 };

void coh_kernel_fold(void *queue, const coh_fold_call *fold);

#endif
