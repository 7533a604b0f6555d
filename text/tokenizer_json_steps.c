/* Reads the normalizers and pre-tokenizers of tokenizer.json. The one idea: each becomes steps of a
 * coh_pipeline, in the same order. Next: normalize.c and pipeline.c, which run them. */
#include "text/characters.h"
#include "text/pattern.h"
#include "text/tokenizer_json.h"

#define SEQUENCE_DEPTH_MAX 8

/* Checks that the text is exactly one character, as required of a mark or a replaced sign. */
static coh_status check_character(const char *where, const char *key, coh_slice text)
{
    const uint8_t *bytes = (const uint8_t *)text.bytes;
    if (text.count == 0 || coh_utf8_character(bytes, text.count) != text.count)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not one character", where, key);
    return COH_OK;
}

/* ---- normalizers ---- */

static coh_status read_nfc(const char *where, coh_pipeline *pipeline)
{
    coh_normalizer *normalizer = &pipeline->normalizer;
    if (normalizer->nfc || normalizer->step_count)
        return coh_fail(COH_ERR_CORRUPT, "%s: NFC is supported as the first normalizer only",
                        where);
    return coh_normalizer_add_nfc(normalizer);
}

static coh_status read_replace(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "pattern", "content", NULL };
    static const char *const known_pattern[] = { "String", NULL };
    const json_t *pattern = json_object_get(part, "pattern");
    coh_slice from = { 0 }, to = { 0 };
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_text(where, part, "content", &to));
    coh_json_where inner = coh_json_at("%s.pattern", where);
    COH_TRY(coh_json_check_fields(inner.text, pattern, known_pattern));
    COH_TRY(coh_json_text(inner.text, pattern, "String", &from));
    COH_TRY(check_character(inner.text, "String", from));
    return coh_normalizer_add_step(&pipeline->normalizer, from, to);
}

static coh_status read_normalizer(const char *where, const json_t *part, int depth,
                                  coh_pipeline *pipeline)
{
    static const char *const known_nfc[] = { "type", NULL };
    static const char *const known_prepend[] = { "type", "prepend", NULL };
    static const char *const known_sequence[] = { "type", "normalizers", NULL };
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (strcmp(type, "NFC") == 0) {
        COH_TRY(coh_json_check_fields(where, part, known_nfc));
        return read_nfc(where, pipeline);
    }
    if (strcmp(type, "Replace") == 0)
        return read_replace(where, part, pipeline);
    if (strcmp(type, "Prepend") == 0) {
        coh_slice mark = { 0 };
        COH_TRY(coh_json_check_fields(where, part, known_prepend));
        COH_TRY(coh_json_text(where, part, "prepend", &mark));
        return coh_normalizer_add_step(&pipeline->normalizer, (coh_slice){ 0 }, mark);
    }
    if (strcmp(type, "Sequence") != 0 || depth == SEQUENCE_DEPTH_MAX)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is of type \"%.60s\", which is not supported: NFC, Prepend, Replace of "
                        "one character and Sequence are",
                        where, type);
    COH_TRY(coh_json_check_fields(where, part, known_sequence));
    json_t *list, *inner;
    size_t index;
    COH_TRY(coh_json_array(where, part, "normalizers", &list));
    json_array_foreach(list, index, inner)
    {
        coh_json_where at = coh_json_at("%s.normalizers[%zu]", where, index);
        COH_TRY(read_normalizer(at.text, inner, depth + 1, pipeline));
    }
    return COH_OK;
}

coh_status coh_json_read_normalizer(const char *path, const json_t *part, coh_pipeline *pipeline)
{
    if (!part || json_is_null(part))
        return COH_OK;
    return read_normalizer(coh_json_at("%s: normalizer", path).text, part, 0, pipeline);
}

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

static coh_status add_pcre2(coh_pipeline *pipeline, const char *where, const char *pattern,
                            size_t pattern_bytes, coh_split_behavior behavior)
{
    coh_pipeline_step *step;
    COH_TRY(coh_pipeline_add_step(pipeline, where, &step));
    return coh_split_create(where, pattern, pattern_bytes, behavior, 0, &step->split);
}

static coh_status read_split(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "pattern", "behavior", "invert", NULL };
    static const char *const known_pattern[] = { "String", "Regex", NULL };
    const json_t *pattern = json_object_get(part, "pattern");
    coh_json_where inner = coh_json_at("%s.pattern", where);
    coh_split_behavior behavior = COH_SPLIT_ISOLATED;
    int is_inverted = 0;
    coh_slice text = { 0 };
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(read_behavior(where, part, &behavior));
    COH_TRY(coh_field_flag(where, part, "invert", -1, &is_inverted));
    COH_TRY(coh_json_check_fields(inner.text, pattern, known_pattern));
    if (json_object_size(pattern) != 1)
        return coh_fail(COH_ERR_CORRUPT, "%s is not one of \"String\" and \"Regex\"", inner.text);
    if (json_object_get(pattern, "Regex")) {
        COH_TRY(coh_json_text(inner.text, pattern, "Regex", &text));
        return coh_pipeline_add_split(pipeline, inner.text, text, behavior, is_inverted);
    }
    COH_TRY(coh_json_text(inner.text, pattern, "String", &text));
    coh_byte_list quoted = { 0 };
    coh_pipeline_step *step;
    coh_status status = coh_pattern_quote(text, &quoted);
    if (status == COH_OK)
        status = coh_pipeline_add_step(pipeline, where, &step);
    if (status == COH_OK)
        status = coh_split_create(inner.text, (const char *)quoted.bytes, quoted.count, behavior,
                                  is_inverted, &step->split);
    coh_free(quoted.bytes);
    return status;
}

static coh_status read_byte_level(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "add_prefix_space", "trim_offsets", "use_regex",
                                         NULL };
    int has_prefix = 0, has_pattern = 0;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_field_flag(where, part, "add_prefix_space", -1, &has_prefix));
    COH_TRY(coh_field_flag(where, part, "use_regex", 1, &has_pattern));
    pipeline->is_byte_level = 1;
    if (has_prefix) {
        coh_pipeline_step *step;
        COH_TRY(coh_pipeline_add_step(pipeline, where, &step));
        step->scheme = COH_MARK_ALWAYS;
        COH_TRY(coh_byte_list_add(&step->mark, " ", 1));
    }
    if (!has_pattern)
        return COH_OK;
    return coh_pipeline_add_split(pipeline, where,
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

static coh_status read_metaspace(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = {
        "type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep", NULL
    };
    coh_slice mark = { 0 };
    coh_mark_scheme scheme = COH_MARK_ALWAYS;
    int is_split = 0;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_text(where, part, "replacement", &mark));
    COH_TRY(check_character(where, "replacement", mark));
    COH_TRY(read_scheme(where, part, &scheme));
    COH_TRY(coh_field_flag(where, part, "split", 1, &is_split));
    coh_pipeline_step *step;
    COH_TRY(coh_pipeline_add_step(pipeline, where, &step));
    step->scheme = scheme;
    COH_TRY(coh_byte_list_add(&step->mark, mark.bytes, mark.count));
    if (!is_split)
        return COH_OK;
    coh_byte_list quoted = { 0 };
    coh_status status = coh_pattern_quote(mark, &quoted);
    if (status == COH_OK)
        status = add_pcre2(pipeline, where, (const char *)quoted.bytes, quoted.count,
                           COH_SPLIT_WITH_NEXT);
    coh_free(quoted.bytes);
    return status;
}

static coh_status read_digits(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "individual_digits", NULL };
    int is_individual = 0;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_field_flag(where, part, "individual_digits", -1, &is_individual));
    return add_pcre2(pipeline, where, coh_pattern_numeric, strlen(coh_pattern_numeric),
                     is_individual ? COH_SPLIT_ISOLATED : COH_SPLIT_CONTIGUOUS);
}

static coh_status read_punctuation(const char *where, const json_t *part, coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "behavior", NULL };
    coh_split_behavior behavior = COH_SPLIT_ISOLATED;
    COH_TRY(coh_json_check_fields(where, part, known));
    if (json_object_get(part, "behavior"))
        COH_TRY(read_behavior(where, part, &behavior));
    return add_pcre2(pipeline, where, coh_pattern_punctuation, strlen(coh_pattern_punctuation),
                     behavior);
}

static coh_status read_pre_tokenizer(const char *where, const json_t *part, int depth,
                                     coh_pipeline *pipeline);

static coh_status read_pre_tokenizers(const char *where, const json_t *part, int depth,
                                      coh_pipeline *pipeline)
{
    static const char *const known[] = { "type", "pretokenizers", NULL };
    json_t *list, *inner;
    size_t index;
    COH_TRY(coh_json_check_fields(where, part, known));
    COH_TRY(coh_json_array(where, part, "pretokenizers", &list));
    json_array_foreach(list, index, inner)
    {
        coh_json_where at = coh_json_at("%s.pretokenizers[%zu]", where, index);
        COH_TRY(read_pre_tokenizer(at.text, inner, depth + 1, pipeline));
    }
    return COH_OK;
}

static coh_status read_pre_tokenizer(const char *where, const json_t *part, int depth,
                                     coh_pipeline *pipeline)
{
    static const struct kind {
        const char *type;
        coh_status (*read)(const char *where, const json_t *part, coh_pipeline *pipeline);
    } kinds[] = {
        { "Split", read_split },
        { "ByteLevel", read_byte_level },
        { "Metaspace", read_metaspace },
        { "Digits", read_digits },
        { "Punctuation", read_punctuation },
    };
    const char *type;
    COH_TRY(coh_json_type(where, part, &type));
    if (pipeline->is_byte_level)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is of type \"%.60s\" and comes after ByteLevel, which must be the last",
                        where, type);
    if (strcmp(type, "Sequence") == 0 && depth < SEQUENCE_DEPTH_MAX)
        return read_pre_tokenizers(where, part, depth, pipeline);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].type, type) == 0)
            return kinds[i].read(where, part, pipeline);
    }
    return coh_fail(COH_ERR_CORRUPT,
                    "%s is of type \"%.60s\", which is not supported: ByteLevel, Split, Metaspace, "
                    "Digits, Punctuation and Sequence are",
                    where, type);
}

coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *part, coh_pipeline *pipeline)
{
    if (!part || json_is_null(part))
        return COH_OK;
    return read_pre_tokenizer(coh_json_at("%s: pre_tokenizer", path).text, part, 0, pipeline);
}
