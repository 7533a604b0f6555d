/* Reads fields of JSON objects, refusing unknown ones. The one idea: each function checks one type
 * and builds the message with the place. Next: tokenizer_json.c, the main caller. */
#include "text/json_fields.h"

#include <inttypes.h>
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
    json_error_t error;
    *out_root = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
    /* transformers writes a model_max_length of 10^30 into tokenizer_config.json. */
    if (!*out_root && json_error_code(&error) == json_error_numeric_overflow)
        *out_root =
            json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    if (*out_root)
        return COH_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading %s", path);
    return coh_fail(COH_ERR_CORRUPT, "%s line %d is not JSON: %s", path, error.line, error.text);
}

coh_status coh_json_check_fields(const char *where, const json_t *object, const char *const *known)
{
    if (!json_is_object(object))
        return coh_fail(COH_ERR_CORRUPT, "%s is not an object", where);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *const *at = known;
        while (*at && strcmp(*at, key) != 0)
            at++;
        if (!*at)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: the field \"%.100s\" is not known, so what it changes is not "
                            "supported",
                            where, key);
    }
    return COH_OK;
}

coh_status coh_json_flag(const char *where, const json_t *object, const char *key, int is_absent,
                         int *out_flag)
{
    const json_t *value = json_object_get(object, key);
    *out_flag = is_absent;
    if ((!value || json_is_null(value)) && is_absent >= 0)
        return COH_OK;
    if (!json_is_boolean(value))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is neither true nor false", where, key);
    *out_flag = json_is_true(value);
    return COH_OK;
}

coh_status coh_json_text(const char *where, const json_t *object, const char *key,
                         coh_slice *out_text)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not a string", where, key);
    *out_text = (coh_slice){ json_string_value(value), json_string_length(value) };
    return COH_OK;
}

coh_status coh_json_count(const char *where, const json_t *object, const char *key, int64_t most,
                          int64_t *out_count)
{
    const json_t *value = json_object_get(object, key);
    *out_count = json_is_integer(value) ? json_integer_value(value) : -1;
    if (*out_count < 0 || *out_count > most)
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not an integer in 0..%" PRId64, where, key,
                        most);
    return COH_OK;
}

coh_status coh_json_array(const char *where, const json_t *object, const char *key,
                          json_t **out_array)
{
    *out_array = json_object_get(object, key);
    if (!json_is_array(*out_array))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"%s\" is not a list", where, key);
    return COH_OK;
}

coh_status coh_json_type(const char *where, const json_t *object, const char **out_type)
{
    *out_type = "";
    if (!json_is_object(object))
        return coh_fail(COH_ERR_CORRUPT, "%s is not an object", where);
    const json_t *type = json_object_get(object, "type");
    if (type && !json_is_string(type))
        return coh_fail(COH_ERR_CORRUPT, "%s: \"type\" is not a string", where);
    if (type)
        *out_type = json_string_value(type);
    return COH_OK;
}
