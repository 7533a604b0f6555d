/* The row loop of RoPE: rotates pairs of channels by given cosines and sines. Compiled once per
 * instruction set and element type. Next: kernels/cpu/rows.h (coh_rope_row); turns.c computes the
 * angles. */
#include "kernels/cpu/isa/element.h"

/* Reads both halves before it writes either, because y may be x. */
LANES_INLINE void turn_part(const coh_rope_row *row, const element *x, element *y, int64_t i,
                            int64_t count)
{
    const lanes first = elements_take(x + i, count, 0.0f);
    const lanes second = elements_take(x + row->half + i, count, 0.0f);
    const lanes cosine = lanes_take(row->cosine + i, count, 0.0f);
    const lanes sine = lanes_take(row->sine + i, count, 0.0f);
    elements_put(y + i, count,
                 lanes_subtract(lanes_multiply(first, cosine), lanes_multiply(second, sine)),
                 row->adds);
    elements_put(y + row->half + i, count,
                 lanes_add(lanes_multiply(second, cosine), lanes_multiply(first, sine)), row->adds);
}

void ROW(rope)(const coh_rope_row *row)
{
    const element *x = row->x;
    element *y = row->y;
    for (int64_t h = 0; h < row->heads; h++, x += 2 * row->half, y += 2 * row->half)
        EACH_LANES(i, n, row->half, turn_part(row, x, y, i, n));
}
