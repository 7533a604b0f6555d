/* The public functions of tokenizers, and the built-in tokenizer, whose ids are bytes. The one
 * idea: a tokenizer is a table of functions, and this file adds checks, blocks and special tokens
 * around it. Next: tokenizer.h, pipeline.c. */
#include "text/tokenizer.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "text/tokenizer_files.h"

/* ---- bytes ---- */

#define BYTES_VOCABULARY  257
#define BYTES_END_OF_TEXT 256
/* Raise the number when ids change. */
static const char bytes_identity[] = "cohobate bytes 1";

static coh_status bytes_encode(void *state, const coh_text_block *block, coh_id_list *list,
                               size_t *out_consumed)
{
    (void)state;
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + block->byte_count));
    for (size_t i = 0; i < block->byte_count; i++)
        list->ids[list->count++] = block->text[i];
    *out_consumed = block->byte_count;
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
    *out_bytes = id < BYTES_END_OF_TEXT; /* end of text has no bytes */
    return &table.of[id & 255];
}

static int32_t bytes_find(const void *state, const char *token, size_t token_bytes)
{
    (void)state;
    return token_bytes == 1 ? (uint8_t)token[0] : -1;
}

static coh_status bytes_fork(const void *state, void **out_state)
{
    (void)state;
    *out_state = NULL;
    return COH_OK;
}

static void bytes_destroy(void *state)
{
    (void)state;
}

static const coh_tokenizer_ops bytes_ops = { bytes_encode, bytes_token, bytes_find,
                                             NULL,         bytes_fork,  bytes_destroy };

/* ---- public functions ---- */

static const coh_tokenizer bytes_tokenizer = {
    .ops = &bytes_ops,
    .vocabulary = BYTES_VOCABULARY,
    .own_vocabulary = BYTES_VOCABULARY,
    .begin_of_text = -1,
    .end_of_text = BYTES_END_OF_TEXT,
};

coh_status coh_tokenizer_open(const char *what, coh_tokenizer **out_tokenizer)
{
    if (!what || !what[0] || !out_tokenizer)
        return coh_fail(
            COH_ERR_ARGUMENT,
            "a tokenizer is \"bytes\", a folder with tokenizer.json, tokenizer.model or "
            "vocab.json and merges.txt, or one of the first two files; nothing was "
            "named");
    *out_tokenizer = NULL;
    coh_tokenizer *tokenizer;
    COH_TRY(COH_ALLOC(1, &tokenizer));
    coh_status status = COH_OK;
    if (strcmp(what, "bytes") == 0) {
        *tokenizer = bytes_tokenizer;
        tokenizer->identity = XXH3_64bits(bytes_identity, sizeof(bytes_identity) - 1);
    } else {
        tokenizer->begin_of_text = tokenizer->end_of_text = -1;
        status = coh_tokenizer_read(what, tokenizer);
    }
    if (status != COH_OK)
        coh_tokenizer_close(tokenizer);
    else
        *out_tokenizer = tokenizer;
    return status;
}

void coh_tokenizer_close(coh_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->ops)
        tokenizer->ops->destroy(tokenizer->state);
    coh_free(tokenizer->before.ids);
    coh_free(tokenizer->after.ids);
    coh_free(tokenizer);
}

static coh_status copy_ids(const coh_id_list *from, coh_id_list *to)
{
    return coh_id_list_add_all(to, from->ids, from->count);
}

coh_status coh_tokenizer_fork(const coh_tokenizer *tokenizer, coh_tokenizer **out_fork)
{
    *out_fork = NULL;
    coh_tokenizer *fork;
    COH_TRY(COH_ALLOC(1, &fork));
    *fork = (coh_tokenizer){ .vocabulary = tokenizer->vocabulary,
                             .own_vocabulary = tokenizer->own_vocabulary,
                             .begin_of_text = tokenizer->begin_of_text,
                             .end_of_text = tokenizer->end_of_text,
                             .identity = tokenizer->identity };
    coh_status status = tokenizer->ops->fork(tokenizer->state, &fork->state);
    if (status == COH_OK) {
        fork->ops = tokenizer->ops;
        status = copy_ids(&tokenizer->before, &fork->before);
    }
    if (status == COH_OK)
        status = copy_ids(&tokenizer->after, &fork->after);
    if (status != COH_OK)
        coh_tokenizer_close(fork);
    else
        *out_fork = fork;
    return status;
}

int64_t coh_tokenizer_vocabulary(const coh_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return 0;
    return tokenizer->vocabulary;
}

int64_t coh_tokenizer_own_vocabulary(const coh_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return 0;
    return tokenizer->own_vocabulary;
}

int32_t coh_tokenizer_end_of_text(const coh_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return -1;
    return tokenizer->end_of_text;
}

int32_t coh_tokenizer_begin_of_text(const coh_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return -1;
    return tokenizer->begin_of_text;
}

int32_t coh_tokenizer_token_id(const coh_tokenizer *tokenizer, const char *token)
{
    if (tokenizer == NULL)
        return -1;
    if (!token || !token[0])
        return -1;
    return tokenizer->ops->find(tokenizer->state, token, strlen(token));
}

void coh_tokenizer_around(const coh_tokenizer *tokenizer, const int32_t **out_before,
                          size_t *out_before_count, const int32_t **out_after,
                          size_t *out_after_count)
{
    if (tokenizer == NULL || out_before == NULL || out_before_count == NULL || out_after == NULL ||
        out_after_count == NULL)
        return;
    *out_before = tokenizer->before.ids;
    *out_before_count = tokenizer->before.count;
    *out_after = tokenizer->after.ids;
    *out_after_count = tokenizer->after.count;
}

uint64_t coh_tokenizer_identity(const coh_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return 0;
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
    const coh_text_block whole = { (const uint8_t *)text, text_bytes, 1, 1 };
    if (status == COH_OK && text_bytes)
        status = tokenizer->ops->encode(tokenizer->state, &whole, &list, &consumed);
    if (status != COH_OK) {
        coh_free(list.ids);
        return status;
    }
    *out_ids = list.ids;
    *out_count = list.count;
    return COH_OK;
}

static coh_status check_id(const coh_tokenizer *tokenizer, int32_t id, size_t position)
{
    if (id < 0 || id >= tokenizer->vocabulary)
        return coh_fail(COH_ERR_CORRUPT,
                        "id %" PRId32 " at position %zu is outside the vocabulary 0..%" PRId64, id,
                        position, tokenizer->vocabulary - 1);
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
    coh_byte_list text = { 0 };
    coh_decode_place place = { 0 };
    coh_status status = COH_OK;
    for (size_t i = 0; i < count; i++) {
        COH_TRY_GOTO(status, check_id(tokenizer, ids[i], i), done);
        if (tokenizer->ops->decode) {
            COH_TRY_GOTO(status, tokenizer->ops->decode(tokenizer->state, ids[i], &place, &text),
                         done);
            continue;
        }
        size_t token_bytes;
        const uint8_t *bytes = tokenizer->ops->token(tokenizer->state, ids[i], &token_bytes);
        COH_TRY_GOTO(status, coh_byte_list_add(&text, bytes, token_bytes), done);
    }
    COH_TRY_GOTO(status, coh_byte_list_add(&text, "", 1), done);
    *out_text = (char *)text.bytes;
    *out_bytes = text.count - 1;
    text.bytes = NULL;
done:
    coh_free(text.bytes);
    return status;
}

coh_status coh_tokenizer_piece(const coh_tokenizer *tokenizer, int32_t id, const char **out_text,
                               size_t *out_bytes)
{
    if (!tokenizer || !out_text || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "a piece needs a tokenizer and places for the text and "
                                          "its bytes");
    *out_text = "";
    *out_bytes = 0;
    COH_TRY(check_id(tokenizer, id, 0));
    *out_text = (const char *)tokenizer->ops->token(tokenizer->state, id, out_bytes);
    return COH_OK;
}

void coh_text_free(void *memory)
{
    coh_free(memory);
}
