/* Times one product of one shape, to build kernel tables. It runs whole products on the pool, as a
 * step does, and takes the median. Next: kernels/product.h; engine/kernel_table.c calls it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/cpu/tile.h"
#include "kernels/kernels.h"

#define RUNS 5

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The operand must be written. Otherwise all of it would be read from the system's one page of
 * zeros. Every byte is 0x3c, which makes 0.0115 in either type. */
static coh_status make_operand(int64_t rows, int64_t columns, size_t element_bytes, void **out)
{
    COH_TRY(coh_alloc((size_t)(rows * columns), element_bytes, out));
    memset(*out, 0x3c, (size_t)(rows * columns) * element_bytes);
    return COH_OK;
}

static void time_runs(void *queue, const coh_product_choice *choice, coh_matmul *m,
                      double *out_seconds)
{
    uint64_t ns[RUNS + 1];
    for (int i = 0; i <= RUNS; i++) {
        const uint64_t begin = coh_clock_ns();
        coh_cpu_matmul_by(queue, m, choice->product);
        ns[i] = coh_clock_ns() - begin;
    }
    qsort(ns + 1, RUNS, sizeof(*ns), compare);
    const int median = 1 + RUNS / 2;
    *out_seconds = (double)ns[median] * 1e-9;
}

coh_status coh_kernels_time(void *queue, const coh_product_choice *choice, double *out_seconds)
{
    const size_t element = (size_t)coh_tile_element_bytes(choice->dtype);
    coh_status status = COH_OK;
    void *a = NULL, *b = NULL, *c = NULL;
    *out_seconds = 0.0;
    if (!coh_product_available(choice->product, choice->dtype))
        return coh_fail(COH_ERR_ARGUMENT, "no %s here to be timed",
                        coh_product_name(choice->product));
    coh_matmul m = {
        .layout = choice->layout,
        .dtype = choice->dtype,
        .c_dtype = choice->dtype,
        .rows = choice->rows,
        .columns = choice->columns,
        .depth = choice->depth,
        .a_stride = choice->layout == COH_MATMUL_TN ? choice->rows : choice->depth,
        .b_stride = choice->layout == COH_MATMUL_NT ? choice->depth : choice->columns,
        .c_stride = choice->columns,
    };
    COH_TRY_GOTO(status, make_operand(m.rows, m.depth, element, &a), done);
    COH_TRY_GOTO(status, make_operand(m.columns, m.depth, element, &b), done);
    COH_TRY_GOTO(status, make_operand(m.rows, m.columns, element, &c), done);
    m.a = a;
    m.b = b;
    m.c = c;
    time_runs(queue, choice, &m, out_seconds);
done:
    coh_free(c);
    coh_free(b);
    coh_free(a);
    return status;
}
