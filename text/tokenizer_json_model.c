/* Reads the model of tokenizer.json: its merges, and the initial symbols of words. Next: bpe.c,
 * which is filled here, and tokenizer_json.c for the caller. */
#include <inttypes.h>
#include <limits.h>

#include "text/alphabet.h"
#include "text/characters.h"
#include "text/tokenizer_json.h"

typedef struct model_reader {
    const char *where;
    const uint8_t *is_own; /* by id */
    coh_pipeline *pipeline;
    coh_byte_list joined; /* buffer for two tokens as one name */
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
    static const char *const known[] = { "type",
                                         "dropout",
                                         "unk_token",
                                         "continuing_subword_prefix",
                                         "end_of_word_suffix",
                                         "fuse_unk",
                                         "byte_fallback",
                                         "ignore_merges",
                                         "vocab",
                                         "merges",
                                         NULL };
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (type[0] && strcmp(type, "BPE") != 0)
        return coh_fail(COH_ERR_CORRUPT, "%s is of type \"%.60s\": only BPE is supported", where,
                        type);
    COH_TRY(coh_json_check_fields(where, part, known));
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
    for (int byte = 0; byte < 256; byte++) {
        if (byte_id[byte] < 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: no token represents byte 0x%02x alone; all 256 are needed to "
                            "encode any text",
                            r->where, (unsigned)byte);
    }
    return COH_OK;
}

static coh_status find_characters(const model_reader *r)
{
    const coh_token_table *names = &r->pipeline->names;
    coh_bpe *model = r->pipeline->model;
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        for (int32_t id = 0; id < names->count; id++) {
            coh_slice name = coh_token_table_at(names, id);
            const uint8_t *text = (const uint8_t *)name.bytes;
            if (!r->is_own[id] || name.count == 0 || name.count > 4 ||
                coh_utf8_character(text, name.count) != name.count)
                continue;
            count++;
            if (pass == 1)
                coh_bpe_add_character(model, coh_utf8_value(text, name.count), id);
        }
        if (pass == 0)
            COH_TRY(coh_bpe_reserve_characters(model, count));
    }
    return COH_OK;
}

/* Fills the table of words that are tokens as a whole, by their bytes. */
static coh_status find_whole_words(const model_reader *r, const coh_alphabet *alphabet)
{
    const coh_token_table *names = &r->pipeline->names;
    coh_status status;
    coh_slice *words = NULL;
    uint8_t *bytes = NULL, *room;
    COH_TRY_GOTO(status, COH_ALLOC(names->count, &words), done);
    COH_TRY_GOTO(status, COH_ALLOC(names->begin[names->count], &bytes), done);
    room = bytes;
    for (int64_t id = 0; id < names->count; id++) {
        coh_slice name = coh_token_table_at(names, id);
        if (!r->is_own[id])
            continue;
        words[id] = name;
        if (!r->pipeline->is_byte_level)
            continue;
        ptrdiff_t count = coh_alphabet_decode(alphabet, name, room);
        words[id] = (coh_slice){ (const char *)room, count < 0 ? 0 : (size_t)count };
        room += words[id].count;
    }
    COH_TRY_GOTO(status,
                 coh_token_table_fill(&r->pipeline->model->whole_words, words, names->count), done);
    status = coh_token_table_index(&r->pipeline->model->whole_words);
done:
    coh_free(bytes);
    coh_free(words);
    return status;
}

/* ---- merges ---- */

static coh_status find_own(const model_reader *r, size_t index, coh_slice name, int32_t *out_id)
{
    *out_id = coh_token_table_find(&r->pipeline->names, name.bytes, name.count);
    if (*out_id < 0 || !r->is_own[*out_id])
        return coh_fail(COH_ERR_CORRUPT, "%s.merges[%zu]: \"%.*s\" is not in the vocabulary",
                        r->where, index, (int)(name.count < 100 ? name.count : 100), name.bytes);
    return COH_OK;
}

static coh_status add_merge(model_reader *r, size_t index, coh_slice left_name,
                            coh_slice right_name)
{
    int32_t left = -1, right = -1, result = -1;
    int is_new;
    COH_TRY(find_own(r, index, left_name, &left));
    COH_TRY(find_own(r, index, right_name, &right));
    r->joined.count = 0;
    COH_TRY(coh_byte_list_add(&r->joined, left_name.bytes, left_name.count));
    COH_TRY(coh_byte_list_add(&r->joined, right_name.bytes, right_name.count));
    COH_TRY(
        find_own(r, index, (coh_slice){ (const char *)r->joined.bytes, r->joined.count }, &result));
    coh_bpe *model = r->pipeline->model;
    coh_bpe_add_merge(model, left, right, (int32_t)model->merge_count, result, &is_new);
    if (!is_new)
        return coh_fail(COH_ERR_CORRUPT, "%s.merges[%zu]: this pair occurs a second time", r->where,
                        index);
    return COH_OK;
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
    COH_TRY(coh_bpe_reserve_merges(r->pipeline->model, json_array_size(merges)));
    json_array_foreach(merges, index, merge) COH_TRY(read_merge(r, index, merge));
    return COH_OK;
}

coh_status coh_json_read_model(const char *path, const json_t *part, const uint8_t *is_own,
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
    if (takes_whole_words)
        COH_TRY(find_whole_words(&r, &alphabet));
    coh_status status = read_merges(&r, part);
    coh_free(r.joined.bytes);
    return status;
}
