/* Reads the planner's own JSON files strictly: typed and range-checked members, and the seal that
 * hashes all bytes before it. The idea: every reader fails with a message that names the member.
 * Interface: json_read.h; used by plan_file.c and pins_file.c. */
#include "planner/json_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SEAL "  \"file_hash\":"

/* ---- members ---- */

coh_status coh_json_get_integer(const json_t *object, const char *key, int64_t least, int64_t most,
                                int64_t *out_value)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is not a whole number of %" PRId64 "..%" PRId64,
                        key, least, most);
    *out_value = json_integer_value(value);
    return COH_OK;
}

coh_status coh_json_get_int(const json_t *object, const char *key, int64_t most, int32_t *out_value)
{
    int64_t value = 0;
    COH_TRY(coh_json_get_integer(object, key, 0, most, &value));
    *out_value = (int32_t)value;
    return COH_OK;
}

coh_status coh_json_get_quoted(const json_t *object, const char *key, int base, uint64_t *out_value)
{
    static const char digits[] = "0123456789abcdef";
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || *text == '\0')
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is missing or not a number in quotes", key);
    const size_t known = base == 10 ? 10 : 16;
    for (const char *at = text; *at; at++)
        if (memchr(digits, *at, known) == NULL)
            return coh_fail(COH_ERR_CORRUPT, "\"%s\" is \"%.40s\", not a number", key, text);
    errno = 0;
    *out_value = strtoull(text, NULL, base);
    if (errno != 0)
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is \"%.40s\", more than 64 bits hold", key, text);
    return COH_OK;
}

coh_status coh_json_get_real(const json_t *object, const char *key, double least, double most,
                             double *out_value)
{
    const json_t *value = json_object_get(object, key);
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= least) || !(number <= most))
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is not a number from %g to %g", key, least, most);
    *out_value = number;
    return COH_OK;
}

coh_status coh_json_get_text(const json_t *object, const char *key, char *out_text, size_t room)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) >= room)
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is not a text of at most %zu bytes", key,
                        room - 1);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return coh_fail(COH_ERR_CORRUPT, "\"%s\" holds a control character", key);
    memcpy(out_text, text, strlen(text) + 1);
    return COH_OK;
}

coh_status coh_json_get_choice(const json_t *object, const char *key, const char *const *names,
                               int32_t *out_index)
{
    const char *text = json_string_value(json_object_get(object, key));
    for (int32_t i = 0; text != NULL && names[i] != NULL; i++)
        if (strcmp(names[i], text) == 0) {
            *out_index = i;
            return COH_OK;
        }
    if (text == NULL)
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is missing or not a text", key);
    return coh_fail(COH_ERR_CORRUPT, "\"%s\" is \"%.40s\", which is none that is known", key, text);
}

coh_status coh_json_only_known(const json_t *object, const char *where, const char *const *known)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(object))
        return coh_fail(COH_ERR_CORRUPT, "%s is missing or not an object", where);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL)
            return coh_fail(COH_ERR_CORRUPT, "%s has a member \"%.80s\" that is not known", where,
                            key);
    }
    return COH_OK;
}

/* ---- the file ---- */

coh_status coh_json_check_format(const json_t *root, const char *what, const char *format,
                                 int version)
{
    int64_t found = 0;
    const char *name = json_string_value(json_object_get(root, "format"));
    if (name == NULL || strcmp(name, format) != 0)
        return coh_fail(COH_ERR_CORRUPT, "not a %s: \"format\" is not \"%s\"", what, format);
    COH_TRY(coh_json_get_integer(root, "version", 1, INT32_MAX, &found));
    if (found != version)
        return coh_fail(COH_ERR_CORRUPT, "%s format version %" PRId64 ", this program reads %d",
                        what, found, version);
    return COH_OK;
}

coh_status coh_json_parse_sealed(const char *text, size_t bytes, json_t **out_root)
{
    json_error_t error;
    *out_root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out_root != NULL)
        return COH_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading it");
    return coh_fail(COH_ERR_CORRUPT, "line %d is not JSON: %s", error.line, error.text);
}

/* Returns the last occurrence of the seal, or NULL. */
static const char *find_seal(const char *text)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, SEAL)) != NULL; at++)
        found = at;
    return found;
}

coh_status coh_json_check_seal(const json_t *root, const char *text, size_t bytes,
                               const char *remedy)
{
    uint64_t expected = 0;
    COH_TRY(coh_json_get_quoted(root, "file_hash", 16, &expected));
    const char *seal = find_seal(text);
    if (strlen(text) != bytes || seal == NULL ||
        XXH3_64bits(text, (size_t)(seal - text)) != expected)
        return coh_fail(COH_ERR_CORRUPT,
                        "its bytes are not those its hash names: it was edited or damaged; %s",
                        remedy);
    return COH_OK;
}

coh_status coh_json_add_seal(coh_text *text)
{
    const uint64_t hash = XXH3_64bits(text->data, text->bytes);
    return coh_text_add(text, SEAL " \"%016" PRIx64 "\"\n}\n", hash);
}
