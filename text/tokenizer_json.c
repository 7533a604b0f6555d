/* Reads tokenizer.json: the vocabulary, added tokens, and the model with its merges. The one idea:
 * an accepted file defines every id. Next: tokenizer_parts.c reads the other parts, bpe.c is filled
 * here. */
#include "text/tokenizer_files.h"

#include <inttypes.h>
#include <limits.h>

#include "base/c_locale.h"
#include "text/characters.h"

/* Tokens by id while the file is read. */
typedef struct token_list {
    const char *path;
    coh_slice *names;   /* NULL bytes: no token has this id */
    coh_slice *spelled; /* the decoded form, if it is not the name */
    uint8_t *is_own;    /* in the model's vocabulary; added tokens may be, too */
    int64_t count;
    coh_byte_list *normalized; /* strings for `spelled`, one per added token */
    size_t normalized_count;
} token_list;

static void fini_list(token_list *list)
{
    for (size_t i = 0; i < list->normalized_count; i++)
        coh_free(list->normalized[i].bytes);
    coh_free(list->normalized);
    coh_free(list->names);
    coh_free(list->spelled);
    coh_free(list->is_own);
}

/* ---- vocabulary ---- */

/* The highest id + 1 of the vocabulary and the added tokens. Ids may have holes, but not so large
 * that a small file takes memory for millions of ids. */
static coh_status count_ids(const char *path, const json_t *vocabulary, const json_t *added,
                            int64_t *out_count)
{
    size_t token_count = json_object_size(vocabulary) + json_array_size(added), index;
    int64_t most = 4 * (int64_t)token_count + 65536, highest = -1;
    if (most > INT32_MAX)
        most = INT32_MAX;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)vocabulary, name, value)
    {
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= most)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: model.vocab gives token \"%.100s\" no integer in 0..%" PRId64
                            " as its id",
                            path, name, most - 1);
        highest = id > highest ? id : highest;
    }
    json_array_foreach(added, index, value)
    {
        coh_json_where where = coh_json_at("%s: added_tokens[%zu]", path, index);
        int64_t id = 0;
        COH_TRY(coh_json_count(where.text, value, "id", most - 1, &id));
        highest = id > highest ? id : highest;
    }
    *out_count = highest + 1;
    return COH_OK;
}

static coh_status read_vocabulary(token_list *list, const json_t *vocabulary)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)vocabulary, name, value)
    {
        int64_t id = json_integer_value(value);
        if (list->names[id].bytes)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: model.vocab gives \"%.100s\" and \"%.100s\" one id, %" PRId64,
                            list->path, list->names[id].bytes, name, id);
        if (name[0] == '\0')
            return coh_fail(COH_ERR_CORRUPT, "%s: model.vocab has a token of no characters",
                            list->path);
        list->names[id] = (coh_slice){ name, strlen(name) };
        list->is_own[id] = 1;
    }
    return COH_OK;
}

/* ---- added tokens ---- */

/* Checks an added token's id: tokenizers uses the model's id or the next free one, regardless of
 * the file. */
static coh_status check_added_id(token_list *list, const char *where, const json_t *vocabulary,
                                 coh_slice name, int64_t id, int64_t *next_id)
{
    const json_t *own = json_object_get(vocabulary, name.bytes);
    int64_t expected = own ? json_integer_value(own) : (*next_id)++;
    if (id != expected)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"%.100s\" has id %" PRId64 ", but the vocabulary and the added "
                        "tokens before it make it %" PRId64,
                        where, name.bytes, id, expected);
    if (!own && list->names[id].bytes)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"%.100s\" and \"%.100s\" of the vocabulary have one id, %" PRId64,
                        where, name.bytes, list->names[id].bytes, id);
    list->names[id] = name;
    return COH_OK;
}

static coh_status read_added_token(token_list *list, const char *where, const json_t *token,
                                   const json_t *vocabulary, int64_t *next_id, coh_pipeline *p)
{
    coh_slice name = { 0 };
    int64_t id = 0;
    int is_normalized = 0, is_special = 0;
    coh_added_kind kind = { 0 };
    COH_TRY(coh_json_check_fields(where, token,
                                  "id content single_word lstrip rstrip normalized special"));
    COH_TRY(coh_json_count(where, token, "id", list->count - 1, &id));
    COH_TRY(coh_json_text(where, token, "content", &name));
    COH_TRY(coh_field_flag(where, token, "single_word", -1, &kind.is_single_word));
    COH_TRY(coh_field_flag(where, token, "lstrip", -1, &kind.is_left_stripped));
    COH_TRY(coh_field_flag(where, token, "rstrip", -1, &kind.is_right_stripped));
    COH_TRY(coh_field_flag(where, token, "normalized", -1, &is_normalized));
    COH_TRY(coh_field_flag(where, token, "special", -1, &is_special));
    if (name.count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"content\" is empty", where);
    COH_TRY(check_added_id(list, where, vocabulary, name, id, next_id));
    kind.id = (int32_t)id;
    if (!is_normalized)
        return coh_added_add(&p->raw_added, where, name, kind);
    coh_byte_list *normalized = &list->normalized[list->normalized_count++];
    COH_TRY(coh_normalizer_apply(&p->normalizer, name, normalized));
    coh_slice pattern = { (const char *)normalized->bytes, normalized->count };
    if (pattern.count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: nothing is left of it once normalized", where);
    list->spelled[id] = pattern;
    return coh_added_add(&p->normalized_added, where, pattern, kind);
}

/* Guesses the end of text if no tokenizer_config.json names it: a special token with a usual
 * name. */
static void guess_end(coh_tokenizer *tokenizer, const json_t *added)
{
    static const char *const names[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>" };
    size_t best = sizeof(names) / sizeof(names[0]), index;
    json_t *token;
    json_array_foreach(added, index, token)
    {
        const char *content = json_string_value(json_object_get(token, "content"));
        for (size_t i = 0; i < best && json_is_true(json_object_get(token, "special")); i++) {
            if (strcmp(names[i], content) != 0)
                continue;
            best = i;
            tokenizer->end_of_text = (int32_t)json_integer_value(json_object_get(token, "id"));
        }
    }
}

static coh_status read_added(token_list *list, const json_t *added, const json_t *vocabulary,
                             coh_pipeline *pipeline)
{
    int64_t next_id = (int64_t)json_object_size(vocabulary);
    size_t index;
    json_t *token;
    COH_TRY(COH_ALLOC(json_array_size(added), &list->normalized));
    json_array_foreach(added, index, token)
    {
        coh_json_where where = coh_json_at("%s: added_tokens[%zu]", list->path, index);
        COH_TRY(read_added_token(list, where.text, token, vocabulary, &next_id, pipeline));
    }
    return COH_OK;
}

/* ---- the model ---- */

typedef struct model_reader {
    const char *where;
    const uint8_t *is_own; /* by id */
    coh_pipeline *pipeline;
    coh_byte_list joined; /* buffer, for two tokens as one name */
} model_reader;

/* ---- options ---- */

/* null, "" or absent. */
static coh_status check_empty(const char *where, const json_t *part, const char *key)
{
    const json_t *value = json_object_get(part, key);
    if (!value || json_is_null(value) || (json_is_string(value) && json_string_length(value) == 0))
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is set, which is not supported", where, key);
}

static coh_status read_options(const char *where, const json_t *part, int *out_has_bytes,
                               int *out_takes_whole_words)
{
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (type[0] && strcmp(type, "BPE") != 0)
        return coh_fail(COH_ERR_CORRUPT, "%s is of type \"%.60s\": only BPE is supported", where,
                        type);
    COH_TRY(
        coh_json_check_fields(where, part,
                              "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                              "fuse_unk byte_fallback ignore_merges vocab merges"));
    const json_t *dropout = json_object_get(part, "dropout");
    if (dropout && !json_is_null(dropout) &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"dropout\" makes ids random, which is not supported: set it to null",
                        where);
    COH_TRY(check_empty(where, part, "continuing_subword_prefix"));
    COH_TRY(check_empty(where, part, "end_of_word_suffix"));
    COH_TRY(coh_field_flag(where, part, "byte_fallback", 0, out_has_bytes));
    return coh_field_flag(where, part, "ignore_merges", 0, out_takes_whole_words);
}

/* ---- initial symbols ---- */

static coh_status find_bytes(const model_reader *r, const coh_alphabet *alphabet)
{
    const coh_token_table *names = &r->pipeline->names;
    int32_t *byte_id = r->pipeline->model->byte_id;
    for (int byte = 0; byte < 256; byte++)
        byte_id[byte] = -1;
    for (int32_t id = 0; id < names->count; id++) {
        coh_slice name = coh_token_table_at(names, id);
        uint8_t bytes[4];
        if (r->is_own[id] && name.count <= sizeof(bytes) &&
            coh_alphabet_decode(alphabet, name, bytes) == 1)
            byte_id[bytes[0]] = id;
    }
    return coh_tokenizer_check_bytes(r->where, r->pipeline->model);
}

static coh_status find_characters(const model_reader *r)
{
    const coh_token_table *names = &r->pipeline->names;
    coh_bpe *model = r->pipeline->model;
    for (int32_t id = 0; id < names->count; id++) {
        coh_slice name = coh_token_table_at(names, id);
        const uint8_t *text = (const uint8_t *)name.bytes;
        if (r->is_own[id] && name.count > 0 && name.count <= 4 &&
            coh_utf8_character(text, name.count) == name.count)
            COH_TRY(coh_bpe_add(&model->characters, coh_utf8_value(text, name.count), 0, id));
    }
    return COH_OK;
}

/* Fills the table of words that are tokens as a whole, by their bytes. */
static coh_status find_whole_words(model_reader *r, const coh_alphabet *alphabet)
{
    const coh_token_table *names = &r->pipeline->names;
    coh_token_table *words = &r->pipeline->model->whole_words;
    for (int64_t id = 0; id < names->count; id++) {
        coh_slice word = r->is_own[id] ? coh_token_table_at(names, id) : (coh_slice){ 0 };
        if (r->pipeline->is_byte_level) {
            COH_TRY(COH_GROW(&r->joined.bytes, &r->joined.capacity, word.count));
            ptrdiff_t count = coh_alphabet_decode(alphabet, word, r->joined.bytes);
            word = (coh_slice){ (const char *)r->joined.bytes, count < 0 ? 0 : (size_t)count };
        }
        COH_TRY(coh_token_table_add(words, word));
    }
    return coh_token_table_index(words);
}

/* ---- merges ---- */

static coh_status add_merge(model_reader *r, size_t index, coh_slice left, coh_slice right)
{
    int32_t result;
    int is_new = 1;
    coh_status status =
        coh_tokenizer_add_merge(r->pipeline, r->is_own, left, right, &r->joined, &result, &is_new);
    if (!is_new)
        status = coh_fail(COH_ERR_CORRUPT, "this pair occurs a second time");
    return status == COH_ERR_CORRUPT ? coh_fail_prefix(status, "%s.merges[%zu]", r->where, index)
                                     : status;
}

/* "left right", or ["left", "right"]. */
static coh_status read_merge(model_reader *r, size_t index, const json_t *merge)
{
    if (json_is_array(merge)) {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            return add_merge(r, index,
                             (coh_slice){ json_string_value(left), json_string_length(left) },
                             (coh_slice){ json_string_value(right), json_string_length(right) });
    } else if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        size_t bytes = json_string_length(merge);
        if (strncmp(text, "#version", 8) == 0)
            return COH_OK;
        const char *space = memchr(text, ' ', bytes);
        size_t left = space ? (size_t)(space - text) : 0;
        if (space && !memchr(space + 1, ' ', bytes - left - 1))
            return add_merge(r, index, (coh_slice){ text, left },
                             (coh_slice){ space + 1, bytes - left - 1 });
    }
    return coh_fail(COH_ERR_CORRUPT, "%s.merges[%zu] is not two tokens", r->where, index);
}

static coh_status read_merges(model_reader *r, const json_t *part)
{
    json_t *merges, *merge;
    size_t index;
    COH_TRY(coh_json_array(r->where, part, "merges", &merges));
    if (json_array_size(merges) > INT32_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s has %zu merges", r->where, json_array_size(merges));
    json_array_foreach(merges, index, merge) COH_TRY(read_merge(r, index, merge));
    return COH_OK;
}

/* Reads the merges and the initial symbols of words; is_byte_level is known by now. */
static coh_status read_model(const char *path, const json_t *part, const uint8_t *is_own,
                             coh_pipeline *pipeline)
{
    int has_bytes = 0, takes_whole_words = 0;
    coh_json_where where = coh_json_at("%s: model", path);
    model_reader r = { .where = where.text, .is_own = is_own, .pipeline = pipeline };
    coh_alphabet alphabet;
    coh_alphabet_fill(&alphabet);
    COH_TRY(read_options(where.text, part, &has_bytes, &takes_whole_words));
    pipeline->model->is_byte_level = pipeline->is_byte_level;
    if (pipeline->is_byte_level) {
        COH_TRY(find_bytes(&r, &alphabet));
    } else {
        if (!has_bytes)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: neither is there a ByteLevel pre-tokenizer nor is "
                            "\"byte_fallback\" true: text that the tokens cannot spell would be "
                            "lost, which is not supported",
                            where.text);
        COH_TRY(coh_tokenizer_find_byte_tokens(where.text, pipeline));
        for (int byte = 0; byte < 256; byte++) {
            if (!is_own[pipeline->model->byte_id[byte]])
                return coh_fail(COH_ERR_CORRUPT, "%s: the token of byte 0x%02x is an added one",
                                where.text, (unsigned)byte);
        }
        COH_TRY(find_characters(&r));
    }
    coh_status status = takes_whole_words ? find_whole_words(&r, &alphabet) : COH_OK;
    if (status == COH_OK)
        status = read_merges(&r, part);
    coh_free(r.joined.bytes);
    return status;
}

/* ---- whole file ---- */

static int add_dumped(const char *text, size_t bytes, void *identity)
{
    XXH3_64bits_update(identity, text, bytes);
    return 0;
}

/* Adds a part as JSON in a fixed layout, the same in every locale. */
static int add_part(const json_t *part, coh_identity *identity)
{
    const coh_c_locale locale = coh_c_locale_enter();
    const int result = json_dump_callback(part, add_dumped, identity,
                                          JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    coh_c_locale_leave(locale);
    return result;
}

/* Hashes the parts as JSON in a fixed layout, and everything else in its parsed form. */
static coh_status fill_identity(const json_t *root, coh_tokenizer *tokenizer)
{
    static const char *const parts[] = { "normalizer", "pre_tokenizer", "added_tokens" };
    const coh_pipeline *pipeline = tokenizer->pipeline;
    coh_identity identity;
    coh_identity_begin(&identity, "cohobate tokenizer.json 1");
    coh_identity_add_tokens(&identity, &pipeline->names);
    coh_identity_add_u32(&identity, (uint32_t)pipeline->is_byte_level);
    coh_identity_add_u32(&identity, pipeline->model->whole_words.slots != NULL);
    COH_TRY(coh_identity_add_merges(&identity, pipeline->model));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const json_t *part = json_object_get(root, parts[i]);
        coh_identity_add_u32(&identity, (uint32_t)i);
        if (part && add_part(part, &identity) != 0)
            return coh_fail(COH_ERR_MEMORY, "out of memory while hashing a tokenizer");
    }
    coh_identity_add_u32(&identity, (uint32_t)tokenizer->end_of_text);
    coh_identity_add_ids(&identity, &tokenizer->before);
    coh_identity_add_ids(&identity, &tokenizer->after);
    tokenizer->identity = coh_identity_end(&identity);
    return COH_OK;
}

static coh_status check_root(const char *path, const json_t *root)
{
    COH_TRY(coh_json_check_fields(path, root,
                                  "version truncation padding added_tokens normalizer "
                                  "pre_tokenizer post_processor decoder model"));
    const json_t *version = json_object_get(root, "version");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"version\" is not \"1.0\"", path);
    /* "truncation" and "padding" are leftovers of a program's last call; transformers ignores them
     * by default. */
    const json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_array(added))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"added_tokens\" is not a list", path);
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type && strcmp(type, "BPE") != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"model\" is of type \"%.60s\", which is not supported: BPE is", path,
                        type);
    if (!json_is_object(json_object_get(model, "vocab")))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"model\" has no object \"vocab\" of tokens with ids",
                        path);
    return COH_OK;
}

static coh_status read_tokens(token_list *list, const json_t *root, coh_tokenizer *tokenizer)
{
    coh_pipeline *pipeline = tokenizer->pipeline;
    const json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    COH_TRY(count_ids(list->path, vocabulary, added, &list->count));
    COH_TRY(COH_ALLOC(list->count, &list->names));
    COH_TRY(COH_ALLOC(list->count, &list->spelled));
    COH_TRY(COH_ALLOC(list->count, &list->is_own));
    COH_TRY(read_vocabulary(list, vocabulary));
    COH_TRY(coh_json_read_normalizer(list->path, root, tokenizer));
    COH_TRY(read_added(list, added, vocabulary, pipeline));
    for (int64_t id = 0; id < list->count; id++)
        COH_TRY(coh_token_table_add(&pipeline->names, list->names[id]));
    return coh_token_table_index(&pipeline->names);
}

static coh_status read_root(token_list *list, const json_t *root, coh_tokenizer *tokenizer)
{
    const char *path = list->path;
    coh_pipeline *pipeline;
    COH_TRY(check_root(path, root));
    COH_TRY(coh_tokenizer_begin_pipeline(tokenizer, &pipeline));
    COH_TRY(coh_json_read_pre_tokenizer(path, root, tokenizer));
    COH_TRY(read_tokens(list, root, tokenizer));
    COH_TRY(read_model(path, json_object_get(root, "model"), list->is_own, pipeline));
    COH_TRY(coh_json_read_decoder(path, root, list->spelled, tokenizer));
    COH_TRY(coh_json_read_post_processor(path, root, tokenizer));
    if (tokenizer->before.count)
        tokenizer->begin_of_text = tokenizer->before.ids[0];
    guess_end(tokenizer, json_object_get(root, "added_tokens"));
    COH_TRY(fill_identity(root, tokenizer));
    COH_TRY(coh_tokenizer_finish_pipeline(tokenizer));
    while (tokenizer->own_vocabulary > 0 && !list->is_own[tokenizer->own_vocabulary - 1])
        tokenizer->own_vocabulary--;
    return COH_OK;
}

coh_status coh_tokenizer_read_json(const char *path, const char *text, size_t text_bytes,
                                   coh_tokenizer *tokenizer)
{
    json_t *root = NULL;
    token_list list = { .path = path };
    COH_TRY(coh_json_parse(path, text, text_bytes, &root));
    coh_status status = read_root(&list, root, tokenizer);
    fini_list(&list);
    json_decref(root);
    return status;
}
