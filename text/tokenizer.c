/* The public functions of tokenizers, and the built-in tokenizer, whose ids are bytes. The one
 * idea: a tokenizer is a pipeline, and this file adds checks and special tokens around it. Next:
 * tokenizer.h, pipeline.c. */
#include "text/tokenizer.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "text/tokenizer_files.h"

/* ---- bytes ---- */

/* Ids 0..255 are bytes, 256 ends a text and has none. */
static coh_status open_bytes(coh_tokenizer *tokenizer)
{
    enum { END_OF_TEXT = 256 };
    static const char identity[] = "cohobate bytes 1"; /* raise the number when ids change */
    coh_pipeline *p;
    COH_TRY(COH_ALLOC(1, &p));
    tokenizer->pipeline = p;
    tokenizer->vocabulary = tokenizer->own_vocabulary = END_OF_TEXT + 1;
    tokenizer->end_of_text = END_OF_TEXT;
    tokenizer->identity = XXH3_64bits(identity, sizeof(identity) - 1);
    for (int id = 0; id <= END_OF_TEXT; id++) {
        const char byte = (char)id;
        const coh_slice token = { &byte, id < END_OF_TEXT };
        COH_TRY(coh_token_table_add(&p->names, token));
        COH_TRY(coh_token_table_add(&p->texts, token));
    }
    return coh_token_table_index(&p->names);
}

/* ---- public functions ---- */

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
    tokenizer->begin_of_text = tokenizer->end_of_text = -1;
    coh_status status =
        strcmp(what, "bytes") == 0 ? open_bytes(tokenizer) : coh_tokenizer_read(what, tokenizer);
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
    coh_pipeline_destroy(tokenizer->pipeline);
    coh_free(tokenizer->before.ids);
    coh_free(tokenizer->after.ids);
    coh_free(tokenizer);
}

coh_status coh_tokenizer_fork(const coh_tokenizer *tokenizer, coh_tokenizer **out_fork)
{
    *out_fork = NULL;
    coh_tokenizer *fork;
    COH_TRY(COH_ALLOC(1, &fork));
    *fork = *tokenizer;
    fork->pipeline = NULL;
    fork->before = fork->after = (coh_id_list){ 0 };
    const coh_id_list *before = &tokenizer->before, *after = &tokenizer->after;
    coh_status status = coh_pipeline_fork(tokenizer->pipeline, &fork->pipeline);
    if (status == COH_OK)
        status = coh_id_list_add_all(&fork->before, before->ids, before->count);
    if (status == COH_OK)
        status = coh_id_list_add_all(&fork->after, after->ids, after->count);
    if (status != COH_OK)
        coh_tokenizer_close(fork);
    else
        *out_fork = fork;
    return status;
}

int64_t coh_tokenizer_vocabulary(const coh_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->vocabulary : 0;
}

int64_t coh_tokenizer_own_vocabulary(const coh_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->own_vocabulary : 0;
}

int32_t coh_tokenizer_end_of_text(const coh_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->end_of_text : -1;
}

int32_t coh_tokenizer_begin_of_text(const coh_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->begin_of_text : -1;
}

int32_t coh_tokenizer_token_id(const coh_tokenizer *tokenizer, const char *token)
{
    if (tokenizer == NULL || !token)
        return -1;
    return coh_token_table_find(&tokenizer->pipeline->names, token, strlen(token));
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
    return tokenizer ? tokenizer->identity : 0;
}

coh_status coh_tokenizer_encode_whole(coh_tokenizer *tokenizer, coh_slice text, coh_id_list *ids)
{
    size_t consumed;
    const coh_text_block whole = { (const uint8_t *)text.bytes, text.count, 1, 1 };
    return text.count ? coh_pipeline_encode(tokenizer->pipeline, &whole, ids, &consumed) : COH_OK;
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
    coh_status status = COH_GROW(&list.ids, &list.capacity, 1);
    if (status == COH_OK)
        status = coh_tokenizer_encode_whole(tokenizer, (coh_slice){ text, text_bytes }, &list);
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
        COH_TRY_GOTO(status, coh_pipeline_decode(tokenizer->pipeline, ids[i], &place, &text), done);
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
    const coh_slice text = coh_token_table_at(&tokenizer->pipeline->texts, id);
    *out_text = text.bytes;
    *out_bytes = text.count;
    return COH_OK;
}

void coh_text_free(void *memory)
{
    coh_free(memory);
}
