/* tokenizer.h - internals of a coh_tokenizer: a table of functions over the state of its kind.
 *
 * Encoding goes block by block, so that a file of any size passes through a bounded buffer:
 *
 *      |....... block 1 .......|            not the last: ids of `consumed` bytes are final, or
 *      |..... consumed ...|tail|             the state keeps what is not; the tail is put before
 *                         |tail|... block 2 ...|                              the next bytes
 *
 * The ids do not depend on how a text is cut into blocks. */
#ifndef COH_TEXT_TOKENIZER_H
#define COH_TEXT_TOKENIZER_H

#include "cohobate/text.h"
#include "text/lists.h"

/* Part of a text; the first block drops the state of an earlier text. */
typedef struct coh_text_block {
    const uint8_t *text;
    size_t byte_count;
    int is_first, is_last;
} coh_text_block;

/* Position of decoding in a text; zero it for a new one. */
typedef struct coh_decode_place {
    int is_begun;          /* the part that only the first token loses is removed */
    size_t stripped_count; /* characters removed from the start so far */
} coh_decode_place;

typedef struct coh_tokenizer_ops {
    /* Appends ids. Consumes all bytes of the last block; of others *out_consumed, possibly none.
     * Fails: COH_ERR_MEMORY, COH_ERR_FULL (a word too long). After a failure the next block must be
     * a first one. */
    coh_status (*encode)(void *state, const coh_text_block *block, coh_id_list *list,
                         size_t *out_consumed);
    /* The bytes of one id of the vocabulary, not at the start of a text; owned by the tokenizer. */
    const uint8_t *(*token)(const void *state, int32_t id, size_t *out_bytes);
    /* The id of a token by its spelling of at least one byte; -1: none. */
    int32_t (*find)(const void *state, const char *token, size_t token_bytes);
    /* Appends an id's bytes at the start of a text, where they may differ; NULL: they never
     * differ. */
    coh_status (*decode)(const void *state, int32_t id, coh_decode_place *place,
                         coh_byte_list *out);
    /* Makes a second state for another thread over the same tables; the first must outlive it. */
    coh_status (*fork)(const void *state, void **out_state);
    void (*destroy)(void *state);
} coh_tokenizer_ops;

struct coh_tokenizer {
    const coh_tokenizer_ops *ops;
    void *state;
    int64_t vocabulary;
    int64_t own_vocabulary;             /* without added tokens */
    int32_t begin_of_text, end_of_text; /* -1: none */
    uint64_t identity;
    /* Ids that encoding "with special tokens" puts around a text. */
    coh_id_list before, after;
};

/* Makes a second tokenizer with the same ids for another thread. `tokenizer` must outlive it;
 * neither sees a text begun with the other. Close both. */
coh_status coh_tokenizer_fork(const coh_tokenizer *tokenizer, coh_tokenizer **out_fork);

#endif
