#include "kernels/kernels.h"

#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

typedef struct cut {
    const coh_matmul *matmul;
    coh_product product;
    int64_t tile_rows, tile_columns, column_tiles;
} cut;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `length` in equal parts of at most `most`, each a multiple of 16 (a register of columns, a
 * BLAS kernel's rows) but the last. */
static int64_t even_part(int64_t length, int64_t most)
{
    int64_t parts = (length + most - 1) / most;
    int64_t part = (length + parts - 1) / parts;
    return (part + 15) / 16 * 16;
}

/* Element `index` of a tensor that may not be there. */
static const void *element(const void *x, coh_dtype dtype, int64_t index)
{
    return x == NULL ? NULL : (const char *)x + index * coh_tile_element_bytes(dtype);
}

static void run_tile(void *argument, int64_t index)
{
    const cut *tiles = argument;
    const coh_matmul *m = tiles->matmul;
    const int64_t i = index / tiles->column_tiles * tiles->tile_rows;
    const int64_t j = index % tiles->column_tiles * tiles->tile_columns;
    const int64_t at = i * m->c_stride + j;
    const int a_transposed = m->layout == COH_MATMUL_TN;
    const int b_transposed = m->layout == COH_MATMUL_NT;
    coh_tile tile = {
        .rows = smaller(tiles->tile_rows, m->rows - i),
        .columns = smaller(tiles->tile_columns, m->columns - j),
        .depth = m->depth,
        .dtype = m->dtype,
        .c_dtype = m->c_dtype,
        .a = element(m->a, m->dtype, a_transposed ? i : i * m->a_stride),
        .b = element(m->b, m->dtype, b_transposed ? j * m->b_stride : j),
        .a_stride = m->a_stride,
        .b_stride = m->b_stride,
        .c_stride = m->c_stride,
        .a_transposed = a_transposed,
        .b_transposed = b_transposed,
        .alpha = 1.0f,
        .beta = m->adds ? 1.0f : 0.0f,
        .c = (void *)element(m->c, m->c_dtype, at),
        .bias = m->adds ? NULL : element(m->bias, m->dtype, j),
        .residual = m->adds ? NULL : element(m->residual, m->dtype, at),
        .gelu = (void *)element(m->gelu, m->c_dtype, at),
    };
    coh_tile_run_by(tiles->product, &tile);
}

/* Largest tile for a product of this size. BLAS packs its operands anew for each tile: 192 x 384
 * keeps 87 % or more of the rate of one undivided call (64 x 256 lost 20 %), and two threads stay
 * busy to the end; smaller products get smaller tiles (85 % or more) so that there are at least
 * four. Measured in one thread at 384..3072, in CPU time, on a busy machine. */
static void choose_tile(const coh_matmul *matmul, int64_t *out_rows, int64_t *out_columns)
{
    const int64_t elements = matmul->rows * matmul->columns;
    if (elements >= 8 * 192 * 384) {
        *out_rows = 192;
        *out_columns = 384;
    } else if (elements >= 4 * 192 * 192) {
        *out_rows = 192;
        *out_columns = 192;
    } else {
        *out_rows = 64;
        *out_columns = 96;
    }
}

void coh_kernel_matmul_by(void *queue, const coh_matmul *matmul, coh_product product)
{
    cut tiles = { .matmul = matmul, .product = product };
    int64_t most_rows, most_columns;
    choose_tile(matmul, &most_rows, &most_columns);
    tiles.tile_rows = even_part(matmul->rows, most_rows);
    tiles.tile_columns = even_part(matmul->columns, most_columns);
    tiles.column_tiles = (matmul->columns + tiles.tile_columns - 1) / tiles.tile_columns;
    int64_t row_tiles = (matmul->rows + tiles.tile_rows - 1) / tiles.tile_rows;
    coh_parallel(queue, row_tiles * tiles.column_tiles, run_tile, &tiles);
}

void coh_kernel_matmul(void *queue, const coh_matmul *matmul)
{
    coh_kernel_matmul_by(queue, matmul,
                         coh_product_find(matmul->dtype, matmul->layout, matmul->rows,
                                          matmul->columns, matmul->depth));
}
