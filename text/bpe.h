/* bpe.h - encodes one word with byte pairs (Sennrich et al. 2016, Radford et al. 2019).
 *
 * A word begins as one symbol per byte (GPT-2, OPT, Llama 3, Qwen) or per character (Llama 2; a
 * character without a token becomes the tokens of its bytes). The adjacent pair with the lowest
 * merge rank (the leftmost of equals) becomes one symbol, until no adjacent pair has a merge.
 *
 * Cutting words: a pair never merges across a boundary that no merge's result contains. If no
 * result has U+2581 after another character, a word may be cut before each U+2581 that follows
 * another character, and the ids stay those of the whole text. A book that is a single word to
 * Llama 2 is thus encoded word by word. */
#ifndef COH_TEXT_BPE_H
#define COH_TEXT_BPE_H

#include "text/lists.h"
#include "text/token_table.h"

/* A merge of a pair, or the symbol of a character. */
typedef struct coh_bpe_entry {
    uint64_t key; /* left id << 32 | right id; or the code point */
    int32_t rank; /* merges are applied in this order */
    int32_t id;   /* of the result, or the symbol; -1: empty slot */
} coh_bpe_entry;

/* A hash table with open addressing, at most half full: a search ends at an empty slot. */
typedef struct coh_bpe_map {
    coh_bpe_entry *entries;
    size_t slots; /* a power of two */
    size_t count;
} coh_bpe_map;

/* Cached ids of an earlier word; most words of a text repeat. */
#define COH_BPE_CACHED_BYTES 28
#define COH_BPE_CACHED_IDS   8
#define COH_BPE_CACHE_SLOTS  16384u
typedef struct coh_bpe_cached {
    uint8_t byte_count, id_count; /* byte_count 0: empty */
    uint8_t bytes[COH_BPE_CACHED_BYTES];
    int32_t ids[COH_BPE_CACHED_IDS];
} coh_bpe_cached;

typedef struct coh_bpe {
    int is_byte_level;    /* words begin as bytes, else as characters */
    int is_cut_at_spaces; /* see above; only for characters */
    int32_t byte_id[256]; /* every byte has one */
    coh_bpe_map merges;
    coh_bpe_map characters; /* empty if words begin as bytes */
    coh_token_table
        whole_words; /* a word in this table is encoded as its id, regardless of the merges */
    /* Symbols from first_unnamed on are characters that tokens contain but that are not tokens.
     * Those left after merging become bytes. */
    int32_t first_unnamed;
    uint32_t *unnamed;
    size_t unnamed_count, unnamed_capacity;
    int is_fork;           /* the fields above belong to another coh_bpe */
    coh_bpe_cached *cache; /* COH_BPE_CACHE_SLOTS */

    /* The current word: a linked list of symbols, which merging shortens, and a heap of pairs to
     * merge. */
    int32_t *symbol; /* -1: merged into the previous symbol */
    int32_t *next, *previous;
    uint64_t *heap; /* rank << 32 | index of the left symbol */
    size_t symbol_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
    coh_id_list word;
} coh_bpe;

/* ---- creation ---- */

/* Makes an empty one; release it with coh_bpe_destroy, also after a failure. */
coh_status coh_bpe_create(coh_bpe **out_bpe);
/* An entry whose key was added before is kept unchanged. */
coh_status coh_bpe_add(coh_bpe_map *map, uint64_t key, int32_t rank, int32_t id);
/* The entry of a key; its id is -1 if there is none. */
coh_bpe_entry *coh_bpe_find(const coh_bpe_map *map, uint64_t key);

static inline uint64_t coh_bpe_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Sets is_cut_at_spaces from the bytes of the merges' results; call it after adding all merges. */
void coh_bpe_find_cuts(coh_bpe *bpe, const coh_token_table *tokens);
/* Allocates the cache; the last step of creation. */
coh_status coh_bpe_finish(coh_bpe *bpe);
/* Makes a second one for another thread from a finished one, which must outlive it. */
coh_status coh_bpe_fork(const coh_bpe *bpe, coh_bpe **out_bpe);
/* Accepts NULL. */
void coh_bpe_destroy(coh_bpe *bpe);

/* ---- use ---- */

/* Appends the ids of one word of valid UTF-8, cutting it where the ids stay the same. `is_open`:
 * more of the word may follow, so only *out_consumed bytes, possibly none, are encoded; else all
 * are. */
coh_status coh_bpe_encode(coh_bpe *bpe, const uint8_t *text, size_t byte_count, int is_open,
                          coh_id_list *list, size_t *out_consumed);

#endif
