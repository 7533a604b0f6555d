/* Matrix products on a stream: by cuBLASLt if it is installed and has an algorithm for the form,
 * else by product.cu. The selection follows from the form, the device and the library alone. Next:
 * products.h, product.cu. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/table.h"
#include "memory/cuda_queue.h"

enum { PRODUCT_THREADS = 256, ACTIVATE_THREADS = 256, ACTIVATE_BLOCKS = 64 };

/* Most commands that the library enqueues for a product, as far as known: the product, sums of its
 * parts. */
enum { PRODUCT_COMMANDS = 2 };

/* Do all rows of a matrix begin on a 16-byte boundary? */
static int is_packed(const void *data, coh_dtype dtype, int64_t stride)
{
    return COH_CUDA_PACKED(data) && stride % coh_cuda_pack(dtype) == 0;
}

static void launch_product(void *queue, const coh_matmul *m)
{
    static const coh_cuda_kernel kernels[] = { [COH_MATMUL_NT] = COH_CUDA_PRODUCT_NT_F32,
                                               [COH_MATMUL_NN] = COH_CUDA_PRODUCT_NN_F32,
                                               [COH_MATMUL_TN] = COH_CUDA_PRODUCT_TN_F32 };
    const int64_t tile =
        m->dtype == COH_DTYPE_BF16 ? COH_CUDA_PRODUCT_TILE_BF16 : COH_CUDA_PRODUCT_TILE_F32;
    const int64_t tiles = coh_cuda_parts(m->rows, tile) * coh_cuda_parts(m->columns, tile);
    const coh_cuda_grid grid = coh_cuda_blocks(tiles, PRODUCT_THREADS);
    const coh_cuda_product_arguments arguments = {
        .rows = m->rows,
        .columns = m->columns,
        .depth = m->depth,
        .a_stride = m->a_stride,
        .b_stride = m->b_stride,
        .c_stride = m->c_stride,
        .a = m->a,
        .b = m->b,
        .c = m->c,
        .bias = m->adds ? NULL : m->bias,
        .residual = m->adds ? NULL : m->residual,
        .adds = m->adds,
        .c_is_bf16 = m->c_dtype == COH_DTYPE_BF16,
        .a_packed = is_packed(m->a, m->dtype, m->a_stride),
        .b_packed = is_packed(m->b, m->dtype, m->b_stride),
    };
    coh_cuda_launch(queue, coh_cuda_of(kernels[m->layout], m->dtype), &grid, &arguments);
}

static void launch_activation(void *queue, const coh_matmul *m)
{
    if (m->c_stride == m->columns) {
        coh_cuda_activate(queue, m->activation, m->c_dtype, m->activated, m->c,
                          m->rows * m->columns);
        return;
    }
    const int64_t most = ACTIVATE_BLOCKS * (int64_t)coh_cuda_multiprocessors(queue);
    const coh_cuda_grid grid = coh_cuda_blocks(m->rows < most ? m->rows : most, ACTIVATE_THREADS);
    const coh_cuda_activate_arguments arguments = {
        .rows = m->rows,
        .columns = m->columns,
        .stride = m->c_stride,
        .x = m->c,
        .y = m->activated,
        .is_relu = m->activation == COH_ACTIVATION_RELU,
        .packed = is_packed(m->c, m->c_dtype, m->c_stride) &&
                  is_packed(m->activated, m->c_dtype, m->c_stride),
    };
    coh_cuda_launch(queue, coh_cuda_of(COH_CUDA_ACTIVATE_ROWS_F32, m->c_dtype), &grid, &arguments);
}

/* Asks the library for a product; *out_done is 1 if c is computed. If the library fails, no other
 * kernel replaces it. */
static coh_status ask_library(coh_cuda_queue *q, const coh_matmul *matmul, int *out_done)
{
    *out_done = 0;
    if (q->libraries == NULL || q->libraries->products == NULL)
        return COH_OK;
    if (q->is_rehearsing) {
        int has_run;
        COH_TRY(coh_cuda_products_prepare(q->libraries->products, matmul, &has_run));
        if (has_run)
            return COH_OK;
    }
    if (!coh_cuda_queue_admit(q, PRODUCT_COMMANDS)) {
        *out_done = 1; /* nothing more may be enqueued */
        return COH_OK;
    }
    return coh_cuda_products_run(q->libraries->products, q->stream, matmul, out_done);
}

/* If relu is part of the form, the library has applied it; product.cu never does. */
void coh_cuda_matmul(void *queue, const coh_matmul *matmul)
{
    int done;
    const coh_status status = ask_library(queue, matmul, &done);
    if (status != COH_OK) {
        coh_cuda_queue_fail(queue, status);
        return;
    }
    if (!done)
        launch_product(queue, matmul);
    if (matmul->activated != NULL && !(done && coh_product_form_of(matmul).relu))
        launch_activation(queue, matmul);
}
