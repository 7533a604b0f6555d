/* Matrix products on the host: cuts c into tiles and runs them on the pool. The one idea: the
 * number of threads may change the cut, but never a bit. Next: tile.h for one tile, panel.h for our
 * own product. */
#include "kernels/table.h"

#include <string.h>

#include "base/pool.h"
#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/smaller.h"

typedef struct cut {
    const coh_matmul *matmul;
    coh_product product;
    int64_t tile_rows, tile_columns, row_tiles, column_tiles;
} cut;

/* Cuts `length` into equal parts of at most `most`, each a multiple of `step` but the last. */
static int64_t even_part(int64_t length, int64_t most, int64_t step)
{
    int64_t parts = (length + most - 1) / most;
    int64_t part = (length + parts - 1) / parts;
    return (part + step - 1) / step * step;
}

/* Returns the address of element `index`, or NULL for an absent tensor. */
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

/* The tile sizes of one product, the largest first. */
typedef struct tile_sizes {
    const tile_size *all;
    int count;
} tile_sizes;

/* Panels read rows of a in place and pack b again for each tile. So tiles are tall, with four
 * panels, and all rows pass over them once. */
static const tile_size of_panels[] = { { 4096, 128 }, { 2048, 128 }, { 1024, 128 }, { 512, 128 },
                                       { 256, 96 },   { 128, 96 },   { 128, 64 },   { 64, 64 } };
/* A transposed a is packed as well, 256 rows at a time: wide tiles repay that. */
static const tile_size of_transposed[] = {
    { 256, 768 }, { 256, 384 }, { 256, 192 }, { 128, 192 }, { 64, 96 }
};
/* A library packs both operands: 192 x 384 keeps 87 % or more of OpenBLAS's rate. */
static const tile_size of_libraries[] = { { 192, 384 }, { 192, 192 }, { 64, 96 } };

static tile_sizes sizes_of(const cut *tiles)
{
    if (tiles->product != COH_PRODUCT_PANELS)
        return (tile_sizes){ of_libraries, sizeof(of_libraries) / sizeof(*of_libraries) };
    if (tiles->matmul->layout == COH_MATMUL_TN)
        return (tile_sizes){ of_transposed, sizeof(of_transposed) / sizeof(*of_transposed) };
    return (tile_sizes){ of_panels, sizeof(of_panels) / sizeof(*of_panels) };
}

static void cut_by(cut *tiles, tile_size size)
{
    const coh_matmul *m = tiles->matmul;
    tiles->tile_rows = even_part(m->rows, size.rows, 4);
    tiles->tile_columns = even_part(m->columns, size.columns, 32);
    tiles->column_tiles = (m->columns + tiles->tile_columns - 1) / tiles->tile_columns;
    tiles->row_tiles = (m->rows + tiles->tile_rows - 1) / tiles->tile_rows;
}

static int64_t tile_count(const cut *tiles)
{
    return tiles->row_tiles * tiles->column_tiles;
}

/* Least number of tiles of a product. While they are few their number is even, so that two threads
 * end together. A tile of fewer than TILE_WORK multiplications (about 10 us) is not worth
 * cutting. */
#define TILES_LEAST 8
#define TILES_FEW   32
#define TILE_WORK   (1 << 20)

/* Finds the cut for two threads, which one thread uses as well. Returns the size's index. */
static int cut_for_two(cut *tiles, tile_sizes sizes)
{
    for (int i = 0; i < sizes.count; i++) {
        if (i > 0 && sizes.all[i].rows * sizes.all[i].columns * tiles->matmul->depth < TILE_WORK)
            return i - 1;
        cut_by(tiles, sizes.all[i]);
        const int64_t count = tile_count(tiles);
        if (count >= TILES_FEW || (count >= TILES_LEAST && count % 2 == 0))
            return i;
    }
    return sizes.count - 1;
}

/* Does the cut of x weight^T with many rows end in a tile that is summed in lanes? */
static int has_thin_rest(const cut *tiles)
{
    const int64_t rest = tiles->matmul->rows - (tiles->row_tiles - 1) * tiles->tile_rows;
    return tiles->matmul->layout == COH_MATMUL_NT && tiles->row_tiles > 1 && rest <= COH_THIN_ROWS;
}

/* Returns the fraction of time in which the threads have a tile, in 1/1024. */
static int64_t busy_share(const cut *tiles, int64_t thread_count)
{
    const int64_t count = tile_count(tiles), turns = (count + thread_count - 1) / thread_count;
    return count * 1024 / (turns * thread_count);
}

/* Threads that are busy for this fraction of their time need no more tiles, which cost packing. */
#define BUSY_ENOUGH (1024 * 7 / 8)

/* Selects the cut by shape and threads. Twelve tall tiles are enough for two threads but too few
 * for sixteen. So more than two threads use the first size, from the one for two threads on, that
 * keeps them busy, or else the one that keeps them busiest.
 *
 * The number of threads must change no bit. An element's bits depend on its tile in two cases, and
 * there the tiles for two threads are used for any number of them: a library's sums depend on the
 * tile, and four rows or fewer of x weight^T are summed in lanes. So the number of threads neither
 * creates a thin tile nor removes one. Panels begin at the same columns in every cut, because tiles
 * are multiples of 32 wide. */
static void choose_tile(cut *tiles, int thread_count)
{
    const tile_sizes sizes = sizes_of(tiles);
    const int first = cut_for_two(tiles, sizes);
    if (thread_count <= 2 || tiles->product != COH_PRODUCT_PANELS || has_thin_rest(tiles))
        return;
    cut next = *tiles;
    for (int i = first + 1; i < sizes.count && busy_share(tiles, thread_count) < BUSY_ENOUGH; i++) {
        cut_by(&next, sizes.all[i]);
        if (smaller(next.tile_rows, next.matmul->rows) * next.tile_columns * next.matmul->depth <
            TILE_WORK)
            return;
        if (!has_thin_rest(&next) &&
            busy_share(&next, thread_count) > busy_share(tiles, thread_count))
            *tiles = next;
    }
}

static cut make_cut(const coh_matmul *matmul, coh_product product, int thread_count)
{
    cut tiles = { .matmul = matmul,
                  .product = product == COH_PRODUCT_DEFAULT ? coh_product_default(matmul->dtype)
                                                            : product };
    choose_tile(&tiles, thread_count);
    return tiles;
}

int64_t coh_matmul_tile_count(const coh_matmul *matmul, coh_product product, int thread_count)
{
    const cut tiles = make_cut(matmul, product, thread_count);
    return tile_count(&tiles);
}

void coh_cpu_matmul_by(void *queue, const coh_matmul *matmul, coh_product product)
{
    cut tiles = make_cut(matmul, product, coh_pool_thread_count(queue));
    coh_parallel(queue, tile_count(&tiles), run_tile, &tiles);
}

void coh_cpu_matmul(void *queue, const coh_matmul *matmul)
{
    coh_cpu_matmul_by(queue, matmul,
                      coh_product_find(matmul->dtype, matmul->layout, matmul->rows, matmul->columns,
                                       matmul->depth));
}
