/* attention.h - cuts causal attention into pieces, by shape alone, and declares the table of the
 * inner loops (isa/attention_*.c), compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ATTENTION_H
#define COH_KERNELS_CPU_ATTENTION_H

#include "kernels/kernels.h"

/* Limits of blocks. Packed blocks have at most this many words, 32 KiB, and blocks of scores 64
 * KiB; those of backward fit a second-level cache of 1 MiB. 128 queries are 4 % faster than 64 at T
 * = 1024. */
#define COH_ATTENTION_WORDS   8192
#define COH_ATTENTION_QUERIES 128
#define COH_ATTENTION_KEYS    128
#define COH_ATTENTION_SCORES  (COH_ATTENTION_QUERIES * COH_ATTENTION_KEYS)

/* With fewer pieces than this, they are cut further. */
#define COH_ATTENTION_PIECES 32

typedef struct coh_attention_cut {
    int64_t width;         /* D rounded up to sixteen */
    int64_t queries, keys; /* of a block: a multiple of sixteen, of four */
    int64_t blocks;        /* blocks of queries */
    int64_t key_blocks;
    int64_t parts;   /* pieces of a head in backward, each with a range of key blocks */
    int is_band;     /* a window or documents: late keys have as many queries as early ones */
    int64_t scratch; /* floats of a part: dq [T rounded up to sixteen][width], one per query */
    /* floats of a head: its parts, then, if it shares its keys, dk [T][width] and dv */
    int64_t head_scratch;
} coh_attention_cut;

static inline coh_attention_cut coh_attention_cut_of(const coh_attention *a)
{
    coh_attention_cut cut = { .width = (a->D + 15) / 16 * 16 };
    cut.queries = COH_ATTENTION_WORDS / cut.width / 16 * 16;
    cut.queries = cut.queries < COH_ATTENTION_QUERIES ? cut.queries : COH_ATTENTION_QUERIES;
    cut.queries = cut.queries < (a->T + 15) / 16 * 16 ? cut.queries : (a->T + 15) / 16 * 16;
    cut.keys = COH_ATTENTION_WORDS / cut.width / 4 * 4;
    cut.keys = cut.keys < COH_ATTENTION_KEYS ? cut.keys : COH_ATTENTION_KEYS;
    cut.blocks = (a->T + cut.queries - 1) / cut.queries;
    cut.key_blocks = (a->T + cut.keys - 1) / cut.keys;
    cut.parts = (COH_ATTENTION_PIECES + a->B * a->H - 1) / (a->B * a->H);
    cut.parts = cut.parts < cut.key_blocks ? cut.parts : cut.key_blocks;
    cut.is_band = a->window > 0 || a->positions != NULL;
    cut.scratch = (a->T + 15) / 16 * 16 * (cut.width + 1);
    cut.head_scratch = cut.parts * cut.scratch + (a->H > a->G ? 2 * a->T * cut.width : 0);
    return cut;
}

/* Returns the first block of keys of a part; key_blocks for part == parts. Early keys have more
 * queries: the blocks before the part contain (part / parts) of all pairs of blocks. */
static inline int64_t coh_attention_part_begin(const coh_attention_cut *cut, int64_t part)
{
    const int64_t n = cut->key_blocks;
    int64_t b = part;
    if (cut->is_band)
        return part * n / cut->parts;
    while (b < n && cut->parts * b * (2 * n - b) < part * n * n)
        b++;
    return b;
}

typedef void coh_attention_piece(const coh_attention *attention, int64_t index);

typedef struct coh_attention_pieces {
    /* a block of queries of one head: index = head * blocks + block */
    coh_attention_piece *forward;
    /* a part of one head: index = head * parts + part; writes dk and dv if no other head shares
     * them, and dq if the head has only one part */
    coh_attention_piece *backward;
    /* sums dq over its parts: index as in forward */
    coh_attention_piece *fold;
    /* sums dk and dv of a block of keys over the heads that share them: index = head of keys *
     * key_blocks + block */
    coh_attention_piece *fold_group;
} coh_attention_pieces;

extern const coh_attention_pieces coh_attention_plain;
#if defined(__x86_64__)
extern const coh_attention_pieces coh_attention_avx2, coh_attention_avx512;
extern const coh_attention_pieces coh_attention_avx512bf16; /* bf16 only */
#endif

/* Returns the table of an instruction set by name ("plain", "avx2", "avx512", "avx512bf16"); NULL
 * if the name is unknown, this CPU lacks it, or it does not support this element type. */
const coh_attention_pieces *coh_attention_pieces_of(const char *isa, coh_dtype dtype);

#endif
