/* Products x weight^T of up to COH_THIN_ROWS rows, as in a decoder's step: sums in lanes, without
 * packing. Compiled once per instruction set. Next: words.h, kernels/cpu/panel.h. */
#include "kernels/cpu/isa/words.h"

#define THIN_COLUMNS 4

/* Adds to sums[r][THIN_COLUMNS] of `rows` rows and the columns from j; columns after the last
 * repeat it. */
LANES_INLINE void dots(const coh_tile *t, int rows, int64_t j, coh_dtype dtype, float *sums)
{
    const int64_t bytes = coh_tile_element_bytes(dtype), step = COH_LANES * WORD_ELEMENTS;
    const char *a[COH_THIN_ROWS], *b[THIN_COLUMNS];
    lanes sum[COH_THIN_ROWS][THIN_COLUMNS];
    for (int c = 0; c < THIN_COLUMNS; c++) {
        const int64_t column = j + c < t->columns ? j + c : t->columns - 1;
        b[c] = (const char *)t->b + column * t->b_stride * bytes;
        for (int r = 0; r < rows; r++)
            sum[r][c] = lanes_all(0.0f);
    }
    for (int r = 0; r < rows; r++)
        a[r] = (const char *)t->a + r * t->a_stride * bytes;
    for (int64_t k = 0; k < t->depth; k += step) {
        const int64_t rest = t->depth - k;
        lanes x[THIN_COLUMNS];
        for (int c = 0; c < THIN_COLUMNS; c++)
            x[c] = rest >= step ? words_load(b[c] + k * bytes, dtype)
                                : words_load_part(b[c] + k * bytes, rest, dtype);
        for (int r = 0; r < rows; r++) {
            const lanes factor = rest >= step ? words_load(a[r] + k * bytes, dtype)
                                              : words_load_part(a[r] + k * bytes, rest, dtype);
            for (int c = 0; c < THIN_COLUMNS; c++)
                sum[r][c] = words_multiply_add(sum[r][c], factor, x[c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < THIN_COLUMNS; c++)
            sums[r * PANEL_COLUMNS + c] += lanes_sum(sum[r][c]);
}

LANES_INLINE void dots_of(const coh_tile *t, int64_t j, coh_dtype dtype, float *sums)
{
    switch (t->rows) {
    case 1:
        dots(t, 1, j, dtype, sums);
        break;
    case 2:
        dots(t, 2, j, dtype, sums);
        break;
    case 3:
        dots(t, 3, j, dtype, sums);
        break;
    default:
        dots(t, 4, j, dtype, sums);
    }
}

void PANEL(thin)(const coh_tile *tile)
{
    const panel_place place = { .tile = tile, .partial = tile->c, .first = 1, .last = 1 };
    for (int64_t j = 0; j < tile->columns; j += PANEL_COLUMNS) {
        const int64_t columns =
            tile->columns - j < PANEL_COLUMNS ? tile->columns - j : PANEL_COLUMNS;
        float block[COH_THIN_ROWS * PANEL_COLUMNS], bias_row[PANEL_COLUMNS];
        PANEL(bias)(tile, j, columns, bias_row);
        PANEL(begin)(&place, 0, tile->rows, j, columns, bias_row, block);
        for (int64_t c = 0; c < columns; c += THIN_COLUMNS)
            if (WORD_ELEMENTS == 1 && tile->dtype == COH_DTYPE_F32)
                dots_of(tile, j + c, COH_DTYPE_F32, block + c);
            else
                dots_of(tile, j + c, COH_DTYPE_BF16, block + c);
        PANEL(put)(&place, block, 0, tile->rows, j, columns);
        if (tile->activated != NULL)
            PANEL(activate)(tile, 0, tile->rows, j, columns);
    }
}
