/* Reads a folder's files without a vocabulary: the tokenizer's class, added tokens, and the tokens
 * that begin and end a text. The one idea: every rule follows transformers; if its versions differ,
 * the folder is refused. Next: tokenizer_files.c, the caller. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

#include "text/tokenizer_files.h"

/* *out_root is NULL if the file does not exist. */
static coh_status read_object(const char *folder, const char *name, char path[PATH_MAX],
                              json_t **out_root)
{
    int exists;
    *out_root = NULL;
    COH_TRY(coh_tokenizer_find_file(folder, name, path, &exists));
    if (!exists)
        return COH_OK;
    coh_status status = coh_json_read_text(path, COH_TOKENIZER_FILE_BYTES_MAX, out_root);
    if (status == COH_OK && !json_is_object(*out_root)) {
        status = coh_fail(COH_ERR_CORRUPT, "%s: expected an object", path);
        json_decref(*out_root);
        *out_root = NULL;
    }
    return status;
}

/* ---- the class of byte pairs ---- */

static const char *class_named(const json_t *root)
{
    return json_string_value(json_object_get(root, "tokenizer_class"));
}

/* If no class is named, transformers derives it from the model's type. */
static coh_status find_class(const char *path, const json_t *root, const json_t *model,
                             coh_byte_pair_class *out_class)
{
    const char *type = json_string_value(json_object_get(model, "model_type"));
    const char *name = class_named(root);
    if (!name)
        name = class_named(model);
    if (!name)
        name = type && strncmp(type, "qwen", 4) == 0 ? "Qwen2Tokenizer" : "GPT2Tokenizer";
    COH_TRY(coh_field_flag(path, root, "add_prefix_space", 0, &out_class->has_prefix));
    size_t count = strlen(name);
    if (count > 4 && strcmp(name + count - 4, "Fast") == 0)
        count -= 4;
    if (count == 13 && strncmp(name, "GPT2Tokenizer", count) == 0)
        return COH_OK;
    out_class->is_qwen2 = 1;
    if (count != 14 || strncmp(name, "Qwen2Tokenizer", count) != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: vocab.json and merges.txt of the class \"%.60s\" are not supported: "
                        "GPT2Tokenizer and Qwen2Tokenizer are; save the tokenizer as a "
                        "tokenizer.json",
                        path, name);
    if (out_class->has_prefix)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"add_prefix_space\" is true, which not all versions of %.60s know: "
                        "save the tokenizer as a tokenizer.json",
                        path, name);
    return COH_OK;
}

coh_status coh_tokenizer_read_class(const char *folder, coh_byte_pair_class *out_class)
{
    char path[PATH_MAX], model_path[PATH_MAX];
    json_t *root, *model = NULL;
    *out_class = (coh_byte_pair_class){ 0 };
    COH_TRY(read_object(folder, "tokenizer_config.json", path, &root));
    coh_status status = COH_OK;
    if (!class_named(root))
        status = read_object(folder, "config.json", model_path, &model);
    if (status == COH_OK)
        status = find_class(path, root, model, out_class);
    json_decref(model);
    json_decref(root);
    return status;
}

/* ---- added tokens ---- */

/* Tokens that a folder defines outside of the vocabulary's file: in added_tokens.json, or
 * "added_tokens_decoder" of a tokenizer_config.json. Both also list tokens of the vocabulary, and
 * special tokens are named ("eos_token"). With a vocab.json, such a token is found in texts, as in
 * transformers; with sentencepiece, control pieces are not. */

/* The files that name special tokens of a vocabulary ("eos_token" and similar keys): a
 * tokenizer_config.json, or NULL; and a special_tokens_map.json, or NULL, which takes
 * precedence. */
typedef struct special_names {
    const char *config_path, *map_path;
    const json_t *config, *map;
    const char *const *defaulted; /* keys, ended by NULL, that default to <|endoftext|> */
} special_names;

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
static coh_status list_map(new_tokens *list, const json_t *map)
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
static coh_status list_decoder(new_tokens *list, const json_t *decoder)
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
static coh_status list_named(new_tokens *list, const char *where, const json_t *root,
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

static coh_status list_special(new_tokens *list, const special_names *special)
{
    /* As in transformers: for tokens the map overrides the config, for lists the config overrides
     * the map. */
    COH_TRY(list_named(list, special->map_path, special->map, NULL, special->config));
    COH_TRY(list_named(list, special->config_path, special->config, special->map, NULL));
    for (const char *const *key = special->defaulted; *key; key++)
        if (!json_object_get(special->map, *key) && !json_object_get(special->config, *key))
            return keep_own(list, (coh_slice){ coh_end_of_text_name, strlen(coh_end_of_text_name) },
                            (coh_added_kind){ 0 });
    return COH_OK;
}

static int compare_ids(const void *left, const void *right)
{
    int32_t a = ((const new_token *)left)->kind.id, b = ((const new_token *)right)->kind.id;
    return (a > b) - (a < b);
}

static coh_status find_in_texts(const new_tokens *list, const new_token *token,
                                coh_pipeline *pipeline, coh_identity *identity)
{
    COH_TRY(coh_added_add(&pipeline->raw_added, list->path, token->name, token->kind));
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
        COH_TRY(coh_token_table_add(&pipeline->names, token->name));
        COH_TRY(coh_token_table_add(&pipeline->texts, token->name));
    }
    COH_TRY(coh_token_table_index(&pipeline->names));
    tokenizer->vocabulary = pipeline->names.count;
    tokenizer->identity = coh_identity_end(&identity);
    return COH_OK;
}

/* Adds the tokens named by `tokens` of the file `path` that the vocabulary lacks, after its own:
 * {"token": id} of an added_tokens.json, or an "added_tokens_decoder"; NULL: none. Named tokens
 * that the vocabulary has are encoded as ordinary text if `special` is NULL. Else they, and the
 * special tokens, are found in texts, and the identity changes. */
static coh_status add_tokens(const char *path, const json_t *tokens, int is_decoder,
                             const special_names *special, coh_tokenizer *tokenizer)
{
    new_tokens list = { .path = path,
                        .names = &tokenizer->pipeline->names,
                        .takes_own = special != NULL };
    size_t own_count = 0;
    coh_status status = COH_OK;
    if (tokens && !json_is_object(tokens))
        status = coh_fail(COH_ERR_CORRUPT, "%s: what lists added tokens is not an object", path);
    else if (tokens)
        status = is_decoder ? list_decoder(&list, tokens) : list_map(&list, tokens);
    if (status == COH_OK && special)
        status = list_special(&list, special);
    if (status == COH_OK && list.count) {
        qsort(list.all, list.count, sizeof(*list.all), compare_ids);
        status = add_own(&list, tokenizer, &own_count);
    }
    if (status == COH_OK && own_count < list.count)
        status = add_new(&list, own_count, tokenizer);
    coh_free(list.all);
    return status;
}

/* ---- tokens by name ---- */

/* Finds the id of a token named as a string or as an object with "content"; null: none. */
static coh_status read_named(const char *path, const json_t *root, const char *key,
                             const coh_tokenizer *tokenizer, int32_t *out_id)
{
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!value || json_is_null(value))
        return COH_OK;
    if (!json_is_string(value))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not a token", path, key);
    const coh_pipeline *pipeline = tokenizer->pipeline;
    int32_t id =
        coh_token_table_find(&pipeline->names, json_string_value(value), json_string_length(value));
    if (id < 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is \"%.100s\", which is no token", path, key,
                        json_string_value(value));
    *out_id = id;
    return COH_OK;
}

static coh_status read_both(const char *path, const json_t *root, coh_tokenizer *tokenizer)
{
    COH_TRY(read_named(path, root, "bos_token", tokenizer, &tokenizer->begin_of_text));
    return read_named(path, root, "eos_token", tokenizer, &tokenizer->end_of_text);
}

/* ---- around a text ---- */

/* Sets the token that the flag `key` puts at one end of every text. */
static coh_status read_around(const char *path, const json_t *root, const char *key,
                              const char *token_key, int32_t id, coh_id_list *list)
{
    if (!json_object_get(root, key))
        return COH_OK;
    int is_added;
    COH_TRY(coh_field_flag(path, root, key, 0, &is_added));
    list->count = 0;
    if (!is_added)
        return COH_OK;
    if (id < 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is true, but no \"%s\" is named", path, key,
                        token_key);
    return coh_id_list_add(list, id);
}

/* With a tokenizer.json of Llama's classes, transformers 4 obeys the flag and 5 does not. If the
 * post-processor disagrees with the flag, ids depend on the version, so this fails. */
static coh_status check_around(const char *path, const json_t *root, const char *key,
                               const coh_id_list *list)
{
    const char *name = class_named(root);
    int is_added = list->count > 0;
    if (!name || (strcmp(name, "LlamaTokenizer") != 0 && strcmp(name, "LlamaTokenizerFast") != 0))
        return COH_OK;
    COH_TRY(coh_field_flag(path, root, key, is_added, &is_added));
    if (is_added == (list->count > 0))
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s: \"%s\" is %s, and the post-processor of tokenizer.json does otherwise, "
                    "which versions of transformers take differently: strike the flag, or mend "
                    "the post-processor",
                    path, key, is_added ? "true" : "false");
}

/* ---- the files ---- */

/* If the end of text is still unknown, the model's config may name it: a number, or a list whose
 * first number is used. An id outside of the vocabulary is ignored. (The tokenizer's files take
 * precedence, since such configs carry their class's default.) */
static coh_status read_model_config(const char *folder, coh_tokenizer *tokenizer)
{
    char path[PATH_MAX];
    json_t *root;
    COH_TRY(read_object(folder, "config.json", path, &root));
    const json_t *value = json_object_get(root, "eos_token_id");
    if (json_is_array(value))
        value = json_array_get(value, 0);
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id >= 0 && id < tokenizer->vocabulary)
        tokenizer->end_of_text = (int32_t)id;
    json_decref(root);
    return COH_OK;
}

/* Adds tokens to a tokenizer without tokenizer.json: those beyond the vocabulary and, for byte
 * pairs, tokens of the vocabulary that are found in texts. */
static coh_status read_added(const char *folder, const special_names *special,
                             coh_tokenizer *tokenizer)
{
    /* as GPT2Tokenizer and Qwen2Tokenizer of transformers */
    static const char *const gpt2[] = { "unk_token", "bos_token", "eos_token", NULL };
    static const char *const qwen2[] = { "unk_token", "eos_token", "pad_token", NULL };
    char path[PATH_MAX];
    json_t *root;
    special_names names = *special, *own = NULL;
    coh_byte_pair_class class;
    const json_t *decoder = json_object_get(special->config, "added_tokens_decoder");
    if (tokenizer->pipeline->is_byte_level) {
        COH_TRY(coh_tokenizer_read_class(folder, &class));
        names.defaulted = class.is_qwen2 ? qwen2 : gpt2;
        own = &names;
    }
    if (decoder)
        return add_tokens(special->config_path, decoder, 1, own, tokenizer);
    COH_TRY(read_object(folder, "added_tokens.json", path, &root));
    coh_status status = add_tokens(path, root, 0, own, tokenizer);
    json_decref(root);
    return status;
}

/* Is it the token that fills up a batch? No text has it. */
static int is_padding(const special_names *special, coh_slice name)
{
    const json_t *roots[] = { special->map, special->config };
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        const json_t *value = json_object_get(roots[i], "pad_token");
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        if (json_is_string(content) && json_string_length(content) == name.count &&
            memcmp(json_string_value(content), name.bytes, name.count) == 0)
            return 1;
    }
    return 0;
}

/* Checks that a tokenizer.model is used with the spaces of sentencepiece: one before each text, and
 * one after each added token. If the config asks for fewer, the slow and fast classes of
 * transformers disagree: about texts that begin with a space if "legacy" is false, and about all if
 * "add_prefix_space" is false and "legacy" is not. */
static coh_status check_spaces(const special_names *special, const coh_tokenizer *tokenizer)
{
    static const char remedy[] = "save the tokenizer as a tokenizer.json by "
                                 "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER2)";
    const coh_pipeline *pipeline = tokenizer->pipeline;
    const char *path = special->config_path;
    const json_t *root = special->config;
    int is_legacy, has_prefix;
    COH_TRY(coh_field_flag(path, root, "legacy", 1, &is_legacy));
    COH_TRY(coh_field_flag(path, root, "add_prefix_space", 1, &has_prefix));
    if (!has_prefix && pipeline->decode_begin != COH_BEGIN_SENTENCEPIECE)
        return COH_OK; /* the model's own file has no space there, either */
    if (!has_prefix)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"add_prefix_space\" is false, which is not supported with a "
                        "tokenizer.model: %s",
                        path, remedy);
    for (int64_t id = tokenizer->own_vocabulary; !is_legacy && id < tokenizer->vocabulary; id++) {
        const coh_slice name = coh_token_table_at(&pipeline->names, id);
        if (!is_padding(special, name))
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: \"legacy\" is false, so that no space is put after added tokens "
                            "such as \"%.*s\", which is not supported with a tokenizer.model: %s",
                            path, (int)(name.count < 100 ? name.count : 100), name.bytes, remedy);
    }
    return COH_OK;
}

static coh_status read_names(const char *folder, int has_own_around, const special_names *special,
                             coh_tokenizer *tokenizer)
{
    const char *path = special->config_path;
    const json_t *root = special->config;
    if (!has_own_around)
        COH_TRY(read_added(folder, special, tokenizer));
    if (!has_own_around && !tokenizer->pipeline->is_byte_level)
        COH_TRY(check_spaces(special, tokenizer));
    COH_TRY(read_both(path, root, tokenizer));
    COH_TRY(read_both(special->map_path, special->map, tokenizer));
    if (tokenizer->end_of_text < 0)
        COH_TRY(read_model_config(folder, tokenizer));
    if (has_own_around) {
        COH_TRY(check_around(path, root, "add_bos_token", &tokenizer->before));
        return check_around(path, root, "add_eos_token", &tokenizer->after);
    }
    if (tokenizer->before.count) /* the default's token may have another name here */
        tokenizer->before.ids[0] = tokenizer->begin_of_text;
    COH_TRY(read_around(path, root, "add_bos_token", "bos_token", tokenizer->begin_of_text,
                        &tokenizer->before));
    return read_around(path, root, "add_eos_token", "eos_token", tokenizer->end_of_text,
                       &tokenizer->after);
}

/* special_tokens_map.json counts only next to a tokenizer_config.json of older versions, and then
 * takes precedence. */
static coh_status read_files(const char *folder, int has_own_around, coh_tokenizer *tokenizer)
{
    char path[PATH_MAX], map_path[PATH_MAX] = "";
    json_t *root, *map = NULL;
    COH_TRY(read_object(folder, "tokenizer_config.json", path, &root));
    coh_status status = COH_OK;
    if (!json_object_get(root, "added_tokens_decoder"))
        status = read_object(folder, "special_tokens_map.json", map_path, &map);
    const special_names special = {
        .config_path = path, .map_path = map_path, .config = root, .map = map
    };
    if (status == COH_OK)
        status = read_names(folder, has_own_around, &special, tokenizer);
    json_decref(map);
    json_decref(root);
    return status;
}

/* Adds the tokens that begin and end texts to the identity, since they determine ids, too; called
 * if they differ from those of the tokenizer's own file. */
static void mix_identity(coh_tokenizer *tokenizer)
{
    coh_identity identity;
    begin_identity(&identity, "cohobate tokenizer config 1", tokenizer);
    coh_identity_add_u32(&identity, (uint32_t)tokenizer->end_of_text);
    coh_identity_add_ids(&identity, &tokenizer->before);
    coh_identity_add_ids(&identity, &tokenizer->after);
    tokenizer->identity = coh_identity_end(&identity);
}

/* The first id, or -1. Only a tokenizer's own file can list several, and then only that file
 * determines them. */
static int32_t first_of(const coh_id_list *list)
{
    return list->count ? list->ids[0] : -1;
}

coh_status coh_tokenizer_read_config(const char *folder, int has_own_around,
                                     coh_tokenizer *tokenizer)
{
    int32_t end = tokenizer->end_of_text;
    int32_t before = first_of(&tokenizer->before), after = first_of(&tokenizer->after);
    COH_TRY(read_files(folder, has_own_around, tokenizer));
    if (end != tokenizer->end_of_text || before != first_of(&tokenizer->before) ||
        after != first_of(&tokenizer->after))
        mix_identity(tokenizer);
    return COH_OK;
}
