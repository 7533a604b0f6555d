#include "kernels/cpu/panel.h"

#include "kernels/cpu/isa/words.h"

/* Words of a, as bytes: the rows of a block are `row` apart, the words of a row `step`. */
typedef struct left {
    const char *from;
    int64_t row, step;
} left;

/* sums[rows][PANEL_COLUMNS] = rows of a times the panel. */
LANES_INLINE void multiply(const left *a, const word *panel, int64_t words, int rows, float *sums)
{
    lanes sum[BLOCK_ROWS][PANEL_LANES];
    const char *from = a->from;
    const int64_t row = a->row, step = a->step;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < PANEL_LANES; c++)
            sum[r][c] = lanes_all(0.0f);
    for (int64_t k = 0; k < words; k++) {
        lanes b[PANEL_LANES];
        for (int c = 0; c < PANEL_LANES; c++)
            memcpy(&b[c], panel + k * PANEL_COLUMNS + c * COH_LANES, sizeof(b[c]));
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const lanes factor = words_all(*(const word_anywhere *)(from + r * row));
            for (int c = 0; c < PANEL_LANES; c++)
                sum[r][c] = words_multiply_add(sum[r][c], factor, b[c]);
        }
        from += step;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < PANEL_LANES; c++)
            lanes_store(sums + r * PANEL_COLUMNS + c * COH_LANES, sum[r][c]);
}

/* The number of rows must be a constant for the sums to stay in registers. */
typedef void multiply_rows(const left *a, const word *panel, int64_t words, float *sums);

#define MULTIPLY_ROWS(rows)                                                                        \
    static void multiply_##rows(const left *a, const word *panel, int64_t words, float *sums)      \
    {                                                                                              \
        multiply(a, panel, words, rows, sums);                                                     \
    }
#if BLOCK_ROWS == 12
#define EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif BLOCK_ROWS == 6
#define EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH_ROWS(X) X(1) X(2)
#endif
EACH_ROWS(MULTIPLY_ROWS)
#define MULTIPLY_NAME(rows) multiply_##rows,
static multiply_rows *const multiply_by_rows[] = { NULL, EACH_ROWS(MULTIPLY_NAME) };

/* One block of depth of some rows of a tile. */
typedef struct depth_block {
    const coh_tile *tile;
    int64_t i0, rows, j0, columns, k0, depth;
    panel_place place;
    int packs;
} depth_block;

/* What a packed copy of a is for: words that are not there in memory (a transposed operand, bf16 to
 * be widened, half a pair at the end), and rows that are a multiple of half the first-level cache's
 * way apart, of which twelve do not stay there together. */
static int must_pack(const coh_tile *t)
{
    return t->a_transposed || (t->dtype == COH_DTYPE_BF16 && WORD_ELEMENTS == 1) ||
           t->depth % WORD_ELEMENTS != 0 ||
           t->a_stride * coh_tile_element_bytes(t->dtype) % 2048 == 0;
}

/* Where the words of block `index` of a's rows are; *out_rows of them. */
static left left_of(const depth_block *d, const word *packed, int64_t index, int64_t *out_rows)
{
    const coh_tile *t = d->tile;
    const int64_t begin = block_begin(d->rows, index), bytes = coh_tile_element_bytes(t->dtype);
    *out_rows = block_begin(d->rows, index + 1) - begin;
    if (!d->packs)
        return (left){ (const char *)t->a + ((d->i0 + begin) * t->a_stride + d->k0) * bytes,
                       t->a_stride * bytes, sizeof(word) };
    if (t->a_transposed)
        return (left){ (const char *)(packed + index * BLOCK_ROWS * PACKED_STRIDE), sizeof(word),
                       BLOCK_ROWS * sizeof(word) };
    return (left){ (const char *)(packed + begin * PACKED_STRIDE), PACKED_STRIDE * sizeof(word),
                   sizeof(word) };
}

static void run_depth_block(const depth_block *d)
{
    word packed[(PACKED_ROWS + BLOCK_ROWS) * PACKED_STRIDE] __attribute__((aligned(64)));
    word panel[PANEL_WORDS * PANEL_COLUMNS] __attribute__((aligned(64)));
    float sums[BLOCK_ROWS * PANEL_COLUMNS] __attribute__((aligned(64)));
    const int64_t words = (d->depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    if (d->packs)
        PANEL(pack_a)(d->tile, d->k0, d->depth, d->i0, d->rows, packed);
    for (int64_t j = d->j0; j < d->j0 + d->columns; j += PANEL_COLUMNS) {
        const int64_t rest = d->j0 + d->columns - j;
        const int64_t columns = rest < PANEL_COLUMNS ? rest : PANEL_COLUMNS;
        PANEL(pack_b)(d->tile, d->k0, d->depth, j, columns, panel);
        for (int64_t index = 0; index < block_count(d->rows); index++) {
            int64_t rows;
            const left a = left_of(d, packed, index, &rows);
            multiply_by_rows[rows](&a, panel, words, sums);
            PANEL(finish)(&d->place, sums, d->i0 + block_begin(d->rows, index), rows, j, columns);
        }
    }
}

/* Depth of a block: equal parts of at most PANEL_WORDS words, multiples of 16 words. */
static int64_t depth_part(int64_t depth)
{
    const int64_t words = (depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    const int64_t parts = (words + PANEL_WORDS - 1) / PANEL_WORDS;
    return ((words + parts - 1) / parts + 15) / 16 * 16 * WORD_ELEMENTS;
}

static void run_rows(depth_block *d)
{
    const int64_t depth = d->tile->depth, part = depth_part(depth);
    for (d->k0 = 0; d->k0 < depth; d->k0 += part) {
        d->depth = depth - d->k0 < part ? depth - d->k0 : part;
        d->place.first = d->k0 == 0;
        d->place.last = d->k0 + d->depth == depth;
        run_depth_block(d);
    }
}

/* c cannot hold the partial sums where it is bf16: they get a place of their own, columns by
 * columns. */
#define PARTIAL_COLUMNS 256
static void run_rows_aside(depth_block *d)
{
    float partial[PACKED_ROWS * PARTIAL_COLUMNS];
    const int64_t columns = d->tile->columns;
    for (d->j0 = 0; d->j0 < columns; d->j0 += PARTIAL_COLUMNS) {
        d->columns = columns - d->j0 < PARTIAL_COLUMNS ? columns - d->j0 : PARTIAL_COLUMNS;
        d->place.partial = partial;
        d->place.partial_stride = PARTIAL_COLUMNS;
        d->place.i0 = d->i0;
        d->place.j0 = d->j0;
        run_rows(d);
    }
}

void PANEL(run)(const coh_tile *tile)
{
    if (tile->rows <= THIN_ROWS && tile->b_transposed && !tile->a_transposed) {
        PANEL(thin)(tile);
        return;
    }
    depth_block d = {
        .tile = tile,
        .columns = tile->columns,
        .place = { .tile = tile, .partial = tile->c, .partial_stride = tile->c_stride },
        .packs = must_pack(tile)
    };
    const int aside = tile->c_dtype != COH_DTYPE_F32 && depth_part(tile->depth) < tile->depth;
    for (d.i0 = 0; d.i0 < tile->rows; d.i0 += PACKED_ROWS) {
        d.rows = tile->rows - d.i0 < PACKED_ROWS ? tile->rows - d.i0 : PACKED_ROWS;
        if (aside)
            run_rows_aside(&d);
        else
            run_rows(&d);
    }
}
