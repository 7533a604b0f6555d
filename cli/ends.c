/* Collects the ids at which a text ends. The one idea: the files that name them are those that an
 * export copies, with the id that ends an answer, so that the program and the exported folder end
 * texts alike. Ids of another tokenizer mean other text and do not count. Next: generation_config.c
 * reads the file; cmd_generate.c, the caller; cmd_export.c. */
#include "cli/ends.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/artefact.h"

enum { SHOWN_BYTES = 60 }; /* of a value in a note */

static const char member[] = "eos_token_id";

/* ---- one member ---- */

static void say_no_id(const char *file, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    cli_note_once(
        "note: %s: \"%s\" holds %.*s, which is no id and ends no text: correct it, or end "
        "texts with --stop TEXT",
        file, member, SHOWN_BYTES, text ? text : "a value");
    free(text);
}

/* Marks a number, or the numbers of a list. transformers takes a negative number for an id that is
 * never drawn, too. */
static void mark(const char *file, const json_t *value, int64_t count, uint8_t *ends)
{
    const size_t values = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < values; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        const json_int_t id = json_is_integer(one) ? json_integer_value(one) : -1;
        if (id < 0)
            say_no_id(file, one);
        else if (id < count)
            ends[id] = 1;
    }
}

/* Does the object name ends? null is as good as nothing. */
static int names_ends(const json_t *root)
{
    const json_t *value = json_object_get(root, member);
    return value && !json_is_null(value);
}

/* ---- the files ---- */

/* Reads the members of config.json that the model keeps: of a checkpoint they are in its note. */
static json_t *kept_members(const coh_model *model)
{
    char text[sizeof(model->extras) + 3];
    const int length = snprintf(text, sizeof(text), "{%s}", model->extras);
    return json_loadb(text, (size_t)length, 0, NULL);
}

int cli_ends_are_of_another(const char *folder, const char *chosen, const coh_tokenizer *tokenizer)
{
    coh_tokenizer *own;
    if (strcmp(chosen, "bytes") == 0)
        return !folder || !cli_artefact_is_of_bytes(folder);
    if (!folder || cli_artefact_is_within(folder, chosen) ||
        coh_tokenizer_open(folder, &own) != COH_OK)
        return 0;
    const int is_other = coh_tokenizer_identity(own) != coh_tokenizer_identity(tokenizer);
    coh_tokenizer_close(own);
    return is_other;
}

/* Marks the ids of the model's files. */
static void mark_listed(const cli_inference *inference, const cli_generation_config *config,
                        int64_t count, uint8_t *ends)
{
    if (cli_ends_are_of_another(config->folder, inference->recipe.tokenizer, inference->tokenizer))
        return;
    json_t *kept = kept_members(&inference->model);
    if (names_ends(config->root))
        mark(config->path, json_object_get(config->root, member), count, ends);
    else if (names_ends(kept))
        mark("config.json", json_object_get(kept, member), count, ends);
    json_decref(kept);
}

void cli_ends_mark(const cli_inference *inference, const cli_generation_config *config,
                   int32_t end_of_turn, int64_t count, uint8_t *ends)
{
    const int32_t own[] = { coh_tokenizer_end_of_text(inference->tokenizer), end_of_turn };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (own[i] >= 0 && own[i] < count)
            ends[own[i]] = 1;
    mark_listed(inference, config, count, ends);
}
