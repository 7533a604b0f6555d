/* Reads tokenizer.json: the vocabulary, added tokens, tokens around a text, and the parts together.
 * Next: tokenizer_json_steps.c, tokenizer_json_model.c and tokenizer_json_decoder.c read the
 * parts. */
#include "text/tokenizer_json.h"

#include <inttypes.h>
#include <limits.h>

#include "text/identity.h"

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

static coh_status add_to(coh_added **added, const char *where, coh_slice token, coh_added_kind kind)
{
    if (!*added)
        COH_TRY(coh_added_create(added));
    coh_status status = coh_added_add(*added, token, kind);
    return status == COH_ERR_CORRUPT ? coh_fail_prefix(status, "%s", where) : status;
}

static coh_status read_added_token(token_list *list, const char *where, const json_t *token,
                                   const json_t *vocabulary, int64_t *next_id, coh_pipeline *p)
{
    static const char *const known[] = { "id",     "content",    "single_word", "lstrip",
                                         "rstrip", "normalized", "special",     NULL };
    coh_slice name = { 0 };
    int64_t id = 0;
    int is_normalized = 0, is_special = 0;
    coh_added_kind kind = { 0 };
    COH_TRY(coh_json_check_fields(where, token, known));
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
        return add_to(&p->raw_added, where, name, kind);
    coh_byte_list *normalized = &list->normalized[list->normalized_count++];
    COH_TRY(coh_normalizer_apply(&p->normalizer, name, normalized));
    coh_slice pattern = { (const char *)normalized->bytes, normalized->count };
    if (pattern.count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: nothing is left of it once normalized", where);
    list->spelled[id] = pattern;
    return add_to(&p->normalized_added, where, pattern, kind);
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

/* ---- tokens around a text ---- */

/* Adds the ids of a special token of the template, taken from the template's own table. */
static coh_status add_special(const char *where, const json_t *table, const json_t *special,
                              int64_t vocabulary, coh_id_list *list)
{
    coh_slice name = { 0 };
    json_t *ids = NULL, *value;
    size_t index;
    COH_TRY(coh_json_text(where, special, "id", &name));
    const json_t *row = json_object_get(table, name.bytes);
    if (!json_is_object(row))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"special_tokens\" does not have \"%.100s\"", where,
                        name.bytes);
    COH_TRY(coh_json_array(where, row, "ids", &ids));
    json_array_foreach(ids, index, value)
    {
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= vocabulary)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: \"%.100s\" has an id outside the vocabulary 0..%" PRId64, where,
                            name.bytes, vocabulary - 1);
        COH_TRY(coh_id_list_add(list, (int32_t)id));
    }
    return COH_OK;
}

static coh_status read_template(const char *where, const json_t *part, coh_tokenizer *tokenizer)
{
    static const char *const known[] = { "type", "single", "pair", "special_tokens", NULL };
    json_t *single = NULL, *item;
    size_t index;
    int text_count = 0;
    int64_t vocabulary = tokenizer->pipeline->names.count;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_array(where, part, "single", &single));
    json_array_foreach(single, index, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        const json_t *sequence = json_object_get(item, "Sequence");
        if (special) {
            COH_TRY(add_special(where, json_object_get(part, "special_tokens"), special, vocabulary,
                                text_count ? &tokenizer->after : &tokenizer->before));
            continue;
        }
        const char *which = json_string_value(json_object_get(sequence, "id"));
        if (!which || strcmp(which, "A") != 0 || text_count++)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: \"single\" is not one text A with special tokens around it",
                            where);
    }
    if (text_count != 1)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"single\" does not have the text A", where);
    return COH_OK;
}

static coh_status read_post_processor(const char *where, const json_t *part, int depth,
                                      int *template_count, coh_tokenizer *tokenizer)
{
    static const char *const known[] = { "type", "processors", NULL };
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (strcmp(type, "ByteLevel") == 0) /* changes only offsets, which are not used here */
        return COH_OK;
    if (strcmp(type, "TemplateProcessing") == 0 && (*template_count)++ == 0)
        return read_template(where, part, tokenizer);
    if (strcmp(type, "Sequence") != 0 || depth)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is of type \"%.60s\", which is not supported: ByteLevel, one "
                        "TemplateProcessing and a Sequence of them are",
                        where, type);
    COH_TRY(coh_json_check_fields(where, part, known));
    json_t *list, *inner;
    size_t index;
    COH_TRY(coh_json_array(where, part, "processors", &list));
    json_array_foreach(list, index, inner)
    {
        coh_json_where at = coh_json_at("%s.processors[%zu]", where, index);
        COH_TRY(read_post_processor(at.text, inner, 1, template_count, tokenizer));
    }
    return COH_OK;
}

/* ---- whole file ---- */

static int add_dumped(const char *text, size_t bytes, void *identity)
{
    XXH3_64bits_update(identity, text, bytes);
    return 0;
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
        if (part && json_dump_callback(part, add_dumped, &identity,
                                       JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) != 0)
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
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL
    };
    COH_TRY(coh_json_check_fields(path, root, known));
    const json_t *version = json_object_get(root, "version");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"version\" is not \"1.0\"", path);
    /* "truncation" and "padding" are leftovers of a program's last call; transformers ignores them
     * by default. */
    const json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_array(added))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"added_tokens\" is not a list", path);
    if (!json_is_object(json_object_get(json_object_get(root, "model"), "vocab")))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"model\" has no object \"vocab\" of tokens with ids",
                        path);
    return COH_OK;
}

static coh_status read_tokens(token_list *list, const json_t *root, coh_pipeline *pipeline)
{
    const json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    COH_TRY(count_ids(list->path, vocabulary, added, &list->count));
    COH_TRY(COH_ALLOC(list->count, &list->names));
    COH_TRY(COH_ALLOC(list->count, &list->spelled));
    COH_TRY(COH_ALLOC(list->count, &list->is_own));
    COH_TRY(read_vocabulary(list, vocabulary));
    COH_TRY(coh_json_read_normalizer(list->path, json_object_get(root, "normalizer"), pipeline));
    COH_TRY(read_added(list, added, vocabulary, pipeline));
    COH_TRY(coh_token_table_fill(&pipeline->names, list->names, list->count));
    return coh_token_table_index(&pipeline->names);
}

static coh_status read_root(token_list *list, const json_t *root, coh_tokenizer *tokenizer)
{
    const char *path = list->path;
    coh_pipeline *pipeline;
    COH_TRY(check_root(path, root));
    COH_TRY(coh_tokenizer_begin_pipeline(tokenizer, &pipeline));
    const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
    COH_TRY(coh_json_read_pre_tokenizer(path, pre_tokenizer, pipeline));
    COH_TRY(read_tokens(list, root, pipeline));
    COH_TRY(coh_json_read_model(path, json_object_get(root, "model"), list->is_own, pipeline));
    COH_TRY(coh_json_read_decoder(path, json_object_get(root, "decoder"), list->spelled, pipeline));
    const json_t *post = json_object_get(root, "post_processor");
    int template_count = 0;
    if (post && !json_is_null(post))
        COH_TRY(read_post_processor(coh_json_at("%s: post_processor", path).text, post, 0,
                                    &template_count, tokenizer));
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
