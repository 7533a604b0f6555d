/* The inner loops of our matrix product: packed panels times rows of a, with sums in registers or
 * AMX tiles. Compiled once per instruction set. Next: kernels/cpu/panel.h, words.h; panel_pack.c
 * packs, panel_finish.c begins and ends sums. */
#include "kernels/cpu/panel.h"

#include "kernels/cpu/isa/words.h"
#include "kernels/cpu/smaller.h"

/* Words of a, addressed in bytes: the rows of a block are `row` apart, the words of a row
 * `step`. */
typedef struct left {
    const char *from;
    int64_t row, step;
} left;

/* The initial values of a block's sums: floats whose rows are `begin_row` apart (0: one row for
 * all). And their destination: f32 or, narrowed, bf16, in rows that are `to_row` bytes apart. */
typedef struct ends {
    const float *begin;
    int64_t begin_row;
    char *to;
    int64_t to_row;
    int32_t narrows;
} ends;

#if defined(__AMX_BF16__)

#define TILE_ROWS 16

/* gcc 12 believes that LDTILECFG reads 8 bytes and TILELOADD none. The barrier forces their data to
 * be stored first. */
#define BARRIER __asm__ volatile("" ::: "memory")

/* Tiles 0 to 3 sum the quarters of a block of c; 4 and 5 hold the upper and the lower rows of a, 6
 * and 7 the left and the right columns of the panel (Intel 64 manual, LDTILECFG). */
static void rows_configure(int64_t rows)
{
    const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {
        .palette = 1,
        .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
#define UPPER (uint8_t)(rows < TILE_ROWS ? rows : TILE_ROWS)
#define LOWER (uint8_t)(rows > TILE_ROWS ? rows - TILE_ROWS : TILE_ROWS)
        .rows = { UPPER, UPPER, LOWER, LOWER, UPPER, LOWER, TILE_ROWS, TILE_ROWS },
#undef UPPER
#undef LOWER
    };
    BARRIER;
    _tile_loadconfig(&config);
}

static void rows_release(void)
{
    _tile_release();
}

/* Multiplies at most TILE_ROWS rows of a by the panel. */
static void multiply_upper(const left *a, const word *panel, int64_t words, const char *begin,
                           int64_t begin_row, char *to, int64_t to_row)
{
    const char *from = a->from;
    BARRIER;
    _tile_loadd(0, begin, begin_row);
    _tile_loadd(1, begin + 64, begin_row);
    for (int64_t k = 0; k < words; k += DEPTH_WORDS) {
        _tile_loadd(6, panel + k * PANEL_COLUMNS, PANEL_COLUMNS * sizeof(word));
        _tile_loadd(4, from + k * (int64_t)sizeof(word), a->row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + k * PANEL_COLUMNS + TILE_ROWS, PANEL_COLUMNS * sizeof(word));
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, to, to_row);
    _tile_stored(1, to + 64, to_row);
}

/* Multiplies more than TILE_ROWS rows. */
static void multiply_both(const left *a, const word *panel, int64_t words, const char *begin,
                          int64_t begin_row, char *to, int64_t to_row)
{
    const char *upper = a->from, *lower = a->from + TILE_ROWS * a->row;
    const char *begin_lower = begin + TILE_ROWS * begin_row;
    char *to_lower = to + TILE_ROWS * to_row;
    BARRIER;
    _tile_loadd(0, begin, begin_row);
    _tile_loadd(1, begin + 64, begin_row);
    _tile_loadd(2, begin_lower, begin_row);
    _tile_loadd(3, begin_lower + 64, begin_row);
    for (int64_t k = 0; k < words; k += DEPTH_WORDS) {
        _tile_loadd(6, panel + k * PANEL_COLUMNS, PANEL_COLUMNS * sizeof(word));
        _tile_loadd(4, upper + k * (int64_t)sizeof(word), a->row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, lower + k * (int64_t)sizeof(word), a->row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_loadd(7, panel + k * PANEL_COLUMNS + TILE_ROWS, PANEL_COLUMNS * sizeof(word));
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, to_row);
    _tile_stored(1, to + 64, to_row);
    _tile_stored(2, to_lower, to_row);
    _tile_stored(3, to_lower + 64, to_row);
}

static void multiply_block(const left *a, const word *panel, int64_t words, int64_t rows,
                           const ends *e)
{
    float sums[BLOCK_ROWS * PANEL_COLUMNS] __attribute__((aligned(64)));
    char *to = e->narrows ? (char *)sums : e->to;
    const int64_t to_row = e->narrows ? PANEL_COLUMNS * (int64_t)sizeof(float) : e->to_row;
    const int64_t begin_row = e->begin_row * (int64_t)sizeof(float);
    if (rows > TILE_ROWS)
        multiply_both(a, panel, words, (const char *)e->begin, begin_row, to, to_row);
    else
        multiply_upper(a, panel, words, (const char *)e->begin, begin_row, to, to_row);
    for (int64_t r = 0; e->narrows && r < rows; r++)
        for (int64_t c = 0; c < PANEL_COLUMNS; c += COH_LANES) {
            const __m256bh half = _mm512_cvtneps_pbh(_mm512_load_ps(sums + r * PANEL_COLUMNS + c));
            memcpy(e->to + r * e->to_row + c * (int64_t)sizeof(uint16_t), &half, sizeof(half));
        }
}

#else

static void rows_configure(int64_t rows)
{
    (void)rows;
}

static void rows_release(void)
{
}

LANES_INLINE void store_narrowed(const ends *e, int rows, row_of_sums *sum)
{
#if defined(__AVX512BF16__)
    /* The instruction rounds as lanes_narrow does, except that it flushes subnormals. A sum that
     * comes from vdpbf16ps is never subnormal. */
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++) {
            const __m256bh half = _mm512_cvtneps_pbh((__m512)sum[r][v]);
            memcpy(e->to + r * e->to_row + v * (int)sizeof(half), &half, sizeof(half));
        }
#else
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < PANEL_LANES; c++) {
            lanes x;
            for (int k = 0; k < COH_VECTORS; k++)
                x.part[k] = sum[r][c * COH_VECTORS + k];
            lanes_narrow((uint16_t *)(e->to + r * e->to_row) + c * COH_LANES, x);
        }
#endif
}

/* Multiplies rows of a by the panel. */
LANES_INLINE void multiply(const left *a, const word *panel, int64_t words, int rows, const ends *e)
{
    row_of_sums sum[BLOCK_ROWS];
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++)
            memcpy(&sum[r][v], e->begin + r * e->begin_row + v * COH_VECTOR_FLOATS,
                   sizeof(sum[r][v]));
    words_multiply_block(sum, rows, PANEL_VECTORS, a->from, a->row, a->step, panel, PANEL_COLUMNS,
                         words);
    if (e->narrows) {
        store_narrowed(e, rows, sum);
        return;
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < PANEL_VECTORS; v++)
            memcpy((float *)(e->to + r * e->to_row) + v * COH_VECTOR_FLOATS, &sum[r][v],
                   sizeof(sum[r][v]));
}

/* The number of rows must be a constant so that the sums stay in registers. */
typedef void multiply_rows(const left *a, const word *panel, int64_t words, const ends *e);

#define MULTIPLY_ROWS(rows)                                                                        \
    static void multiply_##rows(const left *a, const word *panel, int64_t words, const ends *e)    \
    {                                                                                              \
        multiply(a, panel, words, rows, e);                                                        \
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

static void multiply_block(const left *a, const word *panel, int64_t words, int64_t rows,
                           const ends *e)
{
    multiply_by_rows[rows](a, panel, words, e);
}

#endif

/* One block of depth of a part of a tile. */
typedef struct depth_block {
    const coh_tile *tile;
    int64_t part; /* the depth of every block but the last */
    int64_t i0, rows, j0, columns, k0, depth;
    panel_place place;
    int packs;
    int64_t packed_stride;
    int64_t group_columns; /* columns of the panels that are packed at a time */
} depth_block;

/* Must a be packed? Its words do not exist in memory if the operand is transposed, if bf16 must be
 * widened, or if the depth ends with half a pair or needs zeros. All other operands are read in
 * place. Even rows that are a multiple of 4 KiB apart, twelve of which do not fit a set of the
 * first-level cache, cost 5 %, less than copying them. */
static int must_pack(const coh_tile *t)
{
    return t->a_transposed || (t->dtype == COH_DTYPE_BF16 && WORD_ELEMENTS == 1) ||
           t->depth % (WORD_ELEMENTS * DEPTH_WORDS) != 0;
}

/* Returns the place of the words of block `index` of a's rows; *out_rows is their number. */
static left left_of(const depth_block *d, const word *packed, int64_t index, int64_t *out_rows)
{
    const coh_tile *t = d->tile;
    const int64_t begin = block_begin(d->rows, index), bytes = coh_tile_element_bytes(t->dtype);
    *out_rows = block_begin(d->rows, index + 1) - begin;
    if (!d->packs)
        return (left){ (const char *)t->a + ((d->i0 + begin) * t->a_stride + d->k0) * bytes,
                       t->a_stride * bytes, sizeof(word) };
    if (t->a_transposed && DEPTH_WORDS == 1)
        return (left){ (const char *)(packed + index * BLOCK_ROWS * d->packed_stride), sizeof(word),
                       BLOCK_ROWS * sizeof(word) };
    return (left){ (const char *)(packed + begin * d->packed_stride),
                   d->packed_stride * (int64_t)sizeof(word), sizeof(word) };
}

/* Prefetches part `index` of `count` of the source of the next group of panels, columns from j on,
 * while the sums keep the memory idle. Otherwise packing would wait for it line by line. */
static void fetch_next(const depth_block *d, int64_t j, int64_t index, int64_t count)
{
    const coh_tile *t = d->tile;
    const int64_t bytes = coh_tile_element_bytes(t->dtype), row = t->b_stride * bytes;
    const int64_t columns = smaller(d->j0 + d->columns - j, d->group_columns);
    const int64_t rows = t->b_transposed ? columns : d->depth;
    const int64_t line = (t->b_transposed ? d->depth : columns) * bytes;
    const char *from =
        (const char *)t->b + (t->b_transposed ? j * row + d->k0 * bytes : d->k0 * row + j * bytes);
    for (int64_t r = rows * index / count; r < rows * (index + 1) / count; r++)
        for (int64_t at = 0; at < line; at += 64)
            __builtin_prefetch(from + r * row + at, 0, 2);
}

/* Prefetches the lines of c with which the block after these rows begins, or to which it is
 * stored. */
static void fetch_place(const depth_block *d, int64_t i, int64_t rows, int64_t j, int64_t columns)
{
    const coh_tile *t = d->place.tile;
    const int64_t bytes = coh_tile_element_bytes(t->c_dtype);
    const char *to = (const char *)t->c + (i * t->c_stride + j) * bytes;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t at = 0; at < columns * bytes; at += 64)
            __builtin_prefetch(to + r * t->c_stride * bytes + at, 1, 3);
}

/* Returns where a block's sums begin and end. Sums of whole panels use c directly, or the partial
 * sums. Others, and those with more than one thing to add, go through `block`
 * [BLOCK_ROWS][PANEL_COLUMNS]. bias_row: the panel's part of the bias, or zeros. */
static ends ends_of(const depth_block *d, int64_t i, int64_t rows, int64_t j, int64_t columns,
                    const float *bias_row, float *block)
{
    const panel_place *p = &d->place;
    const coh_tile *t = p->tile;
    const int64_t at = i * t->c_stride + j;
    const int whole = columns == PANEL_COLUMNS;
    float *partial = p->partial + (i - p->i0) * p->partial_stride + (j - p->j0);
    ends e = { block, PANEL_COLUMNS, (char *)block, PANEL_COLUMNS * sizeof(float), 0 };
    if (p->first && t->residual == NULL && !t->adds) {
        e.begin = bias_row;
        e.begin_row = 0;
    } else if (!p->first && whole) {
        e.begin = partial;
        e.begin_row = p->partial_stride;
    } else if (whole && t->adds && t->c_dtype == COH_DTYPE_F32 && t->bias == NULL &&
               t->residual == NULL) {
        e.begin = (const float *)t->c + at;
        e.begin_row = t->c_stride;
    } else {
        PANEL(begin)(p, i, rows, j, columns, bias_row, block);
    }
    if (whole && !p->last) {
        e.to = (char *)partial;
        e.to_row = p->partial_stride * (int64_t)sizeof(float);
    } else if (whole) {
        e.to = (char *)t->c + at * coh_tile_element_bytes(t->c_dtype);
        e.to_row = t->c_stride * coh_tile_element_bytes(t->c_dtype);
        e.narrows = t->c_dtype == COH_DTYPE_BF16;
    }
    return e;
}

/* Multiplies one block of a's rows by one panel: columns [j, j + columns) of c. */
static void run_block(const depth_block *d, const left *a, int64_t index, int64_t rows,
                      const word *panel, int64_t j, int64_t columns, const float *bias_row)
{
    float block[BLOCK_ROWS * PANEL_COLUMNS] __attribute__((aligned(64)));
    const int64_t words = block_words(d->depth);
    const int64_t i = d->i0 + block_begin(d->rows, index);
    const ends e = ends_of(d, i, rows, j, columns, bias_row, block);
    if (index + 1 < block_count(d->rows))
        fetch_place(d, i + rows,
                    block_begin(d->rows, smaller(index + 2, block_count(d->rows))) -
                        block_begin(d->rows, index + 1),
                    j, columns);
    multiply_block(a, panel, words, rows, &e);
    if (columns < PANEL_COLUMNS)
        PANEL(put)(&d->place, block, i, rows, j, columns);
    if (d->tile->activated != NULL && d->place.last)
        PANEL(activate)(d->tile, i, rows, j, columns);
}

/* Packs a group of panels side by side and passes all of a's rows over them once. */
static void run_group(const depth_block *d, const word *packed, word *panels, int64_t j,
                      int64_t columns)
{
    float bias_rows[GROUP_PANELS * PANEL_COLUMNS] __attribute__((aligned(64)));
    const int64_t words = block_words(d->depth);
    const int64_t blocks = block_count(d->rows);
    for (int64_t c = 0; c < columns; c += PANEL_COLUMNS) {
        const int64_t there = smaller(columns - c, PANEL_COLUMNS);
        PANEL(pack_b)(d->tile, d->k0, d->depth, j + c, there, panels + c * words);
        PANEL(bias)(d->tile, j + c, there, bias_rows + c);
    }
    for (int64_t index = 0; index < blocks; index++) {
        int64_t rows;
        const left a = left_of(d, packed, index, &rows);
        fetch_next(d, j + columns, index, blocks);
        if (index == 0 || index + 1 == blocks) /* only the last may have fewer rows */
            rows_configure(rows);
        for (int64_t c = 0; c < columns; c += PANEL_COLUMNS)
            run_block(d, &a, index, rows, panels + c * words, j + c,
                      smaller(columns - c, PANEL_COLUMNS), bias_rows + c);
    }
}

static void run_depth_block(const depth_block *d)
{
    word packed[PACKED_WORDS] __attribute__((aligned(64)));
    word panels[GROUP_WORDS * PANEL_COLUMNS] __attribute__((aligned(64)));
    if (d->packs)
        PANEL(pack_a)(d->tile, d->k0, d->depth, d->i0, d->rows, packed, d->packed_stride);
    for (int64_t j = 0; j < d->columns; j += d->group_columns)
        run_group(d, packed, panels, d->j0 + j, smaller(d->columns - j, d->group_columns));
}

/* Returns the depth of a block: equal parts of at most COH_PANEL_WORDS words, multiples of 16
 * words. */
static int64_t depth_part(int64_t depth)
{
    const int64_t words = (depth + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
    const int64_t parts = (words + COH_PANEL_WORDS - 1) / COH_PANEL_WORDS;
    return ((words + parts - 1) / parts + 15) / 16 * 16 * WORD_ELEMENTS;
}

static void run_part(depth_block *d)
{
    const int64_t depth = d->tile->depth, part = d->part;
    for (d->k0 = 0; d->k0 < depth; d->k0 += part) {
        d->depth = depth - d->k0 < part ? depth - d->k0 : part;
        d->place.first = d->k0 == 0;
        d->place.last = d->k0 + d->depth == depth;
        run_depth_block(d);
    }
}

/* Partial sums that c cannot hold because it is bf16; they are kept here for a part of the tile at
 * a time. */
#define ASIDE_FLOATS (1024 * 96)

static void run_part_aside(depth_block *d)
{
    float partial[ASIDE_FLOATS];
    const int64_t most = ASIDE_FLOATS / d->rows / PANEL_COLUMNS * PANEL_COLUMNS;
    const int64_t end = d->tile->columns;
    for (d->j0 = 0; d->j0 < end; d->j0 += most) {
        d->columns = end - d->j0 < most ? end - d->j0 : most;
        d->place.partial = partial;
        d->place.partial_stride = d->columns;
        d->place.i0 = d->i0;
        d->place.j0 = d->j0;
        run_part(d);
    }
    d->place.partial = NULL;
}

/* Cuts `rows` into equal parts of at most `most`, multiples of BLOCK_ROWS. */
static int64_t equal_part(int64_t rows, int64_t most)
{
    const int64_t parts = (rows + most - 1) / most;
    return ((rows + parts - 1) / parts + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
}

void PANEL(run)(const coh_tile *tile)
{
    if (tile->rows <= COH_THIN_ROWS && tile->b_transposed && !tile->a_transposed) {
        PANEL(thin)(tile);
        return;
    }
    const int packs = must_pack(tile);
    const int64_t part = depth_part(tile->depth);
    const int aside = tile->c_dtype != COH_DTYPE_F32 && part < tile->depth;
    depth_block d = {
        .tile = tile,
        .part = part,
        .columns = tile->columns,
        .place = { .tile = tile, .partial = tile->c, .partial_stride = tile->c_stride },
        .packs = packs,
        .packed_stride = part / WORD_ELEMENTS + PACKED_GAP,
        .group_columns = smaller(GROUP_WORDS / (part / WORD_ELEMENTS), GROUP_PANELS) * PANEL_COLUMNS
    };
    int64_t most = tile->rows;
    if (d.packs)
        most = smaller(most, PACKED_WORDS / d.packed_stride / BLOCK_ROWS * BLOCK_ROWS);
    if (aside)
        most = smaller(most, ASIDE_FLOATS / PANEL_COLUMNS);
    most = equal_part(tile->rows, most);
    for (d.i0 = 0; d.i0 < tile->rows; d.i0 += most) {
        d.rows = smaller(most, tile->rows - d.i0);
        if (aside)
            run_part_aside(&d);
        else
            run_part(&d);
    }
    rows_release();
}
