#include "kernels/kernels.h"

#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

typedef struct cut {
    const coh_matmul *matmul;
    coh_product product;
    int64_t tile_rows, tile_columns, row_tiles, column_tiles;
} cut;

/* `length` in equal parts of at most `most`, each a multiple of `step` but the last. */
static int64_t even_part(int64_t length, int64_t most, int64_t step)
{
    int64_t parts = (length + most - 1) / most;
    int64_t part = (length + parts - 1) / parts;
    return (part + step - 1) / step * step;
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
        .adds = m->adds,
        .c = (void *)element(m->c, m->c_dtype, at),
        .bias = m->adds ? NULL : element(m->bias, m->dtype, j),
        .residual = m->adds ? NULL : element(m->residual, m->dtype, at),
        .activated = (void *)element(m->activated, m->c_dtype, at),
        .activation = m->activation,
    };
    coh_tile_run_by(tiles->product, &tile);
}

void coh_tile_activate(const coh_tile *tile)
{
    const coh_rows *rows = coh_rows_for(tile->c_dtype);
    coh_row_gelu *row = tile->activation == COH_ACTIVATION_RELU ? rows->relu : rows->gelu;
    for (int64_t i = 0; tile->activated != NULL && i < tile->rows; i++) {
        const int64_t at = i * tile->c_stride;
        row(coh_element(tile->c_dtype, tile->activated, at),
            coh_element_const(tile->c_dtype, tile->c, at), tile->columns);
    }
}

typedef struct tile_size {
    int64_t rows, columns;
} tile_size;

/* Panels read rows of a where they are, and pack b anew for each tile: tall tiles of four panels,
 * which all rows pass once. */
static const tile_size of_panels[] = { { 4096, 128 }, { 2048, 128 }, { 1024, 128 }, { 512, 128 },
                                       { 256, 96 },   { 128, 96 },   { 128, 64 },   { 64, 64 } };
/* A transposed a is packed as well, 256 rows at a time: width pays for that. */
static const tile_size of_transposed[] = {
    { 256, 768 }, { 256, 384 }, { 256, 192 }, { 128, 192 }, { 64, 96 }
};
/* A library packs both: 192 x 384 keeps 87 % or more of OpenBLAS's rate. */
static const tile_size of_libraries[] = { { 192, 384 }, { 192, 192 }, { 64, 96 } };

/* Tiles that a product should have at least, and an even number of them while they are few: so two
 * threads end together. More threads have work too, as most products have two or three times as
 * many. Of fewer than TILE_WORK multiplications (about 10 us) a tile is not worth cutting. */
#define TILES_LEAST 8
#define TILES_FEW   32
#define TILE_WORK   (1 << 20)

static void choose_tile(cut *tiles)
{
    const coh_matmul *m = tiles->matmul;
    const int is_library = tiles->product != COH_PRODUCT_PANELS;
    const int transposed = m->layout == COH_MATMUL_TN;
    const tile_size *sizes = is_library ? of_libraries : transposed ? of_transposed : of_panels;
    const int size_count = is_library ? 3 : transposed ? 5 : 8;
    for (int i = 0; i < size_count; i++) {
        if (i > 0 && sizes[i].rows * sizes[i].columns * m->depth < TILE_WORK)
            return;
        tiles->tile_rows = even_part(m->rows, sizes[i].rows, 4);
        tiles->tile_columns = even_part(m->columns, sizes[i].columns, 32);
        tiles->column_tiles = (m->columns + tiles->tile_columns - 1) / tiles->tile_columns;
        tiles->row_tiles = (m->rows + tiles->tile_rows - 1) / tiles->tile_rows;
        const int64_t count = tiles->row_tiles * tiles->column_tiles;
        if (count >= TILES_FEW || (count >= TILES_LEAST && count % 2 == 0))
            return;
    }
}

void coh_kernel_matmul_by(void *queue, const coh_matmul *matmul, coh_product product)
{
    cut tiles = { .matmul = matmul,
                  .product = product == COH_PRODUCT_DEFAULT ? coh_product_default(matmul->dtype)
                                                            : product };
    choose_tile(&tiles);
    coh_parallel(queue, tiles.row_tiles * tiles.column_tiles, run_tile, &tiles);
}

void coh_kernel_matmul(void *queue, const coh_matmul *matmul)
{
    coh_kernel_matmul_by(queue, matmul,
                         coh_product_find(matmul->dtype, matmul->layout, matmul->rows,
                                          matmul->columns, matmul->depth));
}
