/* Adds tokens that a folder defines outside of the vocabulary's file: in added_tokens.json, or
 * "added_tokens_decoder" of a tokenizer_config.json. Both also list tokens of the vocabulary, and
 * special tokens are named ("eos_token"). With a vocab.json, such a token is found in texts, as in
 * transformers; with sentencepiece, control pieces are not. Next: tokenizer_config.c, the
 * caller. */
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
    const coh_token_table *names; /* tokens of the vocabulary */
    int takes_own;                /* listed tokens of the vocabulary are found in texts, too */
    new_token *all;
    size_t count, capacity;
} new_tokens;

static coh_status keep(new_tokens *list, coh_slice name, coh_added_kind kind)
{
    COH_TRY(COH_GROW(&list->all, &list->capacity, list->count + 1));
    list->all[list->count++] = (new_token){ name, kind };
    return COH_OK;
}

/* Adds a token with its id. */
static coh_status add_one(new_tokens *list, coh_slice name, int64_t id, coh_added_kind kind)
{
    if (name.count == 0 || id < 0 || id > INT32_MAX)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: added token \"%.100s\" has no integer in 0..%" PRId32 " as its id, or "
                        "no characters",
                        list->path, name.bytes, INT32_MAX);
    kind.id = (int32_t)id;
    int32_t own = coh_token_table_find(list->names, name.bytes, name.count);
    if (own == id)
        return list->takes_own ? keep(list, name, kind) : COH_OK;
    if (own >= 0 || id < list->names->count)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: added token \"%.100s\" has id %" PRId64 ", which is not the one that "
                        "the vocabulary gives it, nor one behind the vocabulary's",
                        list->path, name.bytes, id);
    return keep(list, name, kind);
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

/* Reads a token's options: {"content": "<|im_end|>", "lstrip": false, ...} */
static coh_status read_kind(const char *where, const json_t *token, coh_added_kind *kind)
{
    COH_TRY(coh_field_flag(where, token, "single_word", 0, &kind->is_single_word));
    COH_TRY(coh_field_flag(where, token, "lstrip", 0, &kind->is_left_stripped));
    return coh_field_flag(where, token, "rstrip", 0, &kind->is_right_stripped);
}

/* {"420": {"content": "<|im_end|>", ...}, ...} */
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
        COH_TRY(read_kind(where.text, token, &kind));
        COH_TRY(add_one(list, name, id, kind));
    }
    return COH_OK;
}

/* ---- special tokens by name ---- */

/* Skips a token that the vocabulary lacks, or that is already listed. */
static coh_status keep_own(new_tokens *list, coh_slice name, coh_added_kind kind)
{
    kind.id = coh_token_table_find(list->names, name.bytes, name.count);
    if (kind.id < 0)
        return COH_OK;
    for (size_t i = 0; i < list->count; i++)
        if (list->all[i].kind.id == kind.id)
            return COH_OK;
    return keep(list, name, kind);
}

/* Adds "</s>", or the object of a token; skips other values, such as the flag "add_bos_token". */
static coh_status add_named(new_tokens *list, const char *where, const json_t *value)
{
    const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
    coh_added_kind kind = { 0 };
    if (!json_is_string(content) || json_string_length(content) == 0)
        return COH_OK;
    if (json_is_object(value))
        COH_TRY(read_kind(where, value, &kind));
    return keep_own(list, (coh_slice){ json_string_value(content), json_string_length(content) },
                    kind);
}

/* Adds the tokens of "additional_special_tokens": a list, or an object of names and tokens. */
static coh_status add_several(new_tokens *list, const char *where, const json_t *values)
{
    size_t index;
    const char *key;
    json_t *value;
    json_array_foreach(values, index, value) COH_TRY(add_named(list, where, value));
    if (json_is_object(values))
        json_object_foreach((json_t *)values, key, value) COH_TRY(add_named(list, where, value));
    return COH_OK;
}

static int ends_with_token(const char *key)
{
    static const char ending[] = "_token";
    const size_t bytes = strlen(key), ending_bytes = sizeof(ending) - 1;
    return bytes > ending_bytes && strcmp(key + bytes - ending_bytes, ending) == 0;
}

/* Adds the tokens and lists of `root`, except those in the other two objects, which take
 * precedence. */
static coh_status read_named(new_tokens *list, const char *where, const json_t *root,
                             const json_t *over_tokens, const json_t *over_lists)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
    {
        const int is_list = strcmp(key, "additional_special_tokens") == 0 ||
                            strcmp(key, "extra_special_tokens") == 0;
        if (json_object_get(is_list ? over_lists : over_tokens, key))
            continue;
        if (is_list)
            COH_TRY(add_several(list, where, value));
        else if (ends_with_token(key))
            COH_TRY(add_named(list, where, value));
    }
    return COH_OK;
}

static coh_status read_special(new_tokens *list, const coh_special_names *special)
{
    /* As in transformers: for tokens the map overrides the config, for lists the config overrides
     * the map. */
    COH_TRY(read_named(list, special->map_path, special->map, NULL, special->config));
    COH_TRY(read_named(list, special->config_path, special->config, special->map, NULL));
    for (const char *const *key = special->defaulted; *key; key++)
        if (!json_object_get(special->map, *key) && !json_object_get(special->config, *key))
            return keep_own(list, (coh_slice){ coh_end_of_text_name, strlen(coh_end_of_text_name) },
                            (coh_added_kind){ 0 });
    return COH_OK;
}

/* ---- adding to the tokenizer ---- */

static int compare_ids(const void *left, const void *right)
{
    int32_t a = ((const new_token *)left)->kind.id, b = ((const new_token *)right)->kind.id;
    return (a > b) - (a < b);
}

/* Appends the new tokens, from `first` on, to the table. */
static coh_status extend(coh_token_table *table, const new_tokens *list, size_t first,
                         int is_indexed)
{
    coh_token_table longer = { 0 };
    coh_slice *slices;
    int64_t old_count = table->count, count = old_count + (int64_t)(list->count - first);
    COH_TRY(COH_ALLOC(count, &slices));
    for (int64_t id = 0; id < count; id++)
        slices[id] = id < old_count ? coh_token_table_at(table, id)
                                    : list->all[first + (size_t)(id - old_count)].name;
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

static coh_status find_in_texts(const new_tokens *list, const new_token *token,
                                coh_pipeline *pipeline, coh_identity *identity)
{
    if (!pipeline->raw_added)
        COH_TRY(coh_added_create(&pipeline->raw_added));
    coh_status status = coh_added_add(pipeline->raw_added, token->name, token->kind);
    if (status != COH_OK)
        return status == COH_ERR_CORRUPT ? coh_fail_prefix(status, "%s", list->path) : status;
    coh_identity_add_bytes(identity, token->name.bytes, token->name.count);
    coh_identity_add_u32(identity, (uint32_t)token->kind.is_single_word |
                                       (uint32_t)token->kind.is_left_stripped << 1 |
                                       (uint32_t)token->kind.is_right_stripped << 2);
    return COH_OK;
}

static void begin_identity(coh_identity *identity, const char *what, const coh_tokenizer *tokenizer)
{
    coh_identity_begin(identity, what);
    coh_identity_add_u32(identity, (uint32_t)tokenizer->identity);
    coh_identity_add_u32(identity, (uint32_t)(tokenizer->identity >> 32));
}

/* Adds the vocabulary's own tokens, which come first in the sorted list. */
static coh_status add_own(const new_tokens *list, coh_tokenizer *tokenizer, size_t *out_count)
{
    coh_identity identity;
    size_t count = 0;
    begin_identity(&identity, "cohobate special tokens 1", tokenizer);
    for (; count < list->count && list->all[count].kind.id < tokenizer->vocabulary; count++)
        COH_TRY(find_in_texts(list, &list->all[count], tokenizer->pipeline, &identity));
    if (count > 0)
        tokenizer->identity = coh_identity_end(&identity);
    *out_count = count;
    return COH_OK;
}

static coh_status add_new(const new_tokens *list, size_t first, coh_tokenizer *tokenizer)
{
    coh_pipeline *pipeline = tokenizer->pipeline;
    coh_identity identity;
    begin_identity(&identity, "cohobate added tokens 1", tokenizer);
    for (size_t i = first; i < list->count; i++) {
        const new_token *token = &list->all[i];
        const int64_t next = tokenizer->vocabulary + (int64_t)(i - first);
        if (token->kind.id != next)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: added token \"%.100s\" has id %" PRId32 ", and no token has id "
                            "%" PRId64,
                            list->path, token->name.bytes, token->kind.id, next);
        COH_TRY(find_in_texts(list, token, pipeline, &identity));
    }
    COH_TRY(extend(&pipeline->names, list, first, 1));
    COH_TRY(extend(&pipeline->texts, list, first, 0));
    tokenizer->vocabulary = pipeline->names.count;
    tokenizer->identity = coh_identity_end(&identity);
    return COH_OK;
}

static coh_status fill_list(new_tokens *list, const json_t *tokens, int is_decoder,
                            const coh_special_names *special)
{
    if (tokens && !json_is_object(tokens))
        return coh_fail(COH_ERR_CORRUPT, "%s: what lists added tokens is not an object",
                        list->path);
    if (tokens)
        COH_TRY(is_decoder ? read_decoder(list, tokens) : read_map(list, tokens));
    return special ? read_special(list, special) : COH_OK;
}

coh_status coh_tokenizer_add_tokens(const char *path, const json_t *tokens, int is_decoder,
                                    const coh_special_names *special, coh_tokenizer *tokenizer)
{
    new_tokens list = { .path = path,
                        .names = &tokenizer->pipeline->names,
                        .takes_own = special != NULL };
    size_t own_count = 0;
    coh_status status = fill_list(&list, tokens, is_decoder, special);
    if (status == COH_OK && list.count) {
        qsort(list.all, list.count, sizeof(*list.all), compare_ids);
        status = add_own(&list, tokenizer, &own_count);
    }
    if (status == COH_OK && own_count < list.count)
        status = add_new(&list, own_count, tokenizer);
    coh_free(list.all);
    return status;
}
