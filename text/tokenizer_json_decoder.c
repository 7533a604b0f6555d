/* Reads the decoders of tokenizer.json. The one idea: the result of the decoder chain for each
 * token is computed once, when the file is read. Next: pipeline.c, which uses the table of
 * texts. */
#include "text/alphabet.h"
#include "text/characters.h"
#include "text/tokenizer_json.h"

#define REPLACE_MAX        8
#define SEQUENCE_DEPTH_MAX 8

/* A chain that can be computed per token: replacements, then bytes, then joining and stripping the
 * start; or only ByteLevel, or only Metaspace. */
typedef struct chain {
    struct replacement {
        coh_slice from, to;
    } replacements[REPLACE_MAX];
    int replace_count;
    int is_byte_level, is_metaspace, has_bytes, is_fused, is_stripped;
} chain;

static coh_status refuse_order(const char *where, const char *type)
{
    return coh_fail(COH_ERR_CORRUPT,
                    "%s: %s at this place of the chain is not supported: ByteLevel alone, or "
                    "Replace, Metaspace, ByteFallback, Fuse and Strip in this order are",
                    where, type);
}

static coh_status read_strip(const char *where, const json_t *part, chain *c, coh_pipeline *p)
{
    static const char *const known[] = { "type", "content", "start", "stop", NULL };
    coh_slice mark = { 0 };
    int64_t start = 0, stop = 0;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_text(where, part, "content", &mark));
    COH_TRY(coh_json_count(where, part, "start", INT32_MAX, &start));
    COH_TRY(coh_json_count(where, part, "stop", INT32_MAX, &stop));
    if (coh_utf8_character((const uint8_t *)mark.bytes, mark.count) != mark.count || !mark.count)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"content\" is not one character", where);
    if (stop != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"stop\" is not 0: taking characters off the end is not supported",
                        where);
    if (!c->is_fused || c->is_stripped || c->is_metaspace)
        return refuse_order(where, "Strip");
    c->is_stripped = 1;
    p->decode_begin = COH_BEGIN_STRIPPED;
    p->decode_strip_count = (size_t)start;
    return coh_byte_list_add(&p->decode_mark, mark.bytes, mark.count);
}

static coh_status read_replace(const char *where, const json_t *part, chain *c)
{
    static const char *const known[] = { "type", "pattern", "content", NULL };
    static const char *const known_pattern[] = { "String", NULL };
    coh_json_where inner = coh_json_at("%s.pattern", where);
    const json_t *pattern = json_object_get(part, "pattern");
    if (c->is_byte_level || c->is_metaspace || c->has_bytes || c->is_fused ||
        c->replace_count == REPLACE_MAX)
        return refuse_order(where, "Replace");
    struct replacement *next = &c->replacements[c->replace_count];
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_text(where, part, "content", &next->to));
    COH_TRY(coh_json_check_fields(inner.text, pattern, known_pattern));
    COH_TRY(coh_json_text(inner.text, pattern, "String", &next->from));
    if (next->from.count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"String\" is empty", inner.text);
    c->replace_count++;
    return COH_OK;
}

static coh_status read_metaspace(const char *where, const json_t *part, chain *c, coh_pipeline *p)
{
    static const char *const known[] = {
        "type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep", NULL
    };
    coh_slice mark = { 0 }, scheme = { "always", 6 };
    int has_prefix = 0;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_text(where, part, "replacement", &mark));
    if (json_object_get(part, "prepend_scheme"))
        COH_TRY(coh_json_text(where, part, "prepend_scheme", &scheme));
    COH_TRY(coh_field_flag(where, part, "add_prefix_space", 1, &has_prefix));
    if (coh_utf8_character((const uint8_t *)mark.bytes, mark.count) != mark.count || !mark.count)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"replacement\" is not one character", where);
    if (c->is_byte_level || c->is_metaspace || c->replace_count || c->has_bytes || c->is_fused)
        return refuse_order(where, "Metaspace");
    c->is_metaspace = 1;
    c->replacements[c->replace_count++] = (struct replacement){ mark, { " ", 1 } };
    if (has_prefix && strcmp(scheme.bytes, "never") != 0)
        p->decode_begin = COH_BEGIN_FIRST_TOKEN;
    return coh_byte_list_add(&p->decode_mark, mark.bytes, mark.count);
}

static coh_status read_byte_level(const char *where, const json_t *part, chain *c)
{
    static const char *const known[] = { "type", "add_prefix_space", "trim_offsets", "use_regex",
                                         NULL };
    COH_TRY(coh_json_check_fields(where, part, known));
    if (c->is_byte_level || c->is_metaspace || c->replace_count || c->has_bytes || c->is_fused)
        return refuse_order(where, "ByteLevel");
    c->is_byte_level = 1;
    return COH_OK;
}

static coh_status read_decoder(const char *where, const json_t *part, int depth, chain *c,
                               coh_pipeline *p)
{
    static const char *const known[] = { "type", NULL };
    static const char *const known_sequence[] = { "type", "decoders", NULL };
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(where, part, c);
    if (strcmp(type, "Replace") == 0)
        return read_replace(where, part, c);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(where, part, c, p);
    if (strcmp(type, "Strip") == 0)
        return read_strip(where, part, c, p);
    if (strcmp(type, "Fuse") == 0) {
        c->is_fused = 1;
        return coh_json_check_fields(where, part, known);
    }
    if (strcmp(type, "ByteFallback") == 0) {
        if (c->is_byte_level || c->has_bytes || c->is_fused)
            return refuse_order(where, "ByteFallback");
        c->has_bytes = 1;
        return coh_json_check_fields(where, part, known);
    }
    if (strcmp(type, "Sequence") != 0 || depth == SEQUENCE_DEPTH_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s is of type \"%.60s\", which is not supported", where,
                        type);
    COH_TRY(coh_json_check_fields(where, part, known_sequence));
    json_t *list, *inner;
    size_t index;
    COH_TRY(coh_json_array(where, part, "decoders", &list));
    json_array_foreach(list, index, inner)
    {
        coh_json_where at = coh_json_at("%s.decoders[%zu]", where, index);
        COH_TRY(read_decoder(at.text, inner, depth + 1, c, p));
    }
    return COH_OK;
}

/* ---- tokens ---- */

/* Decodes `token` into `text`, which is empty. `spare` is scratch memory. */
static coh_status decode_token(const chain *c, const coh_alphabet *alphabet, coh_slice token,
                               coh_byte_list *text, coh_byte_list *spare)
{
    COH_TRY(coh_byte_list_add(text, token.bytes, token.count));
    if (c->is_byte_level) {
        ptrdiff_t count = coh_alphabet_decode(alphabet, token, text->bytes);
        if (count >= 0) /* else the token is unchanged */
            text->count = (size_t)count;
        else if (token.count)
            memcpy(text->bytes, token.bytes, token.count);
        return COH_OK;
    }
    for (int i = 0; i < c->replace_count; i++) {
        const struct replacement *replacement = &c->replacements[i];
        spare->count = 0;
        for (size_t at = 0; at < text->count;) {
            const uint8_t *found = memmem(text->bytes + at, text->count - at,
                                          replacement->from.bytes, replacement->from.count);
            size_t end = found ? (size_t)(found - text->bytes) : text->count;
            COH_TRY(coh_byte_list_add(spare, text->bytes + at, end - at));
            if (found)
                COH_TRY(coh_byte_list_add(spare, replacement->to.bytes, replacement->to.count));
            at = found ? end + replacement->from.count : end;
        }
        coh_byte_list swapped = *text;
        *text = *spare;
        *spare = swapped;
    }
    int byte = c->has_bytes && text->bytes
                   ? coh_tokenizer_byte_of((coh_slice){ (const char *)text->bytes, text->count })
                   : -1;
    if (byte >= 0) {
        text->bytes[0] = (uint8_t)byte;
        text->count = 1;
    }
    return COH_OK;
}

/* Decodes all tokens one after the other into `all`; begins[id] is where each begins. */
static coh_status decode_tokens(const chain *c, const coh_slice *spelled, coh_pipeline *p,
                                coh_byte_list *all, size_t *begins)
{
    coh_alphabet alphabet;
    coh_alphabet_fill(&alphabet);
    coh_byte_list text = { 0 }, spare = { 0 };
    coh_status status = COH_OK;
    int64_t count = p->names.count;
    for (int64_t id = 0; id < count && status == COH_OK; id++) {
        coh_slice token = spelled[id].bytes ? spelled[id] : coh_token_table_at(&p->names, id);
        text.count = 0;
        status = decode_token(c, &alphabet, token, &text, &spare);
        if (status == COH_OK)
            status = coh_byte_list_add(all, text.bytes, text.count);
        begins[id + 1] = all->count;
    }
    coh_free(spare.bytes);
    coh_free(text.bytes);
    return status;
}

static coh_status fill_texts(const chain *c, const coh_slice *spelled, coh_pipeline *p)
{
    coh_status status;
    coh_byte_list all = { 0 };
    size_t *begins = NULL;
    coh_slice *texts = NULL;
    int64_t count = p->names.count;
    COH_TRY_GOTO(status, COH_ALLOC(count + 1, &begins), done);
    COH_TRY_GOTO(status, COH_ALLOC(count, &texts), done);
    COH_TRY_GOTO(status, decode_tokens(c, spelled, p, &all, begins), done);
    for (int64_t id = 0; id < count && all.count; id++)
        texts[id] =
            (coh_slice){ (const char *)all.bytes + begins[id], begins[id + 1] - begins[id] };
    status = coh_token_table_fill(&p->texts, texts, count);
done:
    coh_free(texts);
    coh_free(begins);
    coh_free(all.bytes);
    return status;
}

coh_status coh_json_read_decoder(const char *path, const json_t *part, const coh_slice *spelled,
                                 coh_pipeline *pipeline)
{
    if (!part || json_is_null(part))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: there is no decoder, so that a text would come back with spaces "
                        "between its tokens: name one, as {\"type\": \"ByteLevel\"}",
                        path);
    chain c = { 0 };
    coh_json_where where = coh_json_at("%s: decoder", path);
    COH_TRY(read_decoder(where.text, part, 0, &c, pipeline));
    return fill_texts(&c, spelled, pipeline);
}
