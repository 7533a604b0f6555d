/* Writes a config.json from the same tables that read it (config_read.c). Member names are those
 * that every version of `transformers` reads: "torch_dtype" and "rope_theta", not the newer "dtype"
 * and "rope_parameters". */
#include "models/config.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "models/family.h"

static const char *const dtype_names[] = {
    [COH_DTYPE_F32] = "float32", [COH_DTYPE_BF16] = "bfloat16", [COH_DTYPE_F16] = "float16"
};

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
    case COH_FIELD_POSITIVE:
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
    (void)coh_text_add(text, "], \"torch_dtype\": \"%s\"", dtype_names[stored]);
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
    if (stored != COH_DTYPE_F32 && stored != COH_DTYPE_BF16 && stored != COH_DTYPE_F16)
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
