/* bpe.h - byte pair encoding of one word (Sennrich et al. 2016, Radford et al. 2019).
 *
 * A word begins as one symbol per byte (GPT-2, OPT, Llama 3, Qwen) or per character (Llama 2, whose
 * characters without a token of their own become their bytes' tokens). The pair of neighbours that
 * stands first among the merges (the leftmost of equals) becomes one symbol, until no neighbours
 * stand there.
 *
 * Where words may be cut: a neighbour pair never merges across a place that no merge's result has
 * inside. If no result has U+2581 behind another character, characters may be cut before each
 * U+2581 that follows another one: the ids stay those of the whole text. So a book that Llama 2
 * calls one word is encoded word by word. */
#ifndef COH_TEXT_BPE_H
#define COH_TEXT_BPE_H

#include "text/lists.h"
#include "text/token_table.h"

/* One pair, in a table with open addressing. */
typedef struct coh_bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    int32_t rank;  /* the order of merging */
    int32_t id;    /* of the result; -1: an empty slot */
} coh_bpe_merge;

/* A character that is one symbol, in a table with open addressing. */
typedef struct coh_bpe_character {
    uint32_t value;
    int32_t id; /* -1: an empty slot */
} coh_bpe_character;

/* The ids of a word met before; most words of a text are. */
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
    int is_cut_at_spaces; /* as above; characters only */
    int32_t byte_id[256]; /* every byte has one */
    coh_bpe_merge *merges;
    size_t merge_slots; /* a power of two */
    size_t merge_count;
    coh_bpe_character *characters;
    size_t character_slots; /* a power of two; 0: none */
    size_t character_count;
    coh_token_table
        whole_words; /* a word that is one of these is its id, whatever the merges say */
    /* Symbols from here on are characters that tokens are made of but that are none themselves:
     * what is left of them becomes bytes. */
    int32_t first_unnamed;
    uint32_t *unnamed;
    size_t unnamed_count, unnamed_capacity;
    int is_fork;           /* all above is another's */
    coh_bpe_cached *cache; /* COH_BPE_CACHE_SLOTS */

    /* The word at hand: symbols as a list that merging shortens, and pairs to merge as a heap. */
    int32_t *symbol; /* -1: merged into the one before */
    int32_t *next, *previous;
    uint64_t *heap; /* rank << 32 | index of the left symbol */
    size_t symbol_capacity, next_capacity, previous_capacity, heap_capacity, heap_count;
    coh_id_list word;
} coh_bpe;

/* ---- making one ---- */

/* Room for that many merges or characters, none of which is there yet. */
coh_status coh_bpe_reserve_merges(coh_bpe *bpe, size_t count);
coh_status coh_bpe_reserve_characters(coh_bpe *bpe, size_t count);
/* A pair or character that is there already is left as it is: *out_is_new is 0 then. */
void coh_bpe_add_merge(coh_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id,
                       int *out_is_new);
void coh_bpe_add_character(coh_bpe *bpe, uint32_t value, int32_t id);
/* The symbol of a character; -1: none. */
int32_t coh_bpe_character_id(const coh_bpe *bpe, uint32_t value);
/* Sets is_cut_at_spaces from the bytes of what merges make: call it when all are there. */
void coh_bpe_find_cuts(coh_bpe *bpe, const coh_token_table *tokens);
/* The cache; the last step. */
coh_status coh_bpe_finish(coh_bpe *bpe);
/* A second one for another thread, once the first is finished, which must outlive it. */
coh_status coh_bpe_fork(const coh_bpe *bpe, coh_bpe **out_bpe);
/* Accepts NULL. */
void coh_bpe_destroy(coh_bpe *bpe);

/* ---- using it ---- */

/* Appends the ids of one word of valid UTF-8, cut where that changes nothing. `is_open`: more of
 * the word may follow, so *out_consumed bytes, possibly none, are encoded; else all. */
coh_status coh_bpe_encode(coh_bpe *bpe, const uint8_t *text, size_t byte_count, int is_open,
                          coh_id_list *list, size_t *out_consumed);
/* The merge of two ids; one with id -1 if they have none. */
const coh_bpe_merge *coh_bpe_find(const coh_bpe *bpe, int32_t left, int32_t right);

#endif
