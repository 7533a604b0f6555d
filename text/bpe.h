/* bpe.h - byte-level byte pair encoding as GPT-2 has it (Sennrich et al. 2016, Radford et
 * al. 2019).
 *
 * A word's bytes are symbols; the pair of neighbours that stands first in merges.txt (the leftmost
 * of equals) becomes one symbol, until no neighbours stand there. vocab.json gives symbols their
 * ids; both files write a byte as a printable character ("Ġ" is the space).
 *
 * Text that is not valid UTF-8: the split pattern sees each longest valid stretch as a text of its
 * own; a byte outside them is one id. So valid text gets its usual ids, and any bytes come
 * back. */
#ifndef COH_TEXT_BPE_H
#define COH_TEXT_BPE_H

#include "text/split.h"
#include "text/tokenizer.h"

/* One line of merges.txt, in a table with open addressing. */
typedef struct coh_bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    int32_t rank;  /* line order */
    int32_t id;    /* of the result; -1: an empty slot */
} coh_bpe_merge;

/* The ids of a word met before; most words of a text are. */
#define COH_BPE_CACHED_BYTES 24
#define COH_BPE_CACHED_IDS   8
#define COH_BPE_CACHE_SLOTS  16384u
typedef struct coh_bpe_cached {
    uint8_t byte_count, id_count; /* byte_count 0: empty */
    uint8_t bytes[COH_BPE_CACHED_BYTES];
    int32_t ids[COH_BPE_CACHED_IDS];
} coh_bpe_cached;

typedef struct coh_bpe {
    uint8_t *token_bytes; /* all tokens, in the order of their ids */
    size_t *token_begin;  /* vocabulary + 1 */
    int64_t vocabulary;
    int32_t end_of_text;
    int32_t byte_id[256];
    coh_bpe_merge *merges;
    size_t merge_slots; /* a power of two */
    size_t merge_count;
    uint64_t identity;
    coh_split *split;
    coh_bpe_cached *cache; /* COH_BPE_CACHE_SLOTS */

    /* The word at hand: symbols as a list that merging shortens, and pairs to merge as a heap. */
    int32_t *symbol; /* -1: merged into the one before */
    int32_t *next, *previous;
    uint64_t *heap; /* rank << 32 | index of the left symbol */
    size_t symbol_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
    coh_id_list word;
} coh_bpe;

/* Fills what `tokenizer` needs from `folder`. Fails: see coh_tokenizer_open. */
coh_status coh_bpe_open(const char *folder, coh_tokenizer *tokenizer);

/* Fills tokens, byte_id, merges and identity of a zeroed `bpe` from vocab.json and merges.txt. On
 * failure the caller releases what is there. */
coh_status coh_bpe_read(const char *folder, coh_bpe *bpe);

/* The merge of two ids; one with id -1 if they have none. */
const coh_bpe_merge *coh_bpe_find(const coh_bpe *bpe, int32_t left, int32_t right);

#endif
