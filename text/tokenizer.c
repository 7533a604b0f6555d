/* Tokenizers: the public calls, and the one that is built in, in which bytes are ids. */
#include "text/tokenizer.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "text/bpe.h"

coh_status coh_id_list_add(coh_id_list *list, int32_t id)
{
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + 1));
    list->ids[list->count++] = id;
    return COH_OK;
}

/* ---- bytes ---- */

#define BYTES_VOCABULARY  257
#define BYTES_END_OF_TEXT 256
/* Raise the number when ids change. */
static const char bytes_identity[] = "cohobate bytes 1";

static coh_status bytes_encode(void *state, const uint8_t *text, size_t byte_count, int is_last,
                               coh_id_list *list, size_t *out_consumed)
{
    (void)state;
    (void)is_last;
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + byte_count));
    for (size_t i = 0; i < byte_count; i++)
        list->ids[list->count++] = text[i];
    *out_consumed = byte_count;
    return COH_OK;
}

static const uint8_t *bytes_token(const void *state, int32_t id, size_t *out_bytes)
{
    (void)state;
    static const struct byte_table {
        uint8_t of[256];
    } table = {
#define FOUR(n)    (n), (n) + 1, (n) + 2, (n) + 3
#define SIXTEEN(n) FOUR(n), FOUR((n) + 4), FOUR((n) + 8), FOUR((n) + 12)
        { SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96),
          SIXTEEN(112), SIXTEEN(128), SIXTEEN(144), SIXTEEN(160), SIXTEEN(176), SIXTEEN(192),
          SIXTEEN(208), SIXTEEN(224), SIXTEEN(240) }
#undef SIXTEEN
#undef FOUR
    };
    *out_bytes = id < BYTES_END_OF_TEXT; /* the end of a text has no bytes */
    return &table.of[id & 255];
}

static void bytes_destroy(void *state)
{
    (void)state;
}

static const coh_tokenizer_ops bytes_ops = { bytes_encode, bytes_token, bytes_destroy };

/* ---- the public calls ---- */

coh_status coh_tokenizer_open(const char *what, coh_tokenizer **out_tokenizer)
{
    if (!what || !what[0] || !out_tokenizer)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer is \"bytes\" or a folder with vocab.json "
                                          "and merges.txt; nothing was named");
    *out_tokenizer = NULL;
    coh_tokenizer *tokenizer;
    COH_TRY(COH_ALLOC(1, &tokenizer));
    coh_status status = COH_OK;
    if (strcmp(what, "bytes") == 0)
        *tokenizer = (coh_tokenizer){
            .ops = &bytes_ops,
            .vocabulary = BYTES_VOCABULARY,
            .end_of_text = BYTES_END_OF_TEXT,
            .identity = XXH3_64bits(bytes_identity, sizeof(bytes_identity) - 1),
        };
    else
        status = coh_bpe_open(what, tokenizer);
    if (status != COH_OK)
        coh_free(tokenizer);
    else
        *out_tokenizer = tokenizer;
    return status;
}

void coh_tokenizer_close(coh_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer->ops->destroy(tokenizer->state);
    coh_free(tokenizer);
}

int64_t coh_tokenizer_vocabulary(const coh_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

int32_t coh_tokenizer_end_of_text(const coh_tokenizer *tokenizer)
{
    return tokenizer->end_of_text;
}

uint64_t coh_tokenizer_identity(const coh_tokenizer *tokenizer)
{
    return tokenizer->identity;
}

coh_status coh_tokenizer_encode(coh_tokenizer *tokenizer, const char *text, size_t text_bytes,
                                int32_t **out_ids, size_t *out_count)
{
    if (!tokenizer || (!text && text_bytes) || !out_ids || !out_count)
        return coh_fail(COH_ERR_ARGUMENT, "encode needs a tokenizer, a text and places for the "
                                          "ids and their count");
    *out_ids = NULL;
    *out_count = 0;
    coh_id_list list = { 0 };
    size_t consumed;
    coh_status status = COH_GROW(&list.ids, &list.capacity, 1);
    if (status == COH_OK && text_bytes)
        status = tokenizer->ops->encode(tokenizer->state, (const uint8_t *)text, text_bytes, 1,
                                        &list, &consumed);
    if (status != COH_OK) {
        coh_free(list.ids);
        return status;
    }
    *out_ids = list.ids;
    *out_count = list.count;
    return COH_OK;
}

coh_status coh_tokenizer_decode(const coh_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                char **out_text, size_t *out_bytes)
{
    if (!tokenizer || (!ids && count) || !out_text || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "decode needs a tokenizer, ids and places for the text "
                                          "and its bytes");
    *out_text = NULL;
    *out_bytes = 0;
    uint64_t total_bytes = 0;
    size_t token_bytes;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer->vocabulary)
            return coh_fail(COH_ERR_CORRUPT,
                            "id %" PRId32 " at position %zu is outside the vocabulary 0..%" PRId64,
                            ids[i], i, tokenizer->vocabulary - 1);
        tokenizer->ops->token(tokenizer->state, ids[i], &token_bytes);
        COH_TRY(coh_bytes_add(total_bytes, token_bytes, &total_bytes));
    }
    char *text;
    COH_TRY(COH_ALLOC(total_bytes + 1, &text));
    char *end = text;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = tokenizer->ops->token(tokenizer->state, ids[i], &token_bytes);
        memcpy(end, bytes, token_bytes);
        end += token_bytes;
    }
    *out_text = text;
    *out_bytes = (size_t)total_bytes;
    return COH_OK;
}

void coh_text_free(void *memory)
{
    coh_free(memory);
}
