#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/lanes.h"

/* The plain matrix product: what runs without a BLAS that a sanitizer can see into. Each element of
 * c is a sum in rising depth, in panels of PANEL_DEPTH that are added to c one after the other: the
 * order does not depend on the instruction set or on where tiles are cut. */

#define PANEL_DEPTH   256
#define PANEL_COLUMNS (2 * COH_LANES)
#define BLOCK_ROWS    4

/* op(b)[depth, columns] of one panel, padded with zeros to PANEL_COLUMNS. */
static void pack_panel(const coh_tile *tile, int64_t k0, int64_t depth, int64_t j0, int64_t columns,
                       float *panel)
{
    const float *b = tile->b;
    for (int64_t k = 0; k < depth; k++) {
        float *to = panel + k * PANEL_COLUMNS;
        if (tile->b_transposed) {
            for (int64_t j = 0; j < columns; j++)
                to[j] = b[(j0 + j) * tile->b_stride + k0 + k];
        } else {
            memcpy(to, b + (k0 + k) * tile->b_stride + j0, (size_t)columns * sizeof(float));
        }
        for (int64_t j = columns; j < PANEL_COLUMNS; j++)
            to[j] = 0.0f;
    }
}

/* sums[rows][PANEL_COLUMNS] = a block times panel; `a` steps a_row per row
 * and a_depth per depth. */
LANES_INLINE void multiply_block(const float *a, int64_t a_row, int64_t a_depth, int rows,
                                 int64_t depth, const float *panel, float *sums)
{
    lanes left[BLOCK_ROWS], right[BLOCK_ROWS];
    for (int r = 0; r < rows; r++)
        left[r] = right[r] = lanes_all(0.0f);
    for (int64_t k = 0; k < depth; k++) {
        lanes b_left = lanes_load(panel + k * PANEL_COLUMNS);
        lanes b_right = lanes_load(panel + k * PANEL_COLUMNS + COH_LANES);
        for (int r = 0; r < rows; r++) {
            lanes factor = lanes_all(a[r * a_row + k * a_depth]);
            left[r] = lanes_add(left[r], lanes_multiply(factor, b_left));
            right[r] = lanes_add(right[r], lanes_multiply(factor, b_right));
        }
    }
    for (int r = 0; r < rows; r++) {
        lanes_store(sums + r * PANEL_COLUMNS, left[r]);
        lanes_store(sums + r * PANEL_COLUMNS + COH_LANES, right[r]);
    }
}

static void put_block(const coh_tile *tile, int64_t i0, int rows, int64_t j0, int64_t columns,
                      const float *sums, int adds)
{
    for (int r = 0; r < rows; r++) {
        float *c = (float *)tile->c + (i0 + r) * tile->c_stride + j0;
        const float *from = sums + r * PANEL_COLUMNS;
        if (adds)
            for (int64_t j = 0; j < columns; j++)
                c[j] += tile->alpha * from[j];
        else
            for (int64_t j = 0; j < columns; j++)
                c[j] = tile->alpha * from[j];
    }
}

static void multiply_panel(const coh_tile *tile, int64_t k0, int64_t depth, int64_t j0,
                           int64_t columns, const float *panel)
{
    const int64_t a_row = tile->a_transposed ? 1 : tile->a_stride;
    const int64_t a_depth = tile->a_transposed ? tile->a_stride : 1;
    const int adds = k0 > 0 || tile->beta != 0.0f;
    float sums[BLOCK_ROWS * PANEL_COLUMNS];
    for (int64_t i = 0; i < tile->rows;) {
        const float *a = (const float *)tile->a + i * a_row + k0 * a_depth;
        int rows = tile->rows - i >= BLOCK_ROWS ? BLOCK_ROWS : 1;
        if (rows == BLOCK_ROWS)
            multiply_block(a, a_row, a_depth, BLOCK_ROWS, depth, panel, sums);
        else
            multiply_block(a, a_row, a_depth, 1, depth, panel, sums);
        put_block(tile, i, rows, j0, columns, sums, adds);
        i += rows;
    }
}

void ROW(matmul)(const coh_tile *tile)
{
    float panel[PANEL_DEPTH * PANEL_COLUMNS];
    for (int64_t j = 0; j < tile->columns; j += PANEL_COLUMNS) {
        int64_t columns = tile->columns - j < PANEL_COLUMNS ? tile->columns - j : PANEL_COLUMNS;
        for (int64_t k = 0; k < tile->depth; k += PANEL_DEPTH) {
            int64_t depth = tile->depth - k < PANEL_DEPTH ? tile->depth - k : PANEL_DEPTH;
            pack_panel(tile, k, depth, j, columns, panel);
            multiply_panel(tile, k, depth, j, columns, panel);
        }
    }
}
