/* The begin and end of a panel's sums: bias, residual or earlier sums go in; rounding and the
 * activation come out. Compiled once per instruction set. Next: words.h, panel.c. */
#include "kernels/cpu/isa/activation.h"
#include "kernels/cpu/isa/words.h"

/* Loads sixteen elements of a row, or the first `count`; the others are zero. */
LANES_INLINE lanes take(const void *row, int64_t index, int64_t count, coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? halves_take((const uint16_t *)row + index, count, 0.0f)
                                   : lanes_take((const float *)row + index, count, 0.0f);
}

LANES_INLINE void give(void *row, int64_t index, int64_t count, coh_dtype dtype, lanes x)
{
    if (dtype == COH_DTYPE_BF16)
        halves_give((uint16_t *)row + index, count, x);
    else
        lanes_give((float *)row + index, count, x);
}

void PANEL(bias)(const coh_tile *tile, int64_t j, int64_t columns, float *row)
{
    for (int64_t at = 0; at < PANEL_COLUMNS; at += COH_LANES) {
        const int64_t rest = columns - at, count = rest < COH_LANES ? rest : COH_LANES;
        const int there = tile->bias != NULL && rest > 0;
        lanes_store(row + at,
                    there ? take(tile->bias, j + at, count, tile->dtype) : lanes_all(0.0f));
    }
}

/* Returns the initial sums of sixteen columns, or `count`, of one row. */
LANES_INLINE lanes begin_lanes(const panel_place *p, const coh_tile *t, int64_t i, int64_t j,
                               int64_t count, lanes x)
{
    const int64_t at = i * t->c_stride + j;
    if (!p->first)
        return take(p->partial + (i - p->i0) * p->partial_stride, j - p->j0, count, COH_DTYPE_F32);
    if (t->residual != NULL)
        x = lanes_add(x, take(t->residual, at, count, t->dtype));
    if (t->adds)
        x = lanes_add(x, take(t->c, at, count, t->c_dtype));
    return x;
}

void PANEL(begin)(const panel_place *place, int64_t i, int64_t rows, int64_t j, int64_t columns,
                  const float *bias_row, float *block)
{
    /* local copies: stores cannot alias them */
    const panel_place p = *place;
    const coh_tile t = *place->tile;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < columns; at += COH_LANES) {
            const lanes bias = lanes_load(bias_row + at);
            float *to = block + r * PANEL_COLUMNS + at;
            if (columns - at >= COH_LANES)
                lanes_store(to, begin_lanes(&p, &t, i + r, j + at, COH_LANES, bias));
            else
                lanes_store(to, begin_lanes(&p, &t, i + r, j + at, columns - at, bias));
        }
}

void PANEL(put)(const panel_place *place, const float *block, int64_t i, int64_t rows, int64_t j,
                int64_t columns)
{
    const panel_place p = *place;
    const coh_tile t = *place->tile;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < columns; at += COH_LANES) {
            const int64_t rest = columns - at, count = rest < COH_LANES ? rest : COH_LANES;
            const lanes x = lanes_load(block + r * PANEL_COLUMNS + at);
            if (p.last)
                give(t.c, (i + r) * t.c_stride + j + at, count, t.c_dtype, x);
            else
                give(p.partial + (i + r - p.i0) * p.partial_stride, j + at - p.j0, count,
                     COH_DTYPE_F32, x);
        }
}

/* `activation` is a compile-time constant. */
LANES_INLINE void activate(const coh_tile *tile, int64_t i, int64_t rows, int64_t j,
                           int64_t columns, coh_activation activation)
{
    const coh_tile t = *tile;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < columns; at += COH_LANES) {
            const int64_t rest = columns - at, index = (i + r) * t.c_stride + j + at;
            const int64_t count = rest < COH_LANES ? rest : COH_LANES;
            const lanes c = take(t.c, index, count, t.c_dtype);
            give(t.activated, index, count, t.c_dtype,
                 activation == COH_ACTIVATION_RELU ? relu(c) : gelu(c));
        }
}

void PANEL(activate)(const coh_tile *tile, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    if (tile->activation == COH_ACTIVATION_RELU)
        activate(tile, i, rows, j, columns, COH_ACTIVATION_RELU);
    else
        activate(tile, i, rows, j, columns, COH_ACTIVATION_GELU);
}
