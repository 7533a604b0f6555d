/* The row loop of dropout: keeps and scales, or drops, each element by its random word. Compiled
 * once per instruction set and element type. Next: kernels/cpu/rows.h (coh_drop_row),
 * kernels/random.h. */
#include "kernels/cpu/isa/element.h"
#include "kernels/cpu/isa/philox.h"

/* Handles `count` <= 16 elements from `at` on: with a constant sixteen the compiler removes the
 * branches. */
LANES_INLINE void drop_part(const coh_drop_row *row, int64_t at, int64_t count)
{
    const element *from = row->from, *base = row->base;
    element *to = row->to;
    uint32_t words[COH_LANES] = { 0 };
    memcpy(words, row->words + at, (size_t)count * sizeof(*words));
    lanes sum = lanes_multiply(elements_take(from + at, count, 0.0f), lanes_all(row->scale));
    for (int k = 0; k < COH_VECTORS; k++) {
        vector_bits word;
        memcpy(&word, words + k * COH_VECTOR_FLOATS, sizeof(word));
        sum.part[k] = (vector)((vector_bits)sum.part[k] & bits_kept(word, row->threshold));
    }
    if (base != NULL)
        sum = lanes_add(elements_take(base + at, count, 0.0f), sum);
    elements_give(to + at, count, sum);
}

void ROW(drop)(const coh_drop_row *row)
{
    int64_t i = 0;
    for (; i + COH_LANES <= row->count; i += COH_LANES)
        drop_part(row, i, COH_LANES);
    if (i < row->count)
        drop_part(row, i, row->count - i);
}
