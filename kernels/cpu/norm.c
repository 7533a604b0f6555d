/* Layer norm and RMS norm on the host: runs blocks of rows on the pool and folds their gradient
 * sums in order. Next: kernels/kernels.h (coh_norm), isa/norm.c for the row loops. */
#include "kernels/table.h"

#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* Memory-bound: forward reads x twice, from the cache; backward reads x and dy once, from memory.
 * The sums over rows for weight and bias are kept per block of BLOCK_ROWS rows (`partials`: block
 * by block, C of weight then C of bias; RMS norm does not use the latter). So blocks may run in any
 * order; they are folded in block order. */
#define BLOCK_ROWS   64
#define FOLD_COLUMNS 128

static int64_t block_count(int64_t N)
{
    return (N + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

int64_t coh_kernel_norm_partials(int64_t N, int64_t C)
{
    return block_count(N) * 2 * C;
}

static int64_t block_end(const coh_norm *norm, int64_t index)
{
    const int64_t end = (index + 1) * BLOCK_ROWS;
    return end < norm->N ? end : norm->N;
}

static void norm_block(void *argument, int64_t index)
{
    const coh_norm *norm = argument;
    const coh_rows *row = coh_rows_for(norm->dtype);
    const int64_t C = norm->C;
    for (int64_t n = index * BLOCK_ROWS; n < block_end(norm, index); n++) {
        void *y = coh_element(norm->dtype, norm->y, n * C);
        const void *x = coh_element_const(norm->dtype, norm->x, n * C);
        if (norm->mean == NULL)
            row->rms(y, x, norm->weight, C, norm->epsilon, norm->offset, &norm->rstd[n]);
        else
            row->norm(y, x, norm->weight, norm->bias, C, norm->epsilon, &norm->mean[n],
                      &norm->rstd[n]);
    }
}

void coh_cpu_norm(void *queue, const coh_norm *norm)
{
    coh_parallel(queue, block_count(norm->N), norm_block, (void *)norm);
}

static void backward_block(void *argument, int64_t index)
{
    const coh_norm *norm = argument;
    const coh_rows *row = coh_rows_for(norm->dtype);
    const int64_t C = norm->C;
    float *partials = norm->partials + index * 2 * C;
    memset(partials, 0, (size_t)(2 * C) * sizeof(float));
    for (int64_t n = index * BLOCK_ROWS; n < block_end(norm, index); n++) {
        coh_norm_row one = {
            .dx = norm->dx == NULL ? NULL : coh_element(norm->dtype, norm->dx, n * C),
            .dy = coh_element_const(norm->dtype, norm->dy, n * C),
            .x = coh_element_const(norm->dtype, norm->x, n * C),
            .weight = norm->weight,
            .mean = norm->mean == NULL ? 0.0f : norm->mean[n],
            .rstd = norm->rstd[n],
            .offset = norm->offset,
            .dweight = partials,
            .dbias = partials + C,
            .C = C,
            .adds = norm->dx_adds,
        };
        if (norm->mean == NULL)
            row->rms_backward(&one);
        else
            row->norm_backward(&one);
    }
}

/* Folds columns [begin, begin + width) of a sum whose partials lie at `offset` in each block's. */
static void fold_one(const coh_norm *norm, void *to, int adds, int64_t offset, int64_t begin,
                     int64_t width)
{
    float total[FOLD_COLUMNS] = { 0 };
    if (to == NULL)
        return;
    for (int64_t block = 0; block < block_count(norm->N); block++)
        coh_rows_get()->add(total, norm->partials + block * 2 * norm->C + offset + begin, width);
    const coh_dtype dtype = coh_grad_dtype(norm->dtype, norm->f32_grads);
    coh_rows_for(dtype)->put(coh_element(dtype, to, begin), total, width, adds);
}

static void fold_columns(void *argument, int64_t index)
{
    const coh_norm *norm = argument;
    const int64_t begin = index * FOLD_COLUMNS, rest = norm->C - begin;
    const int64_t width = rest < FOLD_COLUMNS ? rest : FOLD_COLUMNS;
    fold_one(norm, norm->dweight, norm->dweight_adds, 0, begin, width);
    fold_one(norm, norm->dbias, norm->dbias_adds, norm->C, begin, width);
}

void coh_cpu_norm_backward(void *queue, const coh_norm *norm)
{
    coh_parallel(queue, block_count(norm->N), backward_block, (void *)norm);
    if (norm->dweight != NULL || norm->dbias != NULL)
        coh_parallel(queue, (norm->C + FOLD_COLUMNS - 1) / FOLD_COLUMNS, fold_columns,
                     (void *)norm);
}
