/* block.h - matrix products of blocks that fit the caches, over packed words of 32 bits.
 *
 * A word is a float or, if the CPU multiplies bf16, a pair of bf16 that are neighbours in depth
 * (vdpbf16ps multiplies both and adds the two products to an f32 sum). The product is the same loop
 * for either word: for each word of depth, one word of `a` is broadcast and multiplied into a row
 * of `b`, in registers that hold up to BLOCK_ROWS by PANEL_COLUMNS of c (words.h):
 *
 *                    b   k | b b b b ... |      a is stored in either order, in words:
 *                          +-------------+        a_row = stride, a_depth = 1   rows
 *             a    i | a   |             |        a_row = 1, a_depth = stride   across
 *                    | a   |    c [i,j]  |
 *                    k     +-------------+
 *
 * Tensors are packed into three forms, with zeros where the block is larger than the tensor:
 *    rows    [row][depth words]          as stored
 *    across  [depth words][row]          rows, transposed word by word
 *    deep    [row words][column]         for sums over rows: pairs of neighbouring rows; for
 *                                        floats it is the rows themselves
 *
 * Words are kept as floats, whatever their bits mean. Included only by files that are compiled once
 * per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_BLOCK_H
#define COH_KERNELS_CPU_ISA_BLOCK_H

#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/words.h"

/* The new value of c: the product, c + product, or factors[row] * c + product. */
typedef enum block_into { BLOCK_SET, BLOCK_ADD, BLOCK_SHRINK } block_into;

typedef struct block_product {
    int64_t rows;    /* of c; a and c have room up to the next multiple of four */
    int64_t columns; /* a multiple of sixteen */
    int64_t depth;   /* words */
    const float *a, *b;
    int64_t a_row, a_depth, b_stride;
    float *c;
    int64_t c_stride;
    block_into into;
    const float *factors;
} block_product;

#define block_multiply COH_ISA_EXPAND(coh_block_multiply, COH_ISA)
#define block_rows     COH_ISA_EXPAND(coh_block_rows, COH_ISA)
#define block_across   COH_ISA_EXPAND(coh_block_across, COH_ISA)
#define block_deep     COH_ISA_EXPAND(coh_block_deep, COH_ISA)
#define block_dots     COH_ISA_EXPAND(coh_block_dots, COH_ISA)
#define block_put      COH_ISA_EXPAND(coh_block_put, COH_ISA)

void block_multiply(const block_product *product);

/* Packs to [padded rows][to_stride] = rows of `count` elements of a tensor; from_stride in
 * elements. Rows from `rows` on and columns from `count` on are zeros. */
typedef struct block_source {
    coh_dtype dtype;
    const void *from;
    int64_t from_stride, rows, count;
} block_source;
void block_rows(float *to, int64_t to_stride, int64_t padded_rows, const block_source *source);

/* to [words][rows] = from [rows][words]; both counts are multiples of sixteen. */
void block_across(float *to, int64_t to_stride, const float *from, int64_t rows, int64_t words);

/* Makes the deep form of from [rows][words], rows a multiple of two, `width` columns (a multiple of
 * sixteen). Returns `to`, or `from` itself if a word is one element. */
const float *block_deep(float *to, const float *from, int64_t rows, int64_t words, int64_t width);

/* to [rows] = the dot product of a row of a and the same row of b; rows and words are multiples of
 * sixteen. */
void block_dots(float *to, const float *a, const float *b, int64_t rows, int64_t words);

/* A row of a tensor (= or +=) factor * from, rounded once. */
void block_put(coh_dtype dtype, void *to, const float *from, float factor, int64_t count, int adds);

LANES_INLINE vector vector_load(const float *from)
{
    vector out;
    memcpy(&out, from, sizeof(out));
    return out;
}

LANES_INLINE void vector_store(float *to, vector a)
{
    memcpy(to, &a, sizeof(a));
}

static inline int64_t block_round(int64_t count, int64_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

#endif
