/* The products of block.h in registers, and the packing of blocks into its three forms. Only
 * attention uses them; whole matrices go through panel.c. Next: block.h, words.h. */
#include "kernels/cpu/isa/block.h"

#include "kernels/cpu/isa/transpose.h"

/* `into` and the numbers of rows and vectors are compile-time constants. */
LANES_INLINE void put_sums(const block_product *p, int64_t i, int64_t j, int rows, int vectors,
                           row_of_sums *sums, block_into into)
{
    const int64_t stride = p->c_stride;
    float *c = p->c + i * stride + j;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++, c += stride)
        for (int v = 0; v < vectors; v++) {
            float *to = c + v * COH_VECTOR_FLOATS;
            if (into == BLOCK_ADD)
                sums[r][v] += vector_load(to);
            else if (into == BLOCK_SHRINK)
                sums[r][v] += vector_all(p->factors[i + r]) * vector_load(to);
            vector_store(to, sums[r][v]);
        }
}

LANES_INLINE void multiply_block(const block_product *p, int64_t i, int64_t j, int rows,
                                 int vectors)
{
    row_of_sums sums[BLOCK_ROWS] = { 0 };
    words_multiply_block(sums, rows, vectors, (const char *)(p->a + i * p->a_row),
                         p->a_row * (int64_t)sizeof(float), p->a_depth * (int64_t)sizeof(float),
                         p->b + j, p->b_stride, p->depth);
    if (p->into == BLOCK_SET)
        put_sums(p, i, j, rows, vectors, sums, BLOCK_SET);
    else if (p->into == BLOCK_ADD)
        put_sums(p, i, j, rows, vectors, sums, BLOCK_ADD);
    else
        put_sums(p, i, j, rows, vectors, sums, BLOCK_SHRINK);
}

/* Multiplies all columns of `rows` rows, a compile-time constant. */
LANES_INLINE void multiply_rows(const block_product *p, int64_t i, int rows)
{
    int64_t j = 0;
    for (; j + PANEL_COLUMNS <= p->columns; j += PANEL_COLUMNS)
        multiply_block(p, i, j, rows, PANEL_VECTORS);
    for (; j < p->columns; j += COH_LANES)
        multiply_block(p, i, j, rows, COH_VECTORS);
}

/* Rounds rows up to a multiple of four and takes blocks of BLOCK_ROWS; the remainder is even. */
void block_multiply(const block_product *p)
{
    const int64_t rows = block_round(p->rows, 4);
    int64_t i = 0;
    for (; i + BLOCK_ROWS <= rows; i += BLOCK_ROWS)
        multiply_rows(p, i, BLOCK_ROWS);
#if BLOCK_ROWS == 12
    if (i + 8 <= rows) {
        multiply_rows(p, i, 8);
        i += 8;
    }
#endif
#if BLOCK_ROWS > 4
    if (i + 4 <= rows) {
        multiply_rows(p, i, 4);
        i += 4;
    }
#endif
    for (; i < rows; i += 2)
        multiply_rows(p, i, 2);
}

/* ---- packing ---- */

#if WORD_ELEMENTS == 2
static void take_row(float *to, const block_source *source, int64_t row)
{
    const uint16_t *from = (const uint16_t *)source->from + row * source->from_stride;
    const size_t bytes = (size_t)source->count * sizeof(*from);
    if (bytes == 128) /* heads of 64 channels */
        memcpy(to, from, 128);
    else
        memcpy(to, from, bytes);
}
#else
static void take_row(float *to, const block_source *source, int64_t row)
{
    const int64_t count = source->count;
    if (source->dtype == COH_DTYPE_F32) {
        memcpy(to, (const float *)source->from + row * source->from_stride,
               (size_t)count * sizeof(float));
        return;
    }
    const uint16_t *from = (const uint16_t *)source->from + row * source->from_stride;
    EACH_LANES(j, n, count, lanes_give(to + j, n, halves_take(from + j, n, 0.0f)));
}
#endif

void block_rows(float *to, int64_t to_stride, int64_t padded_rows, const block_source *source)
{
    const int64_t whole = source->count / WORD_ELEMENTS;
    const size_t rest = (size_t)(to_stride - whole) * sizeof(float);
    for (int64_t i = 0; i < source->rows; i++) {
        if (rest > 0)
            memset(to + i * to_stride + whole, 0, rest);
        take_row(to + i * to_stride, source, i);
    }
    if (padded_rows > source->rows)
        memset(to + source->rows * to_stride, 0,
               (size_t)((padded_rows - source->rows) * to_stride) * sizeof(float));
}

void block_across(float *to, int64_t to_stride, const float *from, int64_t rows, int64_t words)
{
    for (int64_t i = 0; i < rows; i += TRANSPOSE_WORDS)
        for (int64_t k = 0; k < words; k += TRANSPOSE_WORDS)
            transpose(from + i * words + k, words * (int64_t)sizeof(float), COH_DTYPE_F32,
                      to + k * to_stride + i, to_stride);
}

void block_dots(float *to, const float *a, const float *b, int64_t rows, int64_t words)
{
    float parts[COH_LANES * COH_LANES], across[COH_LANES * COH_LANES];
    for (int64_t i = 0; i < rows; i += COH_LANES) {
        for (int r = 0; r < COH_LANES; r++) {
            const int64_t at = (i + r) * words;
            lanes sum = lanes_all(0.0f);
            for (int64_t k = 0; k < words; k += COH_LANES)
                sum = words_multiply_add(sum, lanes_load(a + at + k), lanes_load(b + at + k));
            lanes_store(parts + r * COH_LANES, sum);
        }
        block_across(across, COH_LANES, parts, COH_LANES, COH_LANES);
        lanes sum = lanes_load(across);
        for (int k = 1; k < COH_LANES; k++)
            sum = lanes_add(sum, lanes_load(across + k * COH_LANES));
        lanes_store(to + i, sum);
    }
}

const float *block_deep(float *to, const float *from, int64_t rows, int64_t words, int64_t width)
{
#if WORD_ELEMENTS == 2
    for (int64_t i = 0; i < rows; i += 2, to += width)
        for (int64_t j = 0; j < width; j += 16) {
            const uint16_t *even = (const uint16_t *)(from + i * words) + j;
            const uint16_t *odd = (const uint16_t *)(from + (i + 1) * words) + j;
            const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)even));
            const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)odd));
            _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    return to - rows / 2 * width;
#else
    (void)to;
    (void)rows;
    (void)words;
    (void)width;
    return from;
#endif
}

/* Adds or stores `count` <= 16 elements. */
LANES_INLINE void put_lanes(coh_dtype dtype, void *to, const float *from, lanes factor,
                            int64_t count, int adds)
{
    const lanes x = lanes_multiply(factor, lanes_take(from, count, 0.0f));
    if (dtype == COH_DTYPE_F32)
        lanes_give(to, count, adds ? lanes_add(lanes_take(to, count, 0.0f), x) : x);
    else
        halves_give(to, count, adds ? lanes_add(halves_take(to, count, 0.0f), x) : x);
}

void block_put(coh_dtype dtype, void *to, const float *from, float factor, int64_t count, int adds)
{
    const size_t bytes = dtype == COH_DTYPE_BF16 ? 2 : 4;
    const lanes factors = lanes_all(factor);
    EACH_LANES(j, n, count,
               put_lanes(dtype, (char *)to + (size_t)j * bytes, from + j, factors, n, adds));
}
