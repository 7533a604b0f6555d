/* Reads fields of JSON objects, refusing unknown ones. The one idea: base/json reads a value and
 * says what is wrong with it, and the place of its object is put before. Next: tokenizer_json.c,
 * the main caller. */
#include "text/json_fields.h"

#include <stdarg.h>
#include <stdio.h>

coh_json_where coh_json_at(const char *format, ...)
{
    coh_json_where where;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(where.text, sizeof(where.text), format, arguments);
    va_end(arguments);
    return where;
}

coh_status coh_json_parse(const char *path, const char *text, size_t text_bytes, json_t **out_root)
{
    coh_status status = coh_json_load_any(text, text_bytes, out_root);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

coh_status coh_json_read_text(const char *path, uint64_t most, json_t **out_root)
{
    char *text;
    size_t text_bytes;
    *out_root = NULL;
    COH_TRY(coh_file_read_whole(path, most, &text, &text_bytes));
    coh_status status = coh_json_parse(path, text, text_bytes, out_root);
    coh_free(text);
    return status;
}

static coh_json_place object_of(const json_t *object)
{
    return (coh_json_place){ .value = (json_t *)(uintptr_t)object };
}

static coh_status placed(coh_status status, const char *where)
{
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", where);
}

/* Is `word` one of `words`, which blanks separate? */
static int is_word(const char *word, const char *words)
{
    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        if (strlen(word) == length && strncmp(word, words, length) == 0)
            return 1;
    }
    return 0;
}

coh_status coh_json_check_fields(const char *where, const json_t *object, const char *known)
{
    const coh_json_place at = object_of(object);
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return placed(coh_json_expected(&at, "an object"), where);
    json_object_foreach(at.value, key, value)
    {
        const coh_json_place field = coh_json_member(&at, key);
        if (!is_word(key, known))
            return placed(coh_json_fail(&field, "it is not known here, so what it changes is not "
                                                "supported"),
                          where);
    }
    return COH_OK;
}

coh_status coh_field_flag(const char *where, const json_t *object, const char *key, int is_absent,
                          int *out_flag)
{
    const coh_json_place at = object_of(object), field = coh_json_member(&at, key);
    *out_flag = is_absent;
    if ((!field.value || json_is_null(field.value)) && is_absent >= 0)
        return COH_OK;
    return placed(coh_json_flag(&field, out_flag), where);
}

coh_status coh_json_text(const char *where, const json_t *object, const char *key,
                         coh_slice *out_text)
{
    const coh_json_place at = object_of(object), field = coh_json_member(&at, key);
    if (!json_is_string(field.value))
        return placed(coh_json_expected(&field, "a text"), where);
    *out_text = (coh_slice){ json_string_value(field.value), json_string_length(field.value) };
    return COH_OK;
}

coh_status coh_json_count(const char *where, const json_t *object, const char *key, int64_t most,
                          int64_t *out_count)
{
    const coh_json_place at = object_of(object), field = coh_json_member(&at, key);
    *out_count = -1;
    return placed(coh_json_whole(&field, 0, (double)most, out_count), where);
}

coh_status coh_json_array(const char *where, const json_t *object, const char *key,
                          json_t **out_array)
{
    const coh_json_place at = object_of(object), field = coh_json_member(&at, key);
    *out_array = field.value;
    return json_is_array(field.value) ? COH_OK : placed(coh_json_expected(&field, "a list"), where);
}

coh_status coh_json_type(const char *where, const json_t *object, const char **out_type)
{
    const coh_json_place at = object_of(object), type = coh_json_member(&at, "type");
    *out_type = "";
    if (!json_is_object(object))
        return placed(coh_json_expected(&at, "an object"), where);
    if (type.value && !json_is_string(type.value))
        return placed(coh_json_expected(&type, "a text"), where);
    if (type.value)
        *out_type = json_string_value(type.value);
    return COH_OK;
}
