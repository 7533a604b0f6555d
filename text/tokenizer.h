/* tokenizer.h - the inside of a coh_tokenizer: a table of functions over a kind's own state.
 *
 * Encoding goes block by block, so that a file of any size passes through a bounded buffer:
 *
 *      |....... block 1 .......|            not the last: ids of `consumed` bytes are final,
 *      |..... consumed ...|tail|             the tail is put before the next bytes
 *                         |tail|... block 2 ...|
 *
 * However a text is cut into blocks, the ids are those of the whole text. */
#ifndef COH_TEXT_TOKENIZER_H
#define COH_TEXT_TOKENIZER_H

#include "cohobate/text.h"

/* Ids that grow through base/alloc.h. Zeroed is empty; release ids with coh_free. */
typedef struct coh_id_list {
    int32_t *ids;
    size_t count, capacity;
} coh_id_list;

coh_status coh_id_list_add(coh_id_list *list, int32_t id);

typedef struct coh_tokenizer_ops {
    /* Appends the ids of the first *out_consumed bytes. `is_last`: nothing follows, all are
     * consumed; else as many as cannot change whatever follows, possibly none.
     * Fails: COH_ERR_MEMORY, COH_ERR_FULL (a word too long). */
    coh_status (*encode)(void *state, const uint8_t *text, size_t byte_count, int is_last,
                         coh_id_list *list, size_t *out_consumed);
    /* The bytes of one id within the vocabulary, in the tokenizer's own memory. */
    const uint8_t *(*token)(const void *state, int32_t id, size_t *out_bytes);
    void (*destroy)(void *state);
} coh_tokenizer_ops;

struct coh_tokenizer {
    const coh_tokenizer_ops *ops;
    void *state;
    int64_t vocabulary;
    int32_t end_of_text;
    uint64_t identity;
};

#endif
