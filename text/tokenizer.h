/* tokenizer.h - the inside of a coh_tokenizer: a table of functions over a kind's own state.
 *
 * Encoding goes block by block, so that a file of any size passes through a bounded buffer:
 *
 *      |....... block 1 .......|            not the last: ids of `consumed` bytes are final, or
 *      |..... consumed ...|tail|             the state keeps what is not; the tail is put before
 *                         |tail|... block 2 ...|                              the next bytes
 *
 * However a text is cut into blocks, the ids are those of the whole text. */
#ifndef COH_TEXT_TOKENIZER_H
#define COH_TEXT_TOKENIZER_H

#include "cohobate/text.h"
#include "text/lists.h"

/* Part of a text: the first forgets what the state kept of another one. */
typedef struct coh_text_block {
    const uint8_t *text;
    size_t byte_count;
    int is_first, is_last;
} coh_text_block;

/* Where decoding stands in a text; zero it for a new one. */
typedef struct coh_decode_place {
    int is_begun;          /* what only a text's first token loses is past */
    size_t stripped_count; /* characters taken off the begin so far */
} coh_decode_place;

typedef struct coh_tokenizer_ops {
    /* Appends ids. If the block is the last, all bytes are consumed, else *out_consumed, possibly
     * none. Fails: COH_ERR_MEMORY, COH_ERR_FULL (a word too long). After a failure the next block
     * must be a first one. */
    coh_status (*encode)(void *state, const coh_text_block *block, coh_id_list *list,
                         size_t *out_consumed);
    /* The bytes of one id within the vocabulary, in the midst of a text, in the tokenizer's own
     * memory. */
    const uint8_t *(*token)(const void *state, int32_t id, size_t *out_bytes);
    /* The id of a token of at least one byte by its spelling; -1: none. */
    int32_t (*find)(const void *state, const char *token, size_t token_bytes);
    /* Appends an id's bytes where they differ at the begin of a text; NULL: they never do. */
    coh_status (*decode)(const void *state, int32_t id, coh_decode_place *place,
                         coh_byte_list *out);
    /* A second state for another thread over the same tables; the first must outlive it. */
    coh_status (*fork)(const void *state, void **out_state);
    void (*destroy)(void *state);
} coh_tokenizer_ops;

struct coh_tokenizer {
    const coh_tokenizer_ops *ops;
    void *state;
    int64_t vocabulary;
    int64_t own_vocabulary;             /* what is not added ends there */
    int32_t begin_of_text, end_of_text; /* -1: none */
    uint64_t identity;
    /* What encoding "with special tokens" puts around a text. */
    coh_id_list before, after;
};

/* A second tokenizer with the same ids for another thread. `tokenizer` must outlive it; what was
 * begun with either is not known to the other. Close it as well. */
coh_status coh_tokenizer_fork(const coh_tokenizer *tokenizer, coh_tokenizer **out_fork);

#endif
