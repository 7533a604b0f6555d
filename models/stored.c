/* Keeps the dtypes and metadata with which a folder stored its tensors. The one idea: both are
 * short strings in coh_model, so they pass through the note of a checkpoint. Next: folder_read.c
 * fills them, export.c uses them. */
#include "models/stored.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

coh_dtype coh_model_tensor_stored(const coh_model *model, int64_t index, coh_dtype otherwise)
{
    if (!model || index < 0 || (uint64_t)index >= strlen(model->dtypes))
        return otherwise;
    for (int dtype = 0; dtype < COH_STORED_DTYPES; dtype++)
        if (model->dtypes[index] == coh_stored_dtypes[dtype].letter)
            return (coh_dtype)dtype;
    return otherwise;
}

/* ---- in a note ---- */

void coh_stored_to_text(const coh_model *model, coh_text *text)
{
    if (!model->dtypes[0] && !model->metadata[0])
        return;
    (void)coh_text_add(text, ", \"stored\": {\"dtypes\": ");
    (void)coh_text_add_quoted(text, model->dtypes);
    (void)coh_text_add(text, ", \"metadata\": {%s}}", model->metadata);
}

static coh_status dtypes_from(const char *dtypes, coh_model *model)
{
    const size_t count = strlen(dtypes);
    const int64_t tensors = coh_model_tensor_count(model);
    if (count > 0 && (count >= sizeof(model->dtypes) || (int64_t)count != tensors))
        return coh_fail(
            COH_ERR_CORRUPT,
            "a model's \"stored\" has dtypes of %zu tensors, and the model has %" PRId64, count,
            tensors);
    if (dtypes[strspn(dtypes, "fbh")] != '\0')
        return coh_fail(COH_ERR_CORRUPT,
                        "a model's \"stored\" has a dtype '%c', and knows f, b and h",
                        dtypes[strspn(dtypes, "fbh")]);
    snprintf(model->dtypes, sizeof(model->dtypes), "%s", dtypes);
    return COH_OK;
}

/* Adds one pair as a JSON member. */
static void metadata_add(coh_text *text, const char *key, const char *value)
{
    if (text->bytes > 0)
        (void)coh_text_add(text, ", ");
    (void)coh_text_add_quoted(text, key);
    (void)coh_text_add(text, ": ");
    (void)coh_text_add_quoted(text, value);
}

static coh_status metadata_from(json_t *object, coh_model *model)
{
    const char *key;
    json_t *value;
    coh_text text = { .data = model->metadata, .capacity = sizeof(model->metadata), .is_fixed = 1 };
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return coh_fail(COH_ERR_CORRUPT,
                            "a model's \"stored\" has metadata \"%.100s\" that is no text", key);
        metadata_add(&text, key, json_string_value(value));
    }
    if (text.bytes >= text.capacity)
        return coh_fail(COH_ERR_CORRUPT,
                        "a model's \"stored\" has metadata of %zu bytes, at most "
                        "%zu are kept",
                        text.bytes, text.capacity - 1);
    return COH_OK;
}

coh_status coh_stored_from_json(json_t *value, coh_model *model)
{
    const char *dtypes;
    json_t *metadata;
    json_error_t error;
    model->dtypes[0] = model->metadata[0] = '\0';
    if (!value)
        return COH_OK;
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:o}", "dtypes", &dtypes, "metadata",
                       &metadata) != 0)
        return coh_fail(COH_ERR_CORRUPT, "a model's \"stored\" is malformed: %s", error.text);
    if (!json_is_object(metadata))
        return coh_fail(COH_ERR_CORRUPT, "a model's \"stored\" has metadata that is no object");
    COH_TRY(dtypes_from(dtypes, model));
    return metadata_from(metadata, model);
}

/* ---- from a folder ---- */

static int has_pair(const coh_safetensors *files, uint32_t file, const coh_safetensors_pair *pair)
{
    size_t count;
    const coh_safetensors_pair *pairs = coh_safetensors_metadata(files, file, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(pairs[i].key, pair->key) == 0)
            return strcmp(pairs[i].value, pair->value) == 0;
    return 0;
}

void coh_stored_metadata_take(const coh_safetensors *files, coh_model *model, int *out_left_out)
{
    size_t count, other_count, kept = 0;
    const coh_safetensors_pair *pairs = coh_safetensors_metadata(files, 0, &count);
    const uint32_t file_count = coh_safetensors_file_count(files);
    coh_text text = { .data = model->metadata, .capacity = sizeof(model->metadata), .is_fixed = 1 };
    model->metadata[0] = '\0';
    *out_left_out = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t before = text.bytes;
        uint32_t file = 1;
        while (file < file_count && has_pair(files, file, &pairs[i]))
            file++;
        if (file < file_count)
            continue;
        metadata_add(&text, pairs[i].key, pairs[i].value);
        if (text.bytes >= text.capacity) { /* too long: later pairs may fit */
            text.bytes = before;
            model->metadata[before] = '\0';
        } else
            kept++;
    }
    for (uint32_t file = 0; file < file_count; file++) {
        (void)coh_safetensors_metadata(files, file, &other_count);
        *out_left_out |= other_count != kept;
    }
}

/* ---- to a folder ---- */

coh_status coh_stored_metadata_init(const coh_model *model, coh_stored_metadata *out_metadata)
{
    char text[sizeof(model->metadata) + 3];
    const char *key;
    json_t *value;
    *out_metadata = (coh_stored_metadata){ 0 };
    snprintf(text, sizeof(text), "{%s}", model->metadata);
    coh_status status = coh_json_load(text, strlen(text), &out_metadata->root);
    if (status != COH_OK)
        return coh_fail_prefix(status == COH_ERR_CORRUPT ? COH_ERR_ARGUMENT : status,
                               "a model's metadata are not members of JSON");
    COH_TRY(COH_ALLOC(json_object_size(out_metadata->root) + 1, &out_metadata->pairs));
    json_object_foreach(out_metadata->root, key, value)
    {
        if (!json_is_string(value))
            return coh_fail(COH_ERR_ARGUMENT, "a model's metadata \"%.100s\" is no text", key);
        out_metadata->pairs[out_metadata->count++] =
            (coh_safetensors_pair){ key, json_string_value(value) };
    }
    if (!json_object_get(out_metadata->root, "format"))
        out_metadata->pairs[out_metadata->count++] = (coh_safetensors_pair){ "format", "pt" };
    return COH_OK;
}

void coh_stored_metadata_fini(coh_stored_metadata *metadata)
{
    coh_free(metadata->pairs);
    json_decref(metadata->root);
}
