/* Reads a folder's files without a vocabulary: the tokenizer's class, and the tokens that begin and
 * end a text. The one idea: every rule follows transformers; if its versions differ, the folder is
 * refused. Next: tokenizer_added.c, and tokenizer_files.c for the caller. */
#include <limits.h>

#include "base/file_text.h"
#include "text/identity.h"
#include "text/json_fields.h"
#include "text/tokenizer_files.h"

/* *out_root is NULL if the file does not exist. */
static coh_status read_object(const char *folder, const char *name, char path[PATH_MAX],
                              json_t **out_root)
{
    char *text;
    size_t text_bytes;
    int exists;
    *out_root = NULL;
    COH_TRY(coh_tokenizer_find_file(folder, name, path, &exists));
    if (!exists)
        return COH_OK;
    COH_TRY(coh_file_read_whole(path, COH_TOKENIZER_FILE_BYTES_MAX, &text, &text_bytes));
    coh_status status = coh_json_parse(path, text, text_bytes, out_root);
    coh_free(text);
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
static coh_status read_added(const char *folder, const coh_special_names *special,
                             coh_tokenizer *tokenizer)
{
    /* as GPT2Tokenizer and Qwen2Tokenizer of transformers */
    static const char *const gpt2[] = { "unk_token", "bos_token", "eos_token", NULL };
    static const char *const qwen2[] = { "unk_token", "eos_token", "pad_token", NULL };
    char path[PATH_MAX];
    json_t *root;
    coh_special_names names = *special, *own = NULL;
    coh_byte_pair_class class;
    const json_t *decoder = json_object_get(special->config, "added_tokens_decoder");
    if (tokenizer->pipeline->is_byte_level) {
        COH_TRY(coh_tokenizer_read_class(folder, &class));
        names.defaulted = class.is_qwen2 ? qwen2 : gpt2;
        own = &names;
    }
    if (decoder)
        return coh_tokenizer_add_tokens(special->config_path, decoder, 1, own, tokenizer);
    COH_TRY(read_object(folder, "added_tokens.json", path, &root));
    coh_status status = coh_tokenizer_add_tokens(path, root, 0, own, tokenizer);
    json_decref(root);
    return status;
}

static coh_status read_names(const char *folder, int has_own_around,
                             const coh_special_names *special, coh_tokenizer *tokenizer)
{
    const char *path = special->config_path;
    const json_t *root = special->config;
    if (!has_own_around)
        COH_TRY(read_added(folder, special, tokenizer));
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
    const coh_special_names special = {
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
    coh_identity_begin(&identity, "cohobate tokenizer config 1");
    coh_identity_add_u32(&identity, (uint32_t)tokenizer->identity);
    coh_identity_add_u32(&identity, (uint32_t)(tokenizer->identity >> 32));
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
