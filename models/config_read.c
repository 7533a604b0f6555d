/* Reads config.json strictly: each member is in the table of the family or in the table of all
 * families, or is noted as unknown. `transformers` also accepts members unknown to its classes and
 * does not compute with them. Next: family.h for the tables, config_write.c for the reverse. */
#include "models/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/terms.h"
#include "models/safetensors.h"

static const coh_family_table *const families[COH_FAMILY_COUNT] = {
    [COH_FAMILY_GPT2] = &coh_family_gpt2,   [COH_FAMILY_OPT] = &coh_family_opt,
    [COH_FAMILY_LLAMA] = &coh_family_llama, [COH_FAMILY_GEMMA] = &coh_family_gemma,
    [COH_FAMILY_OWN] = &coh_family_own,
};

/* Members that no family computes with, by kind. If `transformers` would compute with a member, its
 * kind is NONE, so that it must be absent. */
static const struct common {
    coh_field_kind kind;
    const char *names;
} common_fields[] = {
    { COH_FIELD_DROPPED,
      "model_type architectures dtype torch_dtype transformers_version _name_or_path "
      "_attn_implementation_autoset auto_map cohobate_tokenizer" },
    { COH_FIELD_NONE, "quantization_config compression_config sparsity_config pruned_heads" },
    { COH_FIELD_KEPT,
      "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id "
      "use_cache gradient_checkpointing return_dict output_attentions output_hidden_states "
      "is_decoder cross_attention_hidden_size tie_encoder_decoder chunk_size_feed_forward "
      "torchscript use_bfloat16 tf_legacy_loss finetuning_task problem_type "
      "task_specific_params tokenizer_class prefix num_labels id2label label2id" },
    /* generation settings */
    { COH_FIELD_KEPT,
      "max_length min_length do_sample early_stopping num_beams num_beam_groups "
      "diversity_penalty temperature top_k top_p typical_p repetition_penalty "
      "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
      "num_return_sequences output_scores return_dict_in_generate forced_bos_token_id "
      "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty "
      "suppress_tokens begin_suppress_tokens" },
};

const coh_family_table *coh_family_of(const coh_model *model)
{
    return (unsigned)model->family < COH_FAMILY_COUNT ? families[model->family] : NULL;
}

/* ---- messages ---- */

static int is_short_whole(double number)
{
    return fabs(number) < 1e9 && floor(number) >= number;
}

static void describe(const json_t *value, char *text, size_t text_bytes)
{
    static const char *const names[] = { [JSON_OBJECT] = "an object",
                                         [JSON_ARRAY] = "a list",
                                         [JSON_TRUE] = "true",
                                         [JSON_FALSE] = "false",
                                         [JSON_NULL] = "null" };
    if (json_is_string(value))
        snprintf(text, text_bytes, "\"%.60s\"", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, text_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value)) /* 256.0 keeps its point, by which it is no whole number */
        snprintf(text, text_bytes, is_short_whole(json_real_value(value)) ? "%.1f" : "%.9g",
                 json_real_value(value));
    else
        snprintf(text, text_bytes, "%s", names[json_typeof(value)]);
}

coh_status(coh_config_refuse)(const char *name, const json_t *value, const char *must)
{
    char text[80];
    if (!value)
        return coh_fail(COH_ERR_CORRUPT, "config.json: \"%.100s\" is missing, and must be %s", name,
                        must);
    describe(value, text, sizeof(text));
    return coh_fail(COH_ERR_CORRUPT, "config.json: \"%.100s\" is %s, and must be %s", name, text,
                    must);
}

void coh_config_note(coh_config_reader *reader, const char *format, ...)
{
    char *notes = reader->model->notes;
    const size_t room = sizeof(reader->model->notes), used = strlen(notes);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(notes + used, room - used, format, arguments);
    va_end(arguments);
    const size_t length = strlen(notes);
    if (length + 1 < room)
        memcpy(notes + length, "\n", 2);
}

/* Reserves room for the count of further names; truncates the first name rather than omit it. */
static void list_add(coh_config_names *names, const char *name)
{
    enum { ROOM = sizeof(names->text) - sizeof(" and 2147483647 more"), FIRST = 150 };
    const size_t used = strlen(names->text), length = strlen(name);
    if (used == 0)
        snprintf(names->text, ROOM, "%.*s%s", FIRST, name, length > FIRST ? "..." : "");
    else if (names->more_count == 0 && used + length + sizeof(", ") <= ROOM)
        snprintf(names->text + used, sizeof(names->text) - used, ", %s", name);
    else
        names->more_count++;
}

static const char *list_end(coh_config_names *names)
{
    const size_t used = strlen(names->text);
    if (names->more_count > 0)
        snprintf(names->text + used, sizeof(names->text) - used, " and %d more", names->more_count);
    return names->text;
}

void coh_config_unknown(coh_config_reader *reader, const char *name)
{
    list_add(&reader->unknown, name);
}

/* ---- values ---- */

coh_status coh_config_count(const char *name, const json_t *value, int64_t most, int64_t *out_count)
{
    char must[80];
    if (json_is_integer(value) && json_integer_value(value) >= 1 &&
        json_integer_value(value) <= most) {
        *out_count = json_integer_value(value);
        return COH_OK;
    }
    snprintf(must, sizeof(must), "a whole number from 1 to %" PRId64, most);
    return coh_config_refuse(name, value, must);
}

coh_status coh_config_positive(const char *name, const json_t *value, double *out_number)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !((float)number > 0) || !isfinite((float)number))
        return coh_config_refuse(name, value, "a number above 0 that a float holds");
    *out_number = number;
    return COH_OK;
}

coh_status coh_config_flag(const char *name, const json_t *value, int32_t *out_flag)
{
    if (!json_is_boolean(value))
        return coh_config_refuse(name, value, "true or false");
    *out_flag = json_is_true(value);
    return COH_OK;
}

int coh_config_is_word(const char *word, const char *words)
{
    const size_t length = strchr(word, ' ') ? 0 : strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return 1;
    return 0;
}

static coh_status read_word(const coh_config_field *field, const json_t *value)
{
    char must[200];
    if (json_is_string(value) && coh_config_is_word(json_string_value(value), field->words))
        return COH_OK;
    snprintf(must, sizeof(must), "one of what is computed: %s", field->words);
    return coh_config_refuse(field->name, value, must);
}

static coh_status read_only(const coh_config_field *field, const json_t *value)
{
    const int wanted = strcmp(field->words, "true") == 0;
    if (json_is_boolean(value) && json_is_true(value) == wanted)
        return COH_OK;
    return coh_config_refuse(field->name, value,
                             wanted ? "true: nothing else is computed"
                                    : "false: nothing else is computed");
}

static coh_status read_none(const coh_config_field *field, const json_t *value)
{
    if (json_is_null(value) || json_is_false(value) ||
        (json_is_array(value) && json_array_size(value) == 0) ||
        (json_is_object(value) && json_object_size(value) == 0))
        return COH_OK;
    return coh_config_refuse(field->name, value,
                             "null or empty: a model that has it is not computed");
}

static coh_status read_dropout(coh_config_reader *reader, const coh_config_field *field,
                               const json_t *value)
{
    char text[120];
    const double rate = json_number_value(value);
    if (json_is_null(value))
        return COH_OK;
    if (!json_is_number(value) || !(rate >= 0 && rate <= 1))
        return coh_config_refuse(field->name, value, "a number from 0 to 1");
    if (rate > 0) {
        snprintf(text, sizeof(text), "%s %g", field->name, rate);
        list_add(&reader->dropouts, text);
    }
    return COH_OK;
}

/* Negative ids count from the end, like row numbers in Python. */
static coh_status read_id(const coh_config_field *field, const json_t *value, int64_t vocabulary,
                          int64_t *out_id)
{
    char must[80];
    *out_id = -1;
    if (json_is_null(value))
        return COH_OK;
    const json_int_t id = json_integer_value(value);
    if (json_is_integer(value) && id < vocabulary && id >= -vocabulary) {
        *out_id = id < 0 ? id + vocabulary : id;
        return COH_OK;
    }
    snprintf(must, sizeof(must), "null or an id of the vocabulary, up to %" PRId64, vocabulary - 1);
    return coh_config_refuse(field->name, value, must);
}

/* ---- members ---- */

/* Appends the member to the extras; a long one that does not fit is named in a note. */
static coh_status keep(coh_config_reader *reader, const char *name, const json_t *value)
{
    coh_text text = { 0 };
    char *extras = reader->model->extras;
    const size_t used = strlen(extras), room = sizeof(reader->model->extras);
    coh_status status;
    if (used > 0)
        COH_TRY_GOTO(status, coh_text_add(&text, ", "), done);
    COH_TRY_GOTO(status, coh_text_add_quoted(&text, name), done);
    COH_TRY_GOTO(status, coh_text_add(&text, ": "), done);
    COH_TRY_GOTO(status, coh_config_text_dump(&text, value, -1), done);
    if (text.bytes < room - used)
        memcpy(extras + used, text.data, text.bytes + 1);
    else
        list_add(&reader->left_out, name);
done:
    coh_text_fini(&text);
    return status;
}

/* Returns 0 if the member is in neither table. */
static int field_find(const coh_config_field *fields, const char *name, uint32_t type_bit,
                      coh_config_field *out_field)
{
    for (const coh_config_field *field = fields; field->name; field++)
        if (strcmp(field->name, name) == 0 && (!field->types || (field->types & type_bit))) {
            *out_field = *field;
            return 1;
        }
    *out_field = (coh_config_field){ .name = name, .kind = COH_FIELD_ONLY, .words = "false" };
    if (strcmp(name, "is_encoder_decoder") == 0)
        return 1;
    for (size_t i = 0; i < sizeof(common_fields) / sizeof(common_fields[0]); i++)
        if (coh_config_is_word(name, common_fields[i].names)) {
            out_field->kind = common_fields[i].kind;
            return 1;
        }
    return 0;
}

/* If the alias's other name is present, too, the values must agree. */
static coh_status check_alias(const coh_config_reader *reader, const coh_config_field *fields,
                              const coh_config_field *alias, const json_t *value)
{
    const coh_config_field *field = fields;
    while (field->alias || field->kind != alias->kind || field->offset != alias->offset)
        field++;
    const json_t *other = json_object_get(reader->root, field->name);
    if (!other || json_equal(other, value))
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "config.json: \"%s\" and \"%s\" are two names of one field, and differ",
                    field->name, alias->name);
}

static coh_status read_field(coh_config_reader *reader, const coh_config_field *field,
                             const json_t *value, void *config)
{
    void *at = (char *)config + field->offset;
    double number;
    switch (field->kind) {
    case COH_FIELD_COUNT:
    case COH_FIELD_COUNT_MAYBE:
        *(int64_t *)at = 0;
        if (field->kind == COH_FIELD_COUNT_MAYBE && json_is_null(value))
            return COH_OK;
        return coh_config_count(field->name, value, field->most ? field->most : INT32_MAX, at);
    case COH_FIELD_POSITIVE:
    case COH_FIELD_POSITIVE_MAYBE:
        *(float *)at = 0;
        if (field->kind == COH_FIELD_POSITIVE_MAYBE && json_is_null(value))
            return COH_OK;
        COH_TRY(coh_config_positive(field->name, value, &number));
        *(float *)at = (float)number;
        return COH_OK;
    case COH_FIELD_FLAG:
        return coh_config_flag(field->name, value, at);
    case COH_FIELD_NOT:
        COH_TRY(coh_config_flag(field->name, value, at));
        *(int32_t *)at = !*(int32_t *)at;
        return COH_OK;
    case COH_FIELD_WORD:
        return read_word(field, value);
    case COH_FIELD_ONLY:
        return read_only(field, value);
    case COH_FIELD_NONE:
        return read_none(field, value);
    case COH_FIELD_DROPOUT:
        COH_TRY(read_dropout(reader, field, value));
        return keep(reader, field->name, value);
    case COH_FIELD_OWN_KEPT:
    case COH_FIELD_KEPT:
        return keep(reader, field->name, value);
    case COH_FIELD_ID: /* read later, when the vocabulary is known */
    case COH_FIELD_OWN:
    case COH_FIELD_DROPPED:
        break;
    }
    return COH_OK;
}

/* Is the member of a field absent, under its own name and under its others? */
static int is_absent(const coh_config_reader *reader, const coh_family_table *family,
                     const coh_config_field *field)
{
    for (const coh_config_field *other = family->fields; other->name; other++)
        if ((other == field ||
             (other->alias && other->kind == field->kind && other->offset == field->offset)) &&
            json_object_get(reader->root, other->name))
            return 0;
    return 1;
}

static const char mistyped_note[] = "config.json has no ";

/* Notes the first unknown member whose name is near to that of an absent one that is computed
 * with. */
static void note_mistyped(coh_config_reader *reader, const coh_family_table *family,
                          const char *name)
{
    const uint32_t type_bit = UINT32_C(1) << reader->type;
    coh_nearest nearest = { .word = name };
    for (const coh_config_field *field = family->fields; field->name; field++)
        if (!field->alias && (field->kind < COH_FIELD_NONE || field->kind == COH_FIELD_OWN) &&
            (!field->types || (field->types & type_bit)) && is_absent(reader, family, field))
            coh_nearest_offer(&nearest, field->name);
    if (nearest.name && !strchr(name, '\n') && !strstr(reader->model->notes, mistyped_note))
        coh_config_note(reader, "%s\"%s\" but \"%.100s\": is that meant?", mistyped_note,
                        nearest.name, name);
}

coh_status coh_config_blame(const coh_model *model, coh_status status)
{
    char why[COH_ERROR_TEXT_BYTES];
    const char *note = strstr(model->notes, mistyped_note);
    if (status != COH_ERR_CORRUPT || !note)
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    return coh_fail(status, "%s; %.*s", why, (int)strcspn(note, "\n"), note);
}

static coh_status read_members(coh_config_reader *reader, const coh_family_table *family,
                               void *config)
{
    const uint32_t type_bit = UINT32_C(1) << reader->type;
    for (void *at = json_object_iter(reader->root); at;
         at = json_object_iter_next(reader->root, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        coh_config_field field;
        if (!field_find(family->fields, name, type_bit, &field)) {
            coh_config_unknown(reader, name);
            note_mistyped(reader, family, name);
            COH_TRY(keep(reader, name, value));
            continue;
        }
        if (field.alias)
            COH_TRY(check_alias(reader, family->fields, &field, value));
        COH_TRY(read_field(reader, &field, value, config));
    }
    return COH_OK;
}

static coh_status read_ids(const coh_config_reader *reader, const coh_family_table *family,
                           void *config)
{
    const int64_t vocabulary = coh_family_size(family, config).vocabulary;
    for (const coh_config_field *field = family->fields; field->name; field++) {
        const json_t *value = json_object_get(reader->root, field->name);
        if (field->kind == COH_FIELD_ID && value)
            COH_TRY(read_id(field, value, vocabulary, (int64_t *)((char *)config + field->offset)));
    }
    return COH_OK;
}

/* ---- members of all families ---- */

static coh_status find_type(coh_config_reader *reader, const json_t *value,
                            const coh_family_table **out_family)
{
    const char *name = json_string_value(value);
    for (int f = 0; name && f < COH_FAMILY_COUNT; f++)
        for (int t = 0; t < families[f]->type_count; t++)
            if (strcmp(families[f]->types[t].name, name) == 0) {
                reader->model->family = (coh_family)f;
                reader->type = t;
                *out_family = families[f];
                return COH_OK;
            }
    if (name && strcmp(name, "gemma3") == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "config.json: \"model_type\" is \"gemma3\", a model with a vision tower: "
                        "save its text model alone (Gemma3ForCausalLM) in a folder, whose "
                        "model_type is \"gemma3_text\"");
    return coh_config_refuse(
        "model_type", value,
        "gpt2, opt, llama, mistral, qwen2, qwen3, phi3, gemma2 or gemma3_text");
}

static coh_status read_architectures(const json_t *list, const coh_config_type *type)
{
    char must[120];
    const char *only = json_string_value(json_array_get(list, 0));
    if (!list || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0) ||
        (json_array_size(list) == 1 && only && coh_config_is_word(only, type->architectures)))
        return COH_OK;
    snprintf(must, sizeof(must), "a list of one of %s", type->architectures);
    return coh_config_refuse("architectures", only ? json_array_get(list, 0) : list, must);
}

/* Weights of 4 or 8 bits in a form of their own. Their tensors would be refused one by one. */
static coh_status refuse_quantised(json_t *root)
{
    static const char *const members[] = { "quantization_config", "compression_config" };
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const json_t *value = json_object_get(root, members[i]);
        const char *by = json_string_value(json_object_get(value, "quant_method"));
        if (!by &&
            (json_object_get(value, "load_in_4bit") || json_object_get(value, "load_in_8bit")))
            by = "bitsandbytes";
        if (json_object_size(value) > 0)
            return coh_fail(
                COH_ERR_CORRUPT,
                "config.json: \"%s\" is of weights quantised by %.40s, which are not "
                "computed with: give the unquantised folder of the same model; adapters "
                "that were trained over the quantised one can be given over it by %s",
                members[i], by ? by : "an unnamed method", coh_term_text(COH_TERM_ADAPTER));
    }
    return COH_OK;
}

static coh_status read_dtype(const coh_config_reader *reader, const char *name,
                             coh_dtype *out_dtype)
{
    const json_t *value = json_object_get(reader->root, name);
    const char *word = json_string_value(value);
    if (!value || json_is_null(value) || (word && strcmp(word, "auto") == 0))
        return COH_OK;
    if (word && strncmp(word, "torch.", 6) == 0)
        word += 6;
    for (int dtype = 0; word && dtype < COH_STORED_DTYPES; dtype++)
        if (strcmp(word, coh_stored_dtypes[dtype].config) == 0) {
            *out_dtype = (coh_dtype)dtype;
            return COH_OK;
        }
    return coh_config_refuse(name, value, "float32, bfloat16 or float16");
}

static void write_notes(coh_config_reader *reader)
{
    if (reader->dropouts.text[0])
        coh_config_note(reader,
                        "config.json asks for dropout (%s): trained with 0 unless %s says more",
                        list_end(&reader->dropouts), coh_term_text(COH_TERM_DROPOUT));
    if (reader->unknown.text[0])
        coh_config_note(reader,
                        "config.json has members that are not known here, and that nothing is "
                        "computed with: %s",
                        list_end(&reader->unknown));
    if (reader->left_out.text[0])
        coh_config_note(reader, "config.json has members that are too long to be kept: %s",
                        list_end(&reader->left_out));
}

static coh_status read_all(coh_config_reader *reader)
{
    const coh_family_table *family;
    coh_model *model = reader->model;
    void *config = &model->gpt2; /* of any family */
    COH_TRY(find_type(reader, json_object_get(reader->root, "model_type"), &family));
    const coh_config_type *type = &family->types[reader->type];
    snprintf(model->name, sizeof(model->name), "%s", type->name);
    memcpy(config, type->defaults, family->config_bytes);
    COH_TRY(refuse_quantised(reader->root));
    COH_TRY(read_architectures(json_object_get(reader->root, "architectures"), type));
    model->stored = COH_DTYPE_F32;
    COH_TRY(read_dtype(reader, "torch_dtype", &model->stored));
    COH_TRY(read_dtype(reader, "dtype", &model->stored)); /* newer versions write this one */
    COH_TRY(read_members(reader, family, config));
    COH_TRY(read_ids(reader, family, config));
    if (family->read_own)
        COH_TRY(family->read_own(reader, config));
    coh_model_dtype_set(model, model->stored == COH_DTYPE_BF16 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
    if (family->check(config) != COH_OK)
        return coh_fail_prefix(COH_ERR_CORRUPT, "config.json describes no model");
    write_notes(reader);
    return COH_OK;
}

coh_status coh_config_read(json_t *root, coh_model *out_model)
{
    coh_model model = { 0 };
    coh_config_reader reader = { .root = root, .model = &model };
    if (!json_is_object(root))
        return coh_fail(COH_ERR_CORRUPT, "config.json: an object is expected, as { ... }");
    COH_TRY(coh_config_blame(&model, read_all(&reader)));
    *out_model = model;
    return COH_OK;
}
