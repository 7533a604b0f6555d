/* block_set.h - a set of blocks of a graph, numbered in graph order. A plain value: it can be
 * copied, compared and stored as it is. Blocks from COH_BLOCK_SET_MOST on are in no set. */
#ifndef COH_PLANNER_BLOCK_SET_H
#define COH_PLANNER_BLOCK_SET_H

#include "base/file_text.h"

enum { COH_BLOCK_SET_MOST = 1024, COH_BLOCK_SET_WORDS = COH_BLOCK_SET_MOST / 64 };

typedef struct coh_block_set {
    uint64_t bits[COH_BLOCK_SET_WORDS]; /* block b is bit b % 64 of word b / 64 */
} coh_block_set;

/* Returns 1 if the block is in the set; 0 for numbers outside 0..COH_BLOCK_SET_MOST - 1. */
static inline int coh_block_set_has(const coh_block_set *set, int32_t block)
{
    return block >= 0 && block < COH_BLOCK_SET_MOST &&
           ((set->bits[block / 64] >> (block % 64)) & 1) != 0;
}

/* Numbers outside 0..COH_BLOCK_SET_MOST - 1 change nothing. */
void coh_block_set_add(coh_block_set *set, int32_t block);
void coh_block_set_remove(coh_block_set *set, int32_t block);
/* Blocks 0 .. count - 1. */
coh_block_set coh_block_set_first(int32_t count);
/* `count` of the blocks 0 .. blocks - 1, spread evenly over them; count <= blocks. */
coh_block_set coh_block_set_spread(int32_t count, int32_t blocks);
int32_t coh_block_set_count(const coh_block_set *set);

/* Appends the canonical text of a set, "0-3,7" (empty: ""). Fails: COH_ERR_MEMORY. */
coh_status coh_block_set_write(const coh_block_set *set, coh_text *text);
/* Reads exactly the text that coh_block_set_write gives. Fails: COH_ERR_CORRUPT. */
coh_status coh_block_set_read(const char *text, coh_block_set *out_set);

#endif
