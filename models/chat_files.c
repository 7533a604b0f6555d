/* Writes the files that conversations, or another tokenizer, change in a model's folder. The one
 * idea: transformers and vLLM end an answer at the ids of generation_config.json, and write
 * conversations by chat_template.jinja, whatever other files say. Next: companions.c copies the
 * others. */
#include "models/chat_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file_text.h"
#include "base/json.h"
#include "models/config.h"

#define GENERATION      "generation_config.json"
#define FILE_BYTES_MOST (4u << 20)

static const char member[] = "eos_token_id";

/* Writes one file, or adds up its size if `place` is NULL. */
static coh_status take_text(coh_folder_place *place, const char *name, const char *text,
                            size_t text_bytes, uint64_t *bytes)
{
    if (place)
        return coh_folder_place_file(place, name, text, text_bytes);
    *bytes += coh_bytes_round_page(text_bytes);
    return COH_OK;
}

/* Reads generation_config.json of the folder; NULL: it has none. */
static coh_status read_settings(const char *from, json_t **out_root)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t bytes;
    *out_root = NULL;
    if (!from || snprintf(path, sizeof(path), "%s/" GENERATION, from) >= (int)sizeof(path) ||
        access(path, F_OK) != 0)
        return COH_OK;
    COH_TRY(coh_file_read_whole(path, FILE_BYTES_MOST, &text, &bytes));
    const coh_status status = coh_json_load(text, bytes, out_root);
    coh_free(text);
    if (status == COH_OK && json_is_object(*out_root))
        return COH_OK;
    if (status == COH_ERR_MEMORY)
        return status;
    return coh_fail(COH_ERR_CORRUPT,
                    "%.300s is no object of JSON, so the ids that end a text cannot be set in it: "
                    "correct it, or take a whole copy of the model",
                    path);
}

/* Reads the members of config.json that models keep without reading them. */
static coh_status read_extras(const coh_model *model, json_t **out_root)
{
    char text[sizeof(model->extras) + 3];
    const int length = snprintf(text, sizeof(text), "{%s}", model->extras);
    return coh_json_load(text, (size_t)length, out_root);
}

/* The ids that end a text by config.json. */
static coh_status ends_of_config(const coh_model *model, json_t **out_ends)
{
    json_t *root;
    *out_ends = NULL;
    COH_TRY(read_extras(model, &root));
    *out_ends = json_incref(json_object_get(root, member));
    json_decref(root);
    return COH_OK;
}

/* Appends the ids of `value`, a number or a list, without those that are there. */
static int add_ids(json_t *list, const json_t *value)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        int is_there = !json_is_integer(id);
        for (size_t k = 0; k < json_array_size(list); k++)
            is_there |= json_equal(json_array_get(list, k), id);
        if (!is_there && json_array_append_new(list, json_copy((json_t *)id)) != 0)
            return -1;
    }
    return 0;
}

/* Sets the member to the ids of `ends` and `id`. */
static coh_status set_ends(json_t *settings, const json_t *ends, int32_t id)
{
    json_t *list = json_array(), *own = json_integer(id);
    int error = !list || !own;
    if (!error && ends)
        error = add_ids(list, ends);
    if (!error)
        error = add_ids(list, own);
    if (!error)
        error = json_object_set(settings, member, list);
    json_decref(list);
    json_decref(own);
    return error ? coh_fail(COH_ERR_MEMORY, "no memory for the ids that end a text") : COH_OK;
}

static int set_id(json_t *members, const char *name, int32_t id)
{
    return json_object_set_new(members, name, id < 0 ? json_null() : json_integer(id));
}

/* null is written where there is no such id: without the member transformers has a default. */
static coh_status replace_ids(json_t *members, const coh_text_ids *ids)
{
    static const char *const former[] = {
        "pad_token_id",          "sep_token_id",        "decoder_start_token_id",
        "forced_bos_token_id",   "forced_eos_token_id", "suppress_tokens",
        "begin_suppress_tokens", "bad_words_ids",       "force_words_ids",
        "forced_decoder_ids",    "sequence_bias",
    };
    for (size_t i = 0; i < sizeof(former) / sizeof(former[0]); i++)
        (void)json_object_del(members, former[i]); /* fails if it is not there */
    return set_id(members, "bos_token_id", ids->begin) || set_id(members, member, ids->end)
               ? coh_fail(COH_ERR_MEMORY, "no memory for the ids of a tokenizer")
               : COH_OK;
}

static coh_status write_settings(coh_folder_place *place, json_t *settings, uint64_t *bytes)
{
    coh_text text = { 0 };
    coh_status status = coh_config_text_dump(&text, settings, 0);
    if (status == COH_OK)
        status = coh_text_add(&text, "\n");
    if (status == COH_OK)
        status = take_text(place, GENERATION, text.data, text.bytes, bytes);
    coh_text_fini(&text);
    return status;
}

static coh_status write_ends(coh_folder_place *place, const coh_model *model,
                             const coh_folder_write_options *options, const char *from,
                             uint64_t *bytes)
{
    json_t *settings = NULL, *ends = NULL;
    coh_status status = read_settings(from, &settings);
    if (status == COH_OK && settings && options->text_ids)
        status = replace_ids(settings, options->text_ids);
    if (status == COH_OK && settings)
        ends = json_incref(json_object_get(settings, member));
    if (status == COH_OK && !settings && options->end_of_turn) {
        settings = json_object();
        status = settings ? ends_of_config(model, &ends)
                          : coh_fail(COH_ERR_MEMORY, "no memory for " GENERATION);
    }
    if (status == COH_OK && options->end_of_turn)
        status = set_ends(settings, ends, *options->end_of_turn);
    if (status == COH_OK && settings)
        status = write_settings(place, settings, bytes);
    json_decref(ends);
    json_decref(settings);
    return status;
}

coh_status coh_chat_files_replace_ids(coh_model *model, const coh_text_ids *ids)
{
    coh_text text = { 0 };
    json_t *root;
    COH_TRY(read_extras(model, &root));
    coh_status status = replace_ids(root, ids);
    if (status == COH_OK)
        status = coh_config_text_dump(&text, root, -1);
    if (status == COH_OK && text.bytes - 2 >= sizeof(model->extras))
        status = coh_fail(COH_ERR_FULL,
                          "config.json of %.200s has no room for the ids of another tokenizer: "
                          "remove members of it that nobody reads",
                          model->name);
    if (status == COH_OK) /* without its braces */
        snprintf(model->extras, sizeof(model->extras), "%.*s", (int)text.bytes - 2, text.data + 1);
    coh_text_fini(&text);
    json_decref(root);
    return status;
}

coh_status coh_chat_files_write(coh_folder_place *place, const coh_model *model,
                                const coh_folder_write_options *options, const char *from,
                                uint64_t *bytes)
{
    const char *text = options->chat_template;
    if (text)
        COH_TRY(take_text(place, "chat_template.jinja", text, strlen(text), bytes));
    return options->end_of_turn || options->text_ids
               ? write_ends(place, model, options, from, bytes)
               : COH_OK;
}
