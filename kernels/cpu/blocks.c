/* Copies between a tensor and equal parts of each of its blocks: slices, and what they are joined
 * from. A piece is one block, or some small ones. Next: plain.h; kernels/kind_layout.c calls
 * this. */
#include "kernels/plain.h"

#include <string.h>

#include "base/bytes.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

/* Blocks of a piece: about a grain's elements. */
static int64_t blocks_per_piece(const coh_blocks *b)
{
    return b->wide >= COH_GRAIN_ELEMENTS ? 1 : COH_GRAIN_ELEMENTS / b->wide;
}

static int64_t piece_count(const coh_blocks *b)
{
    const int64_t each = blocks_per_piece(b);
    return (b->outer + each - 1) / each;
}

static void copy(const coh_blocks *b, void *to, const void *from)
{
    if (b->adds)
        coh_rows_for(b->dtype)->add(to, from, b->count);
    else
        memcpy(to, from, (size_t)b->count * coh_dtype_bytes(b->dtype));
}

static void take_piece(void *argument, int64_t index)
{
    const coh_blocks *b = argument;
    const int64_t each = blocks_per_piece(b), end = smaller((index + 1) * each, b->outer);
    for (int64_t i = index * each; i < end; i++)
        copy(b, coh_element(b->dtype, b->part_out, i * b->count),
             coh_element_const(b->dtype, b->whole_in, i * b->wide + b->begin));
}

void coh_cpu_take_blocks(void *queue, const coh_blocks *blocks)
{
    coh_parallel(queue, piece_count(blocks), take_piece, (void *)blocks);
}

static void put_piece(void *argument, int64_t index)
{
    const coh_blocks *b = argument;
    const int64_t each = blocks_per_piece(b), end = smaller((index + 1) * each, b->outer);
    const size_t bytes = coh_dtype_bytes(b->dtype);
    const int64_t after = b->begin + b->count;
    for (int64_t i = index * each; i < end; i++) {
        char *whole = coh_element(b->dtype, b->whole_out, i * b->wide);
        if (b->clears) {
            memset(whole, 0, (size_t)b->begin * bytes);
            memset(whole + (size_t)after * bytes, 0, (size_t)(b->wide - after) * bytes);
        }
        copy(b, whole + (size_t)b->begin * bytes,
             coh_element_const(b->dtype, b->part_in, i * b->count));
    }
}

void coh_cpu_put_blocks(void *queue, const coh_blocks *blocks)
{
    coh_parallel(queue, piece_count(blocks), put_piece, (void *)blocks);
}
