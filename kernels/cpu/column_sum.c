/* Column sums of a matrix on the host, used for the gradients of biases. The order of additions
 * depends on the shape alone. Next: kernels/kernels.h (coh_kernel_column_sum). */
#include "kernels/table.h"

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* Memory-bound. A piece is a strip of columns, so that each sum has one order: within blocks of
 * rows first, then over the blocks' sums. So the error grows with rows / 64 + 64, not with rows. */
#define SUM_COLUMNS 128
#define SUM_ROWS    64

static void sum_columns(void *argument, int64_t index)
{
    const coh_column_sum *job = argument;
    const coh_rows *row = coh_rows_for(job->dtype);
    const int64_t j = index * SUM_COLUMNS, width = smaller(SUM_COLUMNS, job->columns - j);
    float total[SUM_COLUMNS] = { 0 };
    for (int64_t begin = 0; begin < job->rows; begin += SUM_ROWS) {
        const int64_t end = smaller(begin + SUM_ROWS, job->rows);
        float block[SUM_COLUMNS] = { 0 };
        for (int64_t i = begin; i < end; i++)
            row->gather(block, coh_element_const(job->dtype, job->x, i * job->columns + j), width);
        coh_rows_get()->add(total, block, width);
    }
    coh_rows_for(job->sums_dtype)
        ->put(coh_element(job->sums_dtype, job->sums, j), total, width, job->adds);
}

void coh_cpu_column_sum(void *queue, const coh_column_sum *sum)
{
    coh_column_sum job = *sum;
    coh_parallel(queue, (sum->columns + SUM_COLUMNS - 1) / SUM_COLUMNS, sum_columns, &job);
}
