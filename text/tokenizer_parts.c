/* Reads the parts of tokenizer.json that cut, change and surround texts. The one idea: a table has
 * a reader for each type of part. Parts become steps of the pipeline, in the same order; the result
 * of the decoders for each token is computed once. Next: normalize.c and pipeline.c, which run the
 * steps, and tokenizer_json.c for the caller. */
#include <inttypes.h>
#include <stdio.h>

#include "text/characters.h"
#include "text/pattern.h"
#include "text/tokenizer_files.h"

#define SEQUENCE_DEPTH_MAX 8
#define REPLACE_MAX        8

/* A chain that can be computed per token: replacements, then bytes, then joining and stripping the
 * start; or only ByteLevel, or only Metaspace. */
typedef struct chain {
    struct replacement {
        coh_slice from, to;
    } replacements[REPLACE_MAX];
    int replace_count;
    int is_byte_level, is_metaspace, has_bytes, is_fused, is_stripped;
} chain;

/* Destination of the parts that are read. */
typedef struct reader {
    coh_tokenizer *tokenizer;
    coh_pipeline *pipeline;
    chain chain;        /* of decoders */
    int template_count; /* of post-processors */
} reader;

/* The types of parts at one place of the file. A Sequence, which every place may have, lists others
 * in its member `list`. */
typedef struct part_kinds {
    const char *list;
    const char *supported; /* ends the message about other types */
    int depth_most;        /* of a Sequence in Sequences */
    /* Is a part of any type in order here? NULL: yes. */
    coh_status (*check)(const reader *r, const char *where, const char *type);
    struct part_kind {
        const char *type;
        coh_status (*read)(reader *r, const char *where, const json_t *part);
    } kinds[8]; /* ended by a NULL type */
} part_kinds;

static coh_status refuse_type(const part_kinds *kinds, const char *where, const char *type)
{
    return coh_fail(COH_ERR_CORRUPT, "%s is of type \"%.60s\", which is not supported%s", where,
                    type, kinds->supported);
}

static coh_status read_part(reader *r, const part_kinds *kinds, const char *where,
                            const json_t *part, int depth)
{
    char known[40];
    const char *type;
    json_t *list, *inner;
    size_t index;
    COH_TRY(coh_json_type(where, part, &type));
    if (kinds->check)
        COH_TRY(kinds->check(r, where, type));
    for (const struct part_kind *kind = kinds->kinds; kind->type; kind++)
        if (strcmp(kind->type, type) == 0)
            return kind->read(r, where, part);
    if (strcmp(type, "Sequence") != 0 || depth == kinds->depth_most)
        return refuse_type(kinds, where, type);
    snprintf(known, sizeof(known), "type %s", kinds->list);
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_array(where, part, kinds->list, &list));
    json_array_foreach(list, index, inner)
    {
        coh_json_where at = coh_json_at("%s.%s[%zu]", where, kinds->list, index);
        COH_TRY(read_part(r, kinds, at.text, inner, depth + 1));
    }
    return COH_OK;
}

/* Reads member `name` of the file, which may be null or missing. */
static coh_status read_member(reader *r, const part_kinds *kinds, const char *path,
                              const json_t *root, const char *name)
{
    const json_t *part = json_object_get(root, name);
    if (!part || json_is_null(part))
        return COH_OK;
    return read_part(r, kinds, coh_json_at("%s: %s", path, name).text, part, 0);
}

/* Checks that the text is exactly one character, as required of a mark or a replaced sign. */
static coh_status check_character(const char *where, const char *key, coh_slice text)
{
    const uint8_t *bytes = (const uint8_t *)text.bytes;
    if (text.count == 0 || coh_utf8_character(bytes, text.count) != text.count)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not one character", where, key);
    return COH_OK;
}

/* ---- normalizers ---- */

static coh_status read_nfc(reader *r, const char *where, const json_t *part)
{
    coh_normalizer *normalizer = &r->pipeline->normalizer;
    COH_TRY(coh_json_check_fields(where, part, "type"));
    if (normalizer->nfc || normalizer->step_count)
        return coh_fail(COH_ERR_CORRUPT, "%s: NFC is supported as the first normalizer only",
                        where);
    return coh_normalizer_add_nfc(normalizer);
}

static coh_status read_replace(reader *r, const char *where, const json_t *part)
{
    const json_t *pattern = json_object_get(part, "pattern");
    coh_slice from = { 0 }, to = { 0 };
    COH_TRY(coh_json_check_fields(where, part, "type pattern content"));
    COH_TRY(coh_json_text(where, part, "content", &to));
    coh_json_where inner = coh_json_at("%s.pattern", where);
    COH_TRY(coh_json_check_fields(inner.text, pattern, "String"));
    COH_TRY(coh_json_text(inner.text, pattern, "String", &from));
    COH_TRY(check_character(inner.text, "String", from));
    return coh_normalizer_add_step(&r->pipeline->normalizer, from, to);
}

static coh_status read_prepend(reader *r, const char *where, const json_t *part)
{
    coh_slice mark = { 0 };
    COH_TRY(coh_json_check_fields(where, part, "type prepend"));
    COH_TRY(coh_json_text(where, part, "prepend", &mark));
    return coh_normalizer_add_step(&r->pipeline->normalizer, (coh_slice){ 0 }, mark);
}

static const part_kinds normalizers = {
    .list = "normalizers",
    .supported = ": NFC, Prepend, Replace of one character and Sequence are",
    .depth_most = SEQUENCE_DEPTH_MAX,
    .kinds = { { "NFC", read_nfc }, { "Prepend", read_prepend }, { "Replace", read_replace } },
};

/* ---- pre-tokenizers ---- */

static coh_status read_behavior(const char *where, const json_t *part,
                                coh_split_behavior *out_behavior)
{
    static const char *const names[] = {
        [COH_SPLIT_REMOVED] = "Removed",
        [COH_SPLIT_ISOLATED] = "Isolated",
        [COH_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [COH_SPLIT_WITH_NEXT] = "MergedWithNext",
        [COH_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    coh_slice name = { 0 };
    COH_TRY(coh_json_text(where, part, "behavior", &name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name.bytes) == 0) {
            *out_behavior = (coh_split_behavior)i;
            return COH_OK;
        }
    }
    return coh_fail(COH_ERR_CORRUPT, "%s: \"behavior\" is \"%.60s\", which is none of the five",
                    where, name.bytes);
}

/* Adds a step that cuts at `pattern` (PCRE2's); messages begin with `where`. */
static coh_status add_pcre2(reader *r, const char *where, const char *pattern,
                            coh_split_behavior behavior)
{
    coh_pipeline_step *step;
    COH_TRY(coh_pipeline_add_step(r->pipeline, where, &step));
    return coh_split_create(where, pattern, strlen(pattern), behavior, 0, &step->split);
}

/* Adds a step that cuts at `text`. */
static coh_status add_quoted(reader *r, const char *where, coh_slice text,
                             coh_split_behavior behavior, int is_inverted)
{
    coh_byte_list quoted = { 0 };
    coh_pipeline_step *step;
    coh_status status = coh_pattern_quote(text, &quoted);
    if (status == COH_OK)
        status = coh_pipeline_add_step(r->pipeline, where, &step);
    if (status == COH_OK)
        status = coh_split_create(where, (const char *)quoted.bytes, quoted.count, behavior,
                                  is_inverted, &step->split);
    coh_free(quoted.bytes);
    return status;
}

/* Adds a step that puts a mark before pieces. */
static coh_status add_mark(reader *r, const char *where, coh_mark_scheme scheme, coh_slice mark)
{
    coh_pipeline_step *step;
    COH_TRY(coh_pipeline_add_step(r->pipeline, where, &step));
    step->scheme = scheme;
    return coh_byte_list_add(&step->mark, mark.bytes, mark.count);
}

static coh_status read_split(reader *r, const char *where, const json_t *part)
{
    const json_t *pattern = json_object_get(part, "pattern");
    coh_json_where inner = coh_json_at("%s.pattern", where);
    coh_split_behavior behavior = COH_SPLIT_ISOLATED;
    int is_inverted = 0;
    coh_slice text = { 0 };
    COH_TRY(coh_json_check_fields(where, part, "type pattern behavior invert"));
    COH_TRY(read_behavior(where, part, &behavior));
    COH_TRY(coh_field_flag(where, part, "invert", -1, &is_inverted));
    COH_TRY(coh_json_check_fields(inner.text, pattern, "String Regex"));
    if (json_object_size(pattern) != 1)
        return coh_fail(COH_ERR_CORRUPT, "%s is not one of \"String\" and \"Regex\"", inner.text);
    if (json_object_get(pattern, "Regex")) {
        COH_TRY(coh_json_text(inner.text, pattern, "Regex", &text));
        return coh_pipeline_add_split(r->pipeline, inner.text, text, behavior, is_inverted);
    }
    COH_TRY(coh_json_text(inner.text, pattern, "String", &text));
    return add_quoted(r, inner.text, text, behavior, is_inverted);
}

static coh_status read_byte_level(reader *r, const char *where, const json_t *part)
{
    int has_prefix = 0, has_pattern = 0;
    COH_TRY(coh_json_check_fields(where, part, "type add_prefix_space trim_offsets use_regex"));
    COH_TRY(coh_field_flag(where, part, "add_prefix_space", -1, &has_prefix));
    COH_TRY(coh_field_flag(where, part, "use_regex", 1, &has_pattern));
    r->pipeline->is_byte_level = 1;
    if (has_prefix)
        COH_TRY(add_mark(r, where, COH_MARK_ALWAYS, (coh_slice){ " ", 1 }));
    if (!has_pattern)
        return COH_OK;
    return coh_pipeline_add_split(r->pipeline, where,
                                  (coh_slice){ coh_split_gpt2, strlen(coh_split_gpt2) },
                                  COH_SPLIT_ISOLATED, 0);
}

static coh_status read_scheme(const char *where, const json_t *part, coh_mark_scheme *out_scheme)
{
    static const char *const names[] = {
        [COH_MARK_NEVER] = "never", [COH_MARK_FIRST] = "first", [COH_MARK_ALWAYS] = "always"
    };
    coh_slice name = { "always", 6 };
    int has_prefix;
    if (json_object_get(part, "prepend_scheme"))
        COH_TRY(coh_json_text(where, part, "prepend_scheme", &name));
    int index = 0;
    while (index < 3 && strcmp(names[index], name.bytes) != 0)
        index++;
    if (index == 3)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"prepend_scheme\" is \"%.60s\", which is neither always nor first "
                        "nor never",
                        where, name.bytes);
    COH_TRY(coh_field_flag(where, part, "add_prefix_space", index != COH_MARK_NEVER, &has_prefix));
    if (!has_prefix && index != COH_MARK_NEVER)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: \"add_prefix_space\" is false and \"prepend_scheme\" is not never",
                        where);
    *out_scheme = (coh_mark_scheme)index;
    return COH_OK;
}

static coh_status read_metaspace(reader *r, const char *where, const json_t *part)
{
    coh_slice mark = { 0 };
    coh_mark_scheme scheme = COH_MARK_ALWAYS;
    int is_split = 0;
    COH_TRY(coh_json_check_fields(
        where, part, "type replacement prepend_scheme add_prefix_space split str_rep"));
    COH_TRY(coh_json_text(where, part, "replacement", &mark));
    COH_TRY(check_character(where, "replacement", mark));
    COH_TRY(read_scheme(where, part, &scheme));
    COH_TRY(coh_field_flag(where, part, "split", 1, &is_split));
    COH_TRY(add_mark(r, where, scheme, mark));
    return is_split ? add_quoted(r, where, mark, COH_SPLIT_WITH_NEXT, 0) : COH_OK;
}

static coh_status read_digits(reader *r, const char *where, const json_t *part)
{
    int is_individual = 0;
    COH_TRY(coh_json_check_fields(where, part, "type individual_digits"));
    COH_TRY(coh_field_flag(where, part, "individual_digits", -1, &is_individual));
    return add_pcre2(r, where, coh_pattern_numeric,
                     is_individual ? COH_SPLIT_ISOLATED : COH_SPLIT_CONTIGUOUS);
}

static coh_status read_punctuation(reader *r, const char *where, const json_t *part)
{
    coh_split_behavior behavior = COH_SPLIT_ISOLATED;
    COH_TRY(coh_json_check_fields(where, part, "type behavior"));
    if (json_object_get(part, "behavior"))
        COH_TRY(read_behavior(where, part, &behavior));
    return add_pcre2(r, where, coh_pattern_punctuation, behavior);
}

static coh_status check_last(const reader *r, const char *where, const char *type)
{
    if (!r->pipeline->is_byte_level)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s is of type \"%.60s\" and comes after ByteLevel, which must be the last",
                    where, type);
}

static const part_kinds pre_tokenizers = {
    .list = "pretokenizers",
    .supported = ": ByteLevel, Split, Metaspace, Digits, Punctuation and Sequence are",
    .depth_most = SEQUENCE_DEPTH_MAX,
    .check = check_last,
    .kinds = { { "Split", read_split },
               { "ByteLevel", read_byte_level },
               { "Metaspace", read_metaspace },
               { "Digits", read_digits },
               { "Punctuation", read_punctuation } },
};

/* ---- tokens around a text ---- */

static const part_kinds post_processors;

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

static coh_status read_template(reader *r, const char *where, const json_t *part)
{
    coh_tokenizer *tokenizer = r->tokenizer;
    json_t *single = NULL, *item;
    size_t index;
    int text_count = 0;
    int64_t vocabulary = r->pipeline->names.count;
    if (r->template_count++)
        return refuse_type(&post_processors, where, "TemplateProcessing");
    COH_TRY(coh_json_check_fields(where, part, "type single pair special_tokens"));
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

/* Changes only offsets, which are not used here. */
static coh_status read_offsets(reader *r, const char *where, const json_t *part)
{
    (void)r;
    (void)where;
    (void)part;
    return COH_OK;
}

static const part_kinds post_processors = {
    .list = "processors",
    .supported = ": ByteLevel, one TemplateProcessing and a Sequence of them are",
    .depth_most = 1,
    .kinds = { { "ByteLevel", read_offsets }, { "TemplateProcessing", read_template } },
};

/* ---- decoders ---- */

static coh_status refuse_order(const char *where, const char *type)
{
    return coh_fail(COH_ERR_CORRUPT,
                    "%s: %s at this place of the chain is not supported: ByteLevel alone, or "
                    "Replace, Metaspace, ByteFallback, Fuse and Strip in this order are",
                    where, type);
}

static coh_status decode_strip(reader *r, const char *where, const json_t *part)
{
    chain *c = &r->chain;
    coh_pipeline *p = r->pipeline;
    coh_slice mark = { 0 };
    int64_t start = 0, stop = 0;
    COH_TRY(coh_json_check_fields(where, part, "type content start stop"));
    COH_TRY(coh_json_text(where, part, "content", &mark));
    COH_TRY(coh_json_count(where, part, "start", INT32_MAX, &start));
    COH_TRY(coh_json_count(where, part, "stop", INT32_MAX, &stop));
    COH_TRY(check_character(where, "content", mark));
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

static coh_status decode_replace(reader *r, const char *where, const json_t *part)
{
    chain *c = &r->chain;
    coh_json_where inner = coh_json_at("%s.pattern", where);
    const json_t *pattern = json_object_get(part, "pattern");
    if (c->is_byte_level || c->is_metaspace || c->has_bytes || c->is_fused ||
        c->replace_count == REPLACE_MAX)
        return refuse_order(where, "Replace");
    struct replacement *next = &c->replacements[c->replace_count];
    COH_TRY(coh_json_check_fields(where, part, "type pattern content"));
    COH_TRY(coh_json_text(where, part, "content", &next->to));
    COH_TRY(coh_json_check_fields(inner.text, pattern, "String"));
    COH_TRY(coh_json_text(inner.text, pattern, "String", &next->from));
    if (next->from.count == 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"String\" is empty", inner.text);
    c->replace_count++;
    return COH_OK;
}

static coh_status decode_metaspace(reader *r, const char *where, const json_t *part)
{
    chain *c = &r->chain;
    coh_pipeline *p = r->pipeline;
    coh_slice mark = { 0 }, scheme = { "always", 6 };
    int has_prefix = 0;
    COH_TRY(coh_json_check_fields(
        where, part, "type replacement prepend_scheme add_prefix_space split str_rep"));
    COH_TRY(coh_json_text(where, part, "replacement", &mark));
    if (json_object_get(part, "prepend_scheme"))
        COH_TRY(coh_json_text(where, part, "prepend_scheme", &scheme));
    COH_TRY(coh_field_flag(where, part, "add_prefix_space", 1, &has_prefix));
    COH_TRY(check_character(where, "replacement", mark));
    if (c->is_byte_level || c->is_metaspace || c->replace_count || c->has_bytes || c->is_fused)
        return refuse_order(where, "Metaspace");
    c->is_metaspace = 1;
    c->replacements[c->replace_count++] = (struct replacement){ mark, { " ", 1 } };
    if (has_prefix && strcmp(scheme.bytes, "never") != 0)
        p->decode_begin = COH_BEGIN_FIRST_TOKEN;
    return coh_byte_list_add(&p->decode_mark, mark.bytes, mark.count);
}

static coh_status decode_byte_level(reader *r, const char *where, const json_t *part)
{
    chain *c = &r->chain;
    COH_TRY(coh_json_check_fields(where, part, "type add_prefix_space trim_offsets use_regex"));
    if (c->is_byte_level || c->is_metaspace || c->replace_count || c->has_bytes || c->is_fused)
        return refuse_order(where, "ByteLevel");
    c->is_byte_level = 1;
    return COH_OK;
}

static coh_status decode_fuse(reader *r, const char *where, const json_t *part)
{
    r->chain.is_fused = 1;
    return coh_json_check_fields(where, part, "type");
}

static coh_status decode_bytes(reader *r, const char *where, const json_t *part)
{
    chain *c = &r->chain;
    if (c->is_byte_level || c->has_bytes || c->is_fused)
        return refuse_order(where, "ByteFallback");
    c->has_bytes = 1;
    return coh_json_check_fields(where, part, "type");
}

static const part_kinds decoders = {
    .list = "decoders",
    .supported = "",
    .depth_most = SEQUENCE_DEPTH_MAX,
    .kinds = { { "ByteLevel", decode_byte_level },
               { "Replace", decode_replace },
               { "Metaspace", decode_metaspace },
               { "Strip", decode_strip },
               { "Fuse", decode_fuse },
               { "ByteFallback", decode_bytes } },
};

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

static coh_status fill_texts(const chain *c, const coh_slice *spelled, coh_pipeline *p)
{
    coh_alphabet alphabet;
    coh_byte_list text = { 0 }, spare = { 0 };
    coh_status status = COH_OK;
    coh_alphabet_fill(&alphabet);
    for (int64_t id = 0; id < p->names.count && status == COH_OK; id++) {
        coh_slice token = spelled[id].bytes ? spelled[id] : coh_token_table_at(&p->names, id);
        text.count = 0;
        status = decode_token(c, &alphabet, token, &text, &spare);
        if (status == COH_OK)
            status =
                coh_token_table_add(&p->texts, (coh_slice){ (const char *)text.bytes, text.count });
    }
    coh_free(spare.bytes);
    coh_free(text.bytes);
    return status;
}

/* ---- the places of the file ---- */

coh_status coh_json_read_normalizer(const char *path, const json_t *root, coh_tokenizer *tokenizer)
{
    reader r = { .pipeline = tokenizer->pipeline };
    return read_member(&r, &normalizers, path, root, "normalizer");
}

coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *root,
                                       coh_tokenizer *tokenizer)
{
    reader r = { .pipeline = tokenizer->pipeline };
    return read_member(&r, &pre_tokenizers, path, root, "pre_tokenizer");
}

coh_status coh_json_read_post_processor(const char *path, const json_t *root,
                                        coh_tokenizer *tokenizer)
{
    reader r = { .tokenizer = tokenizer, .pipeline = tokenizer->pipeline };
    return read_member(&r, &post_processors, path, root, "post_processor");
}

coh_status coh_json_read_decoder(const char *path, const json_t *root, const coh_slice *spelled,
                                 coh_tokenizer *tokenizer)
{
    const json_t *part = json_object_get(root, "decoder");
    reader r = { .pipeline = tokenizer->pipeline };
    if (!part || json_is_null(part))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: there is no decoder, so that a text would come back with spaces "
                        "between its tokens: name one, as {\"type\": \"ByteLevel\"}",
                        path);
    COH_TRY(read_member(&r, &decoders, path, root, "decoder"));
    return fill_texts(&r.chain, spelled, r.pipeline);
}
