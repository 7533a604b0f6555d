/* Writes a config.json from the same tables that read it (config_read.c). Member names are those
 * that every version of `transformers` reads: "torch_dtype" and "rope_theta", not the newer "dtype"
 * and "rope_parameters". Numbers get the fewest digits that read back as the same value, with a
 * point in every locale. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/c_locale.h"
#include "base/json.h"
#include "models/family.h"
#include "models/safetensors.h"

/* ---- numbers ---- */

/* Integers that a double holds exactly are written without an exponent. */
static int print_whole(char number[COH_NUMBER_BYTES], double value)
{
    if (value != floor(value) || !(fabs(value) < 1e15))
        return 0;
    snprintf(number, COH_NUMBER_BYTES, "%.0f.0", value);
    return 1;
}

coh_status coh_config_text_add_double(coh_text *text, double value)
{
    char number[COH_NUMBER_BYTES];
    if (!print_whole(number, value))
        coh_number_print(number, value);
    return coh_text_add(text, "%s", number);
}

/* Finds the fewest digits that read back as the same float, and adds the double nearest to them. */
void coh_config_text_add_float(coh_text *text, float value)
{
    char number[COH_NUMBER_BYTES];
    int digits = 0;
    if (!print_whole(number, (double)value)) {
        const coh_c_locale locale = coh_c_locale_enter();
        do
            snprintf(number, COH_NUMBER_BYTES, "%.*g", ++digits, (double)value);
        while (digits < 9 && strtof(number, NULL) != value);
        coh_c_locale_leave(locale);
        coh_number_print(number, coh_number_read(number, NULL));
    }
    (void)coh_text_add(text, "%s", number);
}

/* ---- values ---- */

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static coh_status add_break(coh_text *text, int indent)
{
    return indent < 0 ? COH_OK : coh_text_add(text, "\n%*s", 2 * indent, "");
}

/* Adds the members `names` of an object, or with `names` NULL the entries of a list. */
static coh_status dump_entries(coh_text *text, const json_t *value, const char **names,
                               size_t count, int indent)
{
    const int deeper = indent < 0 ? indent : indent + 1;
    COH_TRY(coh_text_add(text, names ? "{" : "["));
    for (size_t i = 0; i < count; i++) {
        COH_TRY(coh_text_add(text, i == 0 ? "" : indent < 0 ? ", " : ","));
        COH_TRY(add_break(text, deeper));
        if (names) {
            COH_TRY(coh_text_add_quoted(text, names[i]));
            COH_TRY(coh_text_add(text, ": "));
        }
        const json_t *entry = names ? json_object_get(value, names[i]) : json_array_get(value, i);
        COH_TRY(coh_config_text_dump(text, entry, deeper));
    }
    if (count > 0)
        COH_TRY(add_break(text, indent));
    return coh_text_add(text, names ? "}" : "]");
}

static coh_status dump_object(coh_text *text, const json_t *object, int indent)
{
    const char **names;
    size_t count = 0;
    COH_TRY(COH_ALLOC(json_object_size(object), &names));
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at))
        names[count++] = json_object_iter_key(at);
    qsort(names, count, sizeof(*names), by_name);
    coh_status status = dump_entries(text, object, names, count, indent);
    coh_free(names);
    return status;
}

coh_status coh_config_text_dump(coh_text *text, const json_t *value, int indent)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return dump_object(text, value, indent);
    case JSON_ARRAY:
        return dump_entries(text, value, NULL, json_array_size(value), indent);
    case JSON_STRING:
        return coh_text_add_quoted(text, json_string_value(value));
    case JSON_INTEGER:
        return coh_text_add(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        return coh_config_text_add_double(text, json_real_value(value));
    case JSON_TRUE:
        return coh_text_add(text, "true");
    case JSON_FALSE:
        return coh_text_add(text, "false");
    case JSON_NULL:
        break;
    }
    return coh_text_add(text, "null");
}

/* ---- config.json ---- */

/* Adds the first of the blank-separated words. */
static void add_first_word(coh_text *text, const char *words)
{
    (void)coh_text_add(text, "\"%.*s\"", (int)strcspn(words, " "), words);
}

static void add_field(const coh_config_field *field, const void *config, coh_text *text)
{
    const void *at = (const char *)config + field->offset;
    (void)coh_text_add(text, ", \"%s\": ", field->name);
    switch (field->kind) {
    case COH_FIELD_COUNT:
    case COH_FIELD_COUNT_MAYBE:
        if (*(const int64_t *)at == 0)
            (void)coh_text_add(text, "null");
        else
            (void)coh_text_add(text, "%" PRId64, *(const int64_t *)at);
        return;
    case COH_FIELD_POSITIVE: /* never 0 */
    case COH_FIELD_POSITIVE_MAYBE:
        if (*(const float *)at == 0)
            (void)coh_text_add(text, "null");
        else
            coh_config_text_add_float(text, *(const float *)at);
        return;
    case COH_FIELD_FLAG:
        (void)coh_text_add(text, *(const int32_t *)at ? "true" : "false");
        return;
    case COH_FIELD_NOT:
        (void)coh_text_add(text, *(const int32_t *)at ? "false" : "true");
        return;
    case COH_FIELD_ID:
        if (*(const int64_t *)at < 0)
            (void)coh_text_add(text, "null");
        else
            (void)coh_text_add(text, "%" PRId64, *(const int64_t *)at);
        return;
    case COH_FIELD_WORD:
        add_first_word(text, field->words);
        return;
    case COH_FIELD_ONLY:
        (void)coh_text_add(text, "%s", field->words);
        return;
    case COH_FIELD_NONE:
    case COH_FIELD_OWN:
    case COH_FIELD_OWN_KEPT:
    case COH_FIELD_DROPOUT:
    case COH_FIELD_KEPT:
    case COH_FIELD_DROPPED:
        return;
    }
}

static int is_written(const coh_config_field *field, uint32_t type_bit)
{
    if (field->alias || (field->types && !(field->types & type_bit)))
        return 0;
    return field->kind < COH_FIELD_NONE;
}

void coh_config_write(const coh_model *model, coh_dtype stored, coh_text *text)
{
    const coh_family_table *family = coh_family_of(model);
    const void *config = coh_family_config(model);
    const int type = family->type_of ? family->type_of(config) : 0;
    (void)coh_text_add(text, "{\"model_type\": \"%s\", \"architectures\": [",
                       family->types[type].name);
    add_first_word(text, family->types[type].architectures);
    (void)coh_text_add(text, "], \"torch_dtype\": \"%s\"", coh_stored_dtypes[stored].config);
    for (const coh_config_field *field = family->fields; field->name; field++)
        if (is_written(field, UINT32_C(1) << type))
            add_field(field, config, text);
    if (family->write_own)
        family->write_own(config, text);
    if (model->extras[0])
        (void)coh_text_add(text, ", %s", model->extras);
    (void)coh_text_add(text, "}");
}

static coh_status indent(const char *line, char **out_text)
{
    json_t *root;
    coh_text text = { 0 };
    coh_status status = coh_json_load(line, strlen(line), &root);
    if (status != COH_OK)
        return coh_fail_prefix(status == COH_ERR_CORRUPT ? COH_ERR_ARGUMENT : status,
                               "a model's extras are not members of JSON");
    status = coh_config_text_dump(&text, root, 0);
    if (status == COH_OK)
        status = coh_text_add(&text, "\n");
    json_decref(root);
    if (status == COH_OK)
        *out_text = text.data;
    else
        coh_text_fini(&text);
    return status;
}

coh_status coh_model_to_config(const coh_model *model, coh_dtype stored, char **out_text)
{
    char line[COH_MODEL_JSON_BYTES];
    coh_text text = { .data = line, .capacity = sizeof(line), .is_fixed = 1 };
    if (!model || !out_text)
        return coh_fail(COH_ERR_ARGUMENT, "a config.json needs a model and a place for its text");
    *out_text = NULL;
    const coh_family_table *family = coh_family_of(model);
    if (!family)
        return coh_fail(COH_ERR_ARGUMENT, "a model of family %d is not known", (int)model->family);
    COH_TRY(family->check(coh_family_config(model)));
    if (coh_model_type_name(model)[0] == '\0')
        return coh_fail(COH_ERR_ARGUMENT, "a model of family %s has no such type", family->name);
    if (!coh_safetensors_dtype_name(stored))
        return coh_fail(COH_ERR_ARGUMENT, "tensors are stored in f32, bf16 or f16, not in dtype %d",
                        (int)stored);
    coh_config_write(model, stored, &text);
    if (text.bytes >= text.capacity)
        return coh_fail(COH_ERR_ARGUMENT, "a model's config.json of %zu bytes exceeds %zu",
                        text.bytes, text.capacity - 1);
    return indent(line, out_text);
}

void coh_model_text_free(char *text)
{
    coh_free(text);
}

coh_status coh_model_from_config(const char *json, coh_model *out_model)
{
    json_t *root;
    if (!json || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "reading a config.json needs its text and a model");
    coh_status status = coh_json_load(json, strlen(json), &root);
    if (status != COH_OK)
        return coh_fail_prefix(status, "config.json");
    status = coh_config_read(root, out_model);
    json_decref(root);
    return status;
}
