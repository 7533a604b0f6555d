/* words.h - sixteen 32-bit words of a packed panel side by side, and their products.
 *
 * Included only by the files of the panels, which are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_WORDS_H
#define COH_KERNELS_CPU_ISA_WORDS_H

#include "kernels/cpu/isa/lanes.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Elements of the operands in a word: two bf16, or one float (to which bf16 is widened). */
#if defined(__AVX512BF16__)
#define WORD_ELEMENTS 2
#else
#define WORD_ELEMENTS 1
#endif

/* Rows and words of c whose sums are kept in registers: 24 of 32 registers of AVX-512, 12 of 16 of
 * AVX2, 8 of 16 of SSE; the others hold a row of the panel and a word of a. AMX: four of eight
 * tiles. */
#if defined(__AMX_BF16__)
#define BLOCK_ROWS    32
#define PANEL_COLUMNS 32
#elif defined(__AVX512F__)
#define BLOCK_ROWS    12
#define PANEL_COLUMNS 32
#elif defined(__AVX2__)
#define BLOCK_ROWS    6
#define PANEL_COLUMNS 16
#else
#define BLOCK_ROWS    2
#define PANEL_COLUMNS 16
#endif
#define PANEL_LANES (PANEL_COLUMNS / COH_LANES)

/* Words of depth that are multiplied at a time. Packed rows and panels are padded with zeros to a
 * multiple of it. */
#if defined(__AMX_BF16__)
#define DEPTH_WORDS 16
#else
#define DEPTH_WORDS 1
#endif

/* Panels stay in the second-level cache in groups of at most four, 512 KiB at most with AVX-512,
 * while rows of a pass through. */
#define GROUP_WORDS  4096
#define GROUP_PANELS 4

/* Words of a that are packed at a time, 1.1 MiB: 264 rows of 1024 words. That is more than a tile
 * of a transposed a has (256), so b is packed once for all of them; at the greatest depth of a
 * block it is about 170 rows. They are read from the third-level cache in the order in which they
 * are stored. A packed row is PACKED_GAP words longer than the block is deep (a multiple of 16
 * words). So rows are an odd number of cache lines apart, and twelve rows do not compete for one
 * set of the first-level cache. */
#define PACKED_WORDS (264 * (1024 + PACKED_GAP))
#define PACKED_GAP   16

/* Put before a loop with a constant count, so that the array it indexes can stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef uint32_t word;
/* A word in a row of bf16, which may be unaligned. */
typedef uint32_t __attribute__((may_alias, aligned(2))) word_anywhere;

/* Loads sixteen words from a row of `dtype`. */
LANES_INLINE lanes words_load(const void *from, coh_dtype dtype)
{
    if (WORD_ELEMENTS == 1 && dtype == COH_DTYPE_BF16)
        return lanes_widen(from);
    return lanes_load(from);
}

/* Loads the first `count` elements, fewer than sixteen words hold; the others are zero. */
LANES_INLINE lanes words_load_part(const void *from, int64_t count, coh_dtype dtype)
{
    uint32_t padded[COH_LANES] = { 0 };
    memcpy(padded, from, (size_t)(count * coh_tile_element_bytes(dtype)));
    return words_load(padded, dtype);
}

LANES_INLINE lanes words_all(word value)
{
    float same;
    memcpy(&same, &value, sizeof(same));
    return lanes_all(same);
}

/* sum + a * b, word by word. */
LANES_INLINE vector words_multiply_add_vector(vector sum, vector a, vector b)
{
#if defined(__AVX512BF16__)
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#elif defined(__AVX512F__)
    return (vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
    return (vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#else
    return sum + a * b;
#endif
}

LANES_INLINE lanes words_multiply_add(lanes sum, lanes a, lanes b)
{
    for (int k = 0; k < COH_VECTORS; k++)
        sum.part[k] = words_multiply_add_vector(sum.part[k], a.part[k], b.part[k]);
    return sum;
}

/* Vectors in a panel's row. Sums are arrays of bare vectors: gcc 12 keeps an array of `lanes` of
 * two vectors in memory, which made AVX2 six times slower. */
#define PANEL_VECTORS (PANEL_COLUMNS / COH_VECTOR_FLOATS)
typedef vector row_of_sums[PANEL_VECTORS];

/* sums[r][v] += word k of row r of a * vector v of row k of b, for k < words. Rows of a are `row`
 * bytes apart, its words `step` bytes, rows of b `b_row` words. The numbers of rows and vectors
 * must be constants, so that the sums stay in registers. */
LANES_INLINE void words_multiply_block(row_of_sums *sums, int rows, int vectors, const char *a,
                                       int64_t row, int64_t step, const void *b, int64_t b_row,
                                       int64_t words)
{
    const float *right_row = b;
    for (int64_t k = 0; k < words; k++, a += step, right_row += b_row) {
        row_of_sums right;
        for (int v = 0; v < vectors; v++)
            memcpy(&right[v], right_row + v * COH_VECTOR_FLOATS, sizeof(right[v]));
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vector left = words_all(*(const word_anywhere *)(a + r * row)).part[0];
            for (int v = 0; v < vectors; v++)
                sums[r][v] = words_multiply_add_vector(sums[r][v], left, right[v]);
        }
    }
}

#define PANEL_JOIN(name, isa)   name##_##isa
#define PANEL_EXPAND(name, isa) PANEL_JOIN(name, isa)
#define PANEL(name)             PANEL_EXPAND(coh_panel_##name, COH_ISA)

/* Returns the words of a row of `depth` elements, including the zeros at its end. */
LANES_INLINE int64_t block_words(int64_t depth)
{
    const int64_t elements = WORD_ELEMENTS * DEPTH_WORDS;
    return (depth + elements - 1) / elements * DEPTH_WORDS;
}

/* ---- panel_pack.c ---- */

/* Packs elements [k0, k0 + depth) of op(b)'s columns [j0, j0 + columns) as [words][PANEL_COLUMNS],
 * padded with zeros. */
void PANEL(pack_b)(const coh_tile *tile, int64_t k0, int64_t depth, int64_t j0, int64_t columns,
                   word *panel);

/* Packs elements [k0, k0 + depth) of op(a)'s rows [i0, i0 + rows). If untransposed, and for AMX:
 * rows of words, `stride` words apart; it may write sixteen of them at a time. If transposed: in
 * blocks as block_begin cuts them, [words][BLOCK_ROWS] each, stride * BLOCK_ROWS apart. */
void PANEL(pack_a)(const coh_tile *tile, int64_t k0, int64_t depth, int64_t i0, int64_t rows,
                   word *packed, int64_t stride);

/* Cuts `rows` rows into blocks of at most BLOCK_ROWS: where block `index` of `count` begins. Their
 * sizes are as equal as possible, except for AMX, where each new size needs the tiles to be
 * configured. */
LANES_INLINE int64_t block_count(int64_t rows)
{
    return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

LANES_INLINE int64_t block_begin(int64_t rows, int64_t index)
{
    if (DEPTH_WORDS > 1)
        return index * BLOCK_ROWS < rows ? index * BLOCK_ROWS : rows;
    return index * rows / block_count(rows);
}

/* ---- panel_finish.c ---- */

/* The destination of the sums of a block of rows and a panel's columns. */
typedef struct panel_place {
    const coh_tile *tile;
    float *partial; /* sums of the depth so far; c itself if c is f32 */
    int64_t partial_stride;
    int64_t i0, j0;      /* the element of c at which partial begins */
    int32_t first, last; /* 1: this block of depth is */
} panel_place;

/* Loads the bias of columns [j, j + columns), followed by zeros; zeros if there is none. */
void PANEL(bias)(const coh_tile *tile, int64_t j, int64_t columns, float *row);

/* block [rows][PANEL_COLUMNS] = the initial sums of c's rows from i and columns [j, j + columns):
 * earlier sums, or bias, residual and c. */
void PANEL(begin)(const panel_place *place, int64_t i, int64_t rows, int64_t j, int64_t columns,
                  const float *bias_row, float *block);

/* Stores the sums of such a block. */
void PANEL(put)(const panel_place *place, const float *block, int64_t i, int64_t rows, int64_t j,
                int64_t columns);

/* Computes `activated` from the stored c. */
void PANEL(activate)(const coh_tile *tile, int64_t i, int64_t rows, int64_t j, int64_t columns);

/* ---- panel_thin.c ---- */

/* x weight^T for up to COH_THIN_ROWS rows of x. Nothing is packed, because each weight is read only
 * once. */
void PANEL(thin)(const coh_tile *tile);

#endif
