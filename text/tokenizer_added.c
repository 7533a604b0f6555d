/* Tokens that a folder adds to a vocabulary whose own file cannot hold them: added_tokens.json, or
 * "added_tokens_decoder" of a tokenizer_config.json. Those of the vocabulary are listed there too
 * and stay what the vocabulary makes of them. */
#include <inttypes.h>
#include <stdlib.h>

#include "text/identity.h"
#include "text/json_fields.h"
#include "text/tokenizer_files.h"

typedef struct new_token {
    coh_slice name;
    coh_added_kind kind;
} new_token;

typedef struct new_tokens {
    const char *path;
    const coh_token_table *names; /* of the vocabulary */
    new_token *all;
    size_t count, capacity;
} new_tokens;

/* A token with its id, which is the vocabulary's own, or is kept. */
static coh_status add_one(new_tokens *list, coh_slice name, int64_t id, coh_added_kind kind)
{
    if (name.count == 0 || id < 0 || id > INT32_MAX)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: added token \"%.100s\" has no integer in 0..%" PRId32 " as its id, or "
                        "no characters",
                        list->path, name.bytes, INT32_MAX);
    int32_t own = coh_token_table_find(list->names, name.bytes, name.count);
    if (own == id)
        return COH_OK;
    if (own >= 0 || id < list->names->count)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: added token \"%.100s\" has id %" PRId64 ", which is not the one that "
                        "the vocabulary gives it, nor one behind the vocabulary's",
                        list->path, name.bytes, id);
    kind.id = (int32_t)id;
    COH_TRY(COH_GROW(&list->all, &list->capacity, list->count + 1));
    list->all[list->count++] = (new_token){ name, kind };
    return COH_OK;
}

/* {"<|im_end|>": 420, ...} */
static coh_status read_map(new_tokens *list, const json_t *map)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value)
    {
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        COH_TRY(add_one(list, (coh_slice){ name, strlen(name) }, id, (coh_added_kind){ 0 }));
    }
    return COH_OK;
}

/* {"420": {"content": "<|im_end|>", "lstrip": false, ...}, ...} */
static coh_status read_decoder(new_tokens *list, const json_t *decoder)
{
    const char *number;
    json_t *token;
    json_object_foreach((json_t *)decoder, number, token)
    {
        char *end;
        coh_json_where where =
            coh_json_at("%s: added_tokens_decoder[\"%.40s\"]", list->path, number);
        int64_t id = number[0] >= '0' && number[0] <= '9' ? strtoll(number, &end, 10) : -1;
        coh_slice name = { 0 };
        coh_added_kind kind = { 0 };
        if (id >= 0 && *end)
            id = -1;
        COH_TRY(coh_json_text(where.text, token, "content", &name));
        COH_TRY(coh_json_flag(where.text, token, "single_word", 0, &kind.is_single_word));
        COH_TRY(coh_json_flag(where.text, token, "lstrip", 0, &kind.is_left_stripped));
        COH_TRY(coh_json_flag(where.text, token, "rstrip", 0, &kind.is_right_stripped));
        COH_TRY(add_one(list, name, id, kind));
    }
    return COH_OK;
}

static int compare_ids(const void *left, const void *right)
{
    int32_t a = ((const new_token *)left)->kind.id, b = ((const new_token *)right)->kind.id;
    return (a > b) - (a < b);
}

/* The table's tokens and, behind them, the new ones. */
static coh_status extend(coh_token_table *table, const new_tokens *list, int is_indexed)
{
    coh_token_table longer = { 0 };
    coh_slice *slices;
    int64_t old_count = table->count, count = old_count + (int64_t)list->count;
    COH_TRY(COH_ALLOC(count, &slices));
    for (int64_t id = 0; id < count; id++)
        slices[id] =
            id < old_count ? coh_token_table_at(table, id) : list->all[id - old_count].name;
    coh_status status = coh_token_table_fill(&longer, slices, count);
    if (status == COH_OK && is_indexed)
        status = coh_token_table_index(&longer);
    coh_free(slices);
    if (status != COH_OK) {
        coh_token_table_fini(&longer);
        return status;
    }
    coh_token_table_fini(table);
    *table = longer;
    return COH_OK;
}

static coh_status add_all(new_tokens *list, coh_tokenizer *tokenizer)
{
    coh_pipeline *pipeline = tokenizer->state;
    coh_identity identity;
    coh_identity_begin(&identity, "cohobate added tokens 1");
    coh_identity_add_u32(&identity, (uint32_t)tokenizer->identity);
    coh_identity_add_u32(&identity, (uint32_t)(tokenizer->identity >> 32));
    qsort(list->all, list->count, sizeof(*list->all), compare_ids);
    for (size_t i = 0; i < list->count; i++) {
        const new_token *token = &list->all[i];
        if (token->kind.id != tokenizer->vocabulary + (int64_t)i)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: added token \"%.100s\" has id %" PRId32 ", and no token has id "
                            "%" PRId64,
                            list->path, token->name.bytes, token->kind.id,
                            tokenizer->vocabulary + (int64_t)i);
        if (!pipeline->raw_added)
            COH_TRY(coh_added_create(&pipeline->raw_added));
        coh_status status = coh_added_add(pipeline->raw_added, token->name, token->kind);
        if (status != COH_OK)
            return status == COH_ERR_CORRUPT ? coh_fail_prefix(status, "%s", list->path) : status;
        coh_identity_add_bytes(&identity, token->name.bytes, token->name.count);
        coh_identity_add_u32(&identity, (uint32_t)token->kind.is_single_word |
                                            (uint32_t)token->kind.is_left_stripped << 1 |
                                            (uint32_t)token->kind.is_right_stripped << 2);
    }
    COH_TRY(extend(&pipeline->names, list, 1));
    COH_TRY(extend(&pipeline->texts, list, 0));
    tokenizer->vocabulary = pipeline->names.count;
    tokenizer->identity = coh_identity_end(&identity);
    return COH_OK;
}

coh_status coh_tokenizer_add_tokens(const char *path, const json_t *tokens, int is_decoder,
                                    coh_tokenizer *tokenizer)
{
    new_tokens list = { .path = path, .names = &((coh_pipeline *)tokenizer->state)->names };
    if (!json_is_object(tokens))
        return coh_fail(COH_ERR_CORRUPT, "%s: what lists added tokens is not an object", path);
    coh_status status = is_decoder ? read_decoder(&list, tokens) : read_map(&list, tokens);
    if (status == COH_OK && list.count)
        status = add_all(&list, tokenizer);
    coh_free(list.all);
    return status;
}
