/* Packs b into panels and a into blocks: words in the order in which the inner loop reads them,
 * padded with zeros. Compiled once per instruction set. Next: words.h, panel.c. */
#include "kernels/cpu/isa/transpose.h"
#include "kernels/cpu/isa/words.h"
#include "kernels/cpu/smaller.h"

/* ---- single words, at the edges ---- */

static uint32_t element_bits(const void *from, int64_t index, coh_dtype dtype)
{
    if (dtype == COH_DTYPE_BF16)
        return ((const uint16_t *)from)[index];
    uint32_t bits;
    memcpy(&bits, (const float *)from + index, sizeof(bits));
    return bits;
}

/* Returns the word that begins at `index`; its second half, if `has_second`, is `step` elements
 * further. */
static word word_at(const void *from, int64_t index, int64_t step, int has_second, coh_dtype dtype)
{
    const uint32_t first = element_bits(from, index, dtype);
    if (WORD_ELEMENTS == 1)
        return dtype == COH_DTYPE_BF16 ? first << 16 : first;
    return first | (has_second ? element_bits(from, index + step, dtype) << 16 : 0u);
}

/* ---- b ---- */

/* Packs words [k, k + words) of columns [c, c + columns) of a transposed b, one by one. */
static void transpose_words(const coh_tile *t, int64_t k0, int64_t depth, int64_t j0, int64_t c,
                            int64_t columns, int64_t k, int64_t words, word *panel)
{
    for (int64_t at = k; at < k + words; at++)
        for (int64_t j = c; j < c + columns; j++)
            panel[at * PANEL_COLUMNS + j] =
                word_at(t->b, (j0 + j) * t->b_stride + k0 + at * WORD_ELEMENTS, 1,
                        at * WORD_ELEMENTS + 1 < depth, t->dtype);
}

/* b's rows lie along the depth: transposes squares of words. */
LANES_INLINE void pack_transposed(const coh_tile *t, int64_t k0, int64_t depth, int64_t j0,
                                  int64_t columns, word *panel, coh_dtype dtype)
{
    const int64_t bytes = coh_tile_element_bytes(dtype), row = t->b_stride * bytes;
    const int64_t words = (depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    const int64_t whole = depth / WORD_ELEMENTS / TRANSPOSE_WORDS * TRANSPOSE_WORDS;
    const int64_t wide = columns / TRANSPOSE_WORDS * TRANSPOSE_WORDS;
    const char *from = (const char *)t->b + (j0 * t->b_stride + k0) * bytes;
    for (int64_t k = 0; k < whole; k += TRANSPOSE_WORDS) {
        for (int64_t c = 0; c < TRANSPOSE_WORDS * PANEL_COLUMNS; c += 16)
            __builtin_prefetch(panel + (k + TRANSPOSE_WORDS) * PANEL_COLUMNS + c, 1, 3);
        for (int64_t c = 0; c < wide; c += TRANSPOSE_WORDS)
            transpose(from + c * row + k * WORD_ELEMENTS * bytes, row, dtype,
                      panel + k * PANEL_COLUMNS + c, PANEL_COLUMNS);
    }
    transpose_words(t, k0, depth, j0, 0, wide, whole, words - whole, panel);
    transpose_words(t, k0, depth, j0, wide, columns - wide, 0, words, panel);
    for (int64_t k = 0; k < words && columns < PANEL_COLUMNS; k++)
        memset(panel + k * PANEL_COLUMNS + columns, 0,
               (size_t)(PANEL_COLUMNS - columns) * sizeof(word));
}

/* Packs one row of a panel from b's row, or from two of them (the second NULL: zeros). */
LANES_INLINE void pack_row(const void *first, const void *second, int64_t columns, word *to,
                           coh_dtype dtype)
{
    for (int64_t c = 0; c < columns; c += COH_LANES) {
        const int64_t count = columns - c < COH_LANES ? columns - c : COH_LANES;
        const char *x = (const char *)first + c * coh_tile_element_bytes(dtype);
#if WORD_ELEMENTS == 2
        const lanes row = words_pair(
            x, second == NULL ? NULL : (const char *)second + c * (int64_t)sizeof(uint16_t), count);
#else
        (void)second;
        const lanes row =
            count == COH_LANES ? words_load(x, dtype) : words_load_part(x, count, dtype);
#endif
        memcpy(to + c, &row, sizeof(row));
    }
    for (int64_t c = (columns + COH_LANES - 1) / COH_LANES * COH_LANES; c < PANEL_COLUMNS; c++)
        to[c] = 0;
}

LANES_INLINE void pack_rows(const coh_tile *t, int64_t k0, int64_t depth, int64_t j0,
                            int64_t columns, word *panel, coh_dtype dtype)
{
    const int64_t bytes = coh_tile_element_bytes(dtype), row = t->b_stride * bytes;
    const char *from = (const char *)t->b + (k0 * t->b_stride + j0) * bytes;
    for (int64_t k = 0; k < depth; k += WORD_ELEMENTS) {
        const char *first = from + k * row;
        pack_row(first, k + 1 < depth ? first + row : NULL, columns, panel, dtype);
        panel += PANEL_COLUMNS;
    }
}

LANES_INLINE void pack_b(const coh_tile *t, int64_t k0, int64_t depth, int64_t j0, int64_t columns,
                         word *panel, coh_dtype dtype)
{
    if (t->b_transposed)
        pack_transposed(t, k0, depth, j0, columns, panel, dtype);
    else if (columns == PANEL_COLUMNS)
        pack_rows(t, k0, depth, j0, PANEL_COLUMNS, panel, dtype);
    else
        pack_rows(t, k0, depth, j0, columns, panel, dtype);
}

void PANEL(pack_b)(const coh_tile *tile, int64_t k0, int64_t depth, int64_t j0, int64_t columns,
                   word *panel)
{
    const int64_t words = (depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    memset(panel + words * PANEL_COLUMNS, 0,
           (size_t)((block_words(depth) - words) * PANEL_COLUMNS) * sizeof(word));
    if (WORD_ELEMENTS == 1 && tile->dtype == COH_DTYPE_F32)
        pack_b(tile, k0, depth, j0, columns, panel, COH_DTYPE_F32);
    else
        pack_b(tile, k0, depth, j0, columns, panel, COH_DTYPE_BF16);
}

/* ---- a ---- */

LANES_INLINE void copy_row(const void *from, int64_t depth, word *to, coh_dtype dtype)
{
    const int64_t step = COH_LANES * WORD_ELEMENTS, bytes = coh_tile_element_bytes(dtype);
    int64_t k = 0;
    for (; k + step <= depth; k += step) {
        const lanes x = words_load((const char *)from + k * bytes, dtype);
        memcpy(to + k / WORD_ELEMENTS, &x, sizeof(x));
    }
    for (; k < depth; k += WORD_ELEMENTS)
        to[k / WORD_ELEMENTS] = word_at(from, k, 1, k + 1 < depth, dtype);
    for (k /= WORD_ELEMENTS; k < block_words(depth); k++)
        to[k] = 0;
}

#if defined(__AMX_BF16__)
/* Transposes squares of sixteen words: AMX needs rows of words. */
LANES_INLINE void pack_a_columns(const coh_tile *t, int64_t k0, int64_t depth, int64_t i0,
                                 int64_t rows, word *packed, int64_t stride, coh_dtype dtype)
{
    const int64_t row = t->a_stride * coh_tile_element_bytes(dtype);
    const char *from = (const char *)t->a + k0 * row + i0 * coh_tile_element_bytes(dtype);
    for (int64_t k = 0; k < depth; k += TRANSPOSE_WORDS * WORD_ELEMENTS)
        for (int64_t r = 0; r < rows; r += TRANSPOSE_WORDS) {
            const int64_t count = smaller(rows - r, TRANSPOSE_WORDS);
            const char *first = from + k * row + r * (int64_t)sizeof(uint16_t);
            lanes square[TRANSPOSE_WORDS];
            for (int64_t w = 0; w < TRANSPOSE_WORDS; w++, first += 2 * row) {
                const int64_t rest = depth - k - w * WORD_ELEMENTS;
                square[w] = rest > 0 ? words_pair(first, rest > 1 ? first + row : NULL, count)
                                     : lanes_all(0.0f);
            }
            transpose(square, sizeof(*square), dtype, packed + r * stride + k / WORD_ELEMENTS,
                      stride);
        }
}
#else
/* Copies `rows` neighbours from one or two of a's rows, which lie along c's rows. May write zeros
 * after them, up to sixteen words. */
LANES_INLINE void copy_block(const char *first, const char *second, int64_t rows, word *to,
                             coh_dtype dtype)
{
#if WORD_ELEMENTS == 2
    (void)dtype;
    const lanes x = words_pair(first, second, rows);
    memcpy(to, &x, sizeof(x));
#elif defined(__AVX512F__)
    (void)second;
    const lanes x = words_load_first(first, rows, dtype);
    memcpy(to, &x, sizeof(x));
#else
    (void)second;
    for (int64_t r = 0; r < rows; r++)
        to[r] = word_at(first, r, 0, 0, dtype);
#endif
}

/* Packs words [k, end) of one block of c's rows. */
LANES_INLINE void pack_a_block(const coh_tile *t, const char *from, int64_t depth, int64_t k,
                               int64_t end, int64_t rows, word *to, coh_dtype dtype)
{
    const int64_t row = t->a_stride * coh_tile_element_bytes(dtype);
    for (; k < end; k++) {
        const char *first = from + k * WORD_ELEMENTS * row;
        const char *second = k * WORD_ELEMENTS + 1 < depth ? first + row : NULL;
        copy_block(first, second, rows, to + k * BLOCK_ROWS, dtype);
    }
}

/* Takes a few of a's rows at a time, so that the rest of a cache line that one block of c's rows
 * uses in part is still in cache when the next block needs it. */
#define PACK_WORDS 16
LANES_INLINE void pack_a_columns(const coh_tile *t, int64_t k0, int64_t depth, int64_t i0,
                                 int64_t rows, word *packed, int64_t stride, coh_dtype dtype)
{
    const int64_t bytes = coh_tile_element_bytes(dtype), blocks = block_count(rows);
    const int64_t words = (depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    const char *from = (const char *)t->a + (k0 * t->a_stride + i0) * bytes;
    for (int64_t k = 0; k < words; k += PACK_WORDS) {
        const int64_t end = k + PACK_WORDS < words ? k + PACK_WORDS : words;
        for (int64_t at = (end + PACK_WORDS) * WORD_ELEMENTS;
             at < (end + 2 * PACK_WORDS) * WORD_ELEMENTS; at++)
            for (int64_t line = 0; line < rows * bytes && at < depth; line += 64)
                __builtin_prefetch(from + at * t->a_stride * bytes + line, 0, 2);
        for (int64_t index = 0; index < blocks; index++) {
            const int64_t begin = block_begin(rows, index);
            const int64_t count = block_begin(rows, index + 1) - begin;
            word *to = packed + index * BLOCK_ROWS * stride;
            if (count == BLOCK_ROWS)
                pack_a_block(t, from + begin * bytes, depth, k, end, BLOCK_ROWS, to, dtype);
            else
                pack_a_block(t, from + begin * bytes, depth, k, end, count, to, dtype);
        }
    }
}
#endif

LANES_INLINE void pack_a(const coh_tile *t, int64_t k0, int64_t depth, int64_t i0, int64_t rows,
                         word *packed, int64_t stride, coh_dtype dtype)
{
    if (t->a_transposed) {
        pack_a_columns(t, k0, depth, i0, rows, packed, stride, dtype);
        return;
    }
    const int64_t bytes = coh_tile_element_bytes(dtype);
    for (int64_t r = 0; r < rows; r++)
        copy_row((const char *)t->a + ((i0 + r) * t->a_stride + k0) * bytes, depth,
                 packed + r * stride, dtype);
}

void PANEL(pack_a)(const coh_tile *tile, int64_t k0, int64_t depth, int64_t i0, int64_t rows,
                   word *packed, int64_t stride)
{
    if (WORD_ELEMENTS == 1 && tile->dtype == COH_DTYPE_F32)
        pack_a(tile, k0, depth, i0, rows, packed, stride, COH_DTYPE_F32);
    else
        pack_a(tile, k0, depth, i0, rows, packed, stride, COH_DTYPE_BF16);
}
