#include "kernels/cpu/isa/gelu.h"
#include "kernels/cpu/isa/words.h"

/* Sixteen elements of a row, or the first `count`; others are zero. */
LANES_INLINE lanes take(const void *row, int64_t index, int64_t count, coh_dtype dtype)
{
    if (dtype == COH_DTYPE_BF16) {
        const uint16_t *from = (const uint16_t *)row + index;
        uint16_t padded[COH_LANES] = { 0 };
        if (count == COH_LANES)
            return lanes_widen(from);
        memcpy(padded, from, (size_t)count * sizeof(*padded));
        return lanes_widen(padded);
    }
    const float *from = (const float *)row + index;
    return count == COH_LANES ? lanes_load(from) : lanes_load_part(from, count, 0.0f);
}

LANES_INLINE void give(void *row, int64_t index, int64_t count, coh_dtype dtype, lanes x)
{
    if (dtype == COH_DTYPE_BF16) {
        uint16_t *to = (uint16_t *)row + index;
        uint16_t padded[COH_LANES];
        if (count == COH_LANES) {
            lanes_narrow(to, x);
            return;
        }
        lanes_narrow(padded, x);
        memcpy(to, padded, (size_t)count * sizeof(*padded));
        return;
    }
    float *to = (float *)row + index;
    if (count == COH_LANES)
        lanes_store(to, x);
    else
        lanes_store_part(to, count, x);
}

/* c's elements [at, at + count) of one row, whose columns begin at j. */
LANES_INLINE void finish_lanes(const panel_place *place, lanes x, int64_t i, int64_t j,
                               int64_t count)
{
    const coh_tile *t = place->tile;
    const int64_t at = i * t->c_stride + j;
    float *partial = place->partial + (i - place->i0) * place->partial_stride + (j - place->j0);
    if (t->alpha != 1.0f)
        x = lanes_multiply(x, lanes_all(t->alpha));
    if (!place->first) {
        x = lanes_add(x, take(partial, 0, count, COH_DTYPE_F32));
    } else {
        if (t->bias != NULL)
            x = lanes_add(x, take(t->bias, j, count, t->dtype));
        if (t->residual != NULL)
            x = lanes_add(x, take(t->residual, at, count, t->dtype));
        if (t->beta != 0.0f)
            x = lanes_add(x, take(t->c, at, count, t->c_dtype));
    }
    if (!place->last) {
        give(partial, 0, count, COH_DTYPE_F32, x);
        return;
    }
    give(t->c, at, count, t->c_dtype, x);
    if (t->gelu != NULL)
        give(t->gelu, at, count, t->c_dtype, gelu(take(t->c, at, count, t->c_dtype)));
}

void PANEL(finish)(const panel_place *place, const float *sums, int64_t i, int64_t rows, int64_t j,
                   int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t begin = 0; begin < columns; begin += COH_LANES) {
            const lanes x = lanes_load(sums + r * PANEL_COLUMNS + begin);
            if (columns - begin >= COH_LANES)
                finish_lanes(place, x, i + r, j + begin, COH_LANES);
            else
                finish_lanes(place, x, i + r, j + begin, columns - begin);
        }
}
