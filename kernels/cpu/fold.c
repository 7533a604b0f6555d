/* The fold of contributions on the host: grains on the pool, each through a small buffer of f32
 * sums. Next: kernels/fold.h for the order, isa/elementwise.c for the loop. */
#include "kernels/fold.h"

#include "base/bytes.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

/* 2 KiB of sums stay in the first-level cache until they are rounded. */
enum { PART = 512 };

static void fold_grain(void *argument, int64_t index)
{
    const coh_fold_call *f = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    const int64_t end = smaller(begin + COH_GRAIN_ELEMENTS, f->count);
    const coh_rows *rows = coh_rows_for(f->dtype), *to_rows = coh_rows_for(f->to_dtype);
    for (int64_t at = begin; at < end; at += PART) {
        const int64_t count = smaller(PART, end - at);
        float sums[PART];
        rows->fold(sums, f->contributions, at, &f->shape, count);
        to_rows->put(coh_element(f->to_dtype, f->to, at), sums, count, 0);
    }
    if (f->square_sums != NULL)
        f->square_sums[index] = coh_kernel_square_sum(
            f->to_dtype, coh_element_const(f->to_dtype, f->to, begin), end - begin);
}

void coh_cpu_fold(void *pool, const coh_fold_call *fold)
{
    const int64_t grain_count = (fold->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
    coh_parallel(pool, grain_count, fold_grain, (void *)fold);
}
