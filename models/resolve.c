/* What a user may call a model: a preset, or a folder that says what it holds. */
#include "models/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/check.h"
#include "cohobate/checkpoint.h"

/* ---- JSON ---- */

enum { DTYPE_COUNT = 2 };
static const char *const dtype_names[DTYPE_COUNT] = {
    [COH_DTYPE_F32] = "f32", [COH_DTYPE_BF16] = "bf16"
};

/* A name becomes part of a run folder's: one component of a path, printable. */
static int is_fit_name(const char *name)
{
    if (!name[0] || strlen(name) >= sizeof(((coh_model *)0)->name) || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return 0;
    for (const char *at = name; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '/')
            return 0;
    }
    return 1;
}

coh_status coh_model_to_json(const coh_model *model, char *text, size_t text_bytes)
{
    if (!model || !text || !text_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "a model's JSON needs a model and a place for the text");
    char name[2 * sizeof(model->name)];
    size_t length = 0;
    if (!is_fit_name(model->name))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"%.128s\" cannot be a model's name: 1 to %zu bytes without \"/\" and "
                        "control characters",
                        model->name, sizeof(model->name) - 1);
    COH_TRY(coh_gpt2_config_check(&model->gpt2));
    for (const char *at = model->name; *at; at++) {
        if (*at == '"' || *at == '\\')
            name[length++] = '\\';
        name[length++] = *at;
    }
    name[length] = '\0';
    /* 9 digits bring every float back; the decimal sign is the locale's until it is mended. */
    char epsilon[32];
    snprintf(epsilon, sizeof(epsilon), "%.9g", (double)model->gpt2.layernorm_epsilon);
    for (char *at = epsilon; *at; at++) {
        if (*at == ',')
            *at = '.';
    }
    int written = snprintf(
        text, text_bytes,
        "{\"family\": \"gpt2\", \"name\": \"%s\", \"layers\": %" PRId64 ", \"heads\": %" PRId64
        ", \"channels\": %" PRId64 ", \"positions\": %" PRId64 ", \"vocabulary\": %" PRId64
        ", \"layernorm_epsilon\": %s, \"dtype\": \"%s\"}",
        name, model->gpt2.layers, model->gpt2.heads, model->gpt2.channels, model->gpt2.positions,
        model->gpt2.vocabulary, epsilon, dtype_names[model->gpt2.dtype]);
    if (written < 0 || (size_t)written >= text_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "a model's JSON of %d bytes does not fit in %zu", written,
                        text_bytes);
    return COH_OK;
}

static coh_status dtype_from_name(const char *name, coh_dtype *out_dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(name, dtype_names[i]) == 0) {
            *out_dtype = (coh_dtype)i;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT, "a model's dtype is f32 or bf16, not \"%.100s\"", name);
}

/* All fields, no others, each of its type; dtype came later than the first checkpoints. */
static coh_status model_from_value(json_t *value, coh_model *out_model)
{
    const char *family, *name, *dtype_name = "f32";
    json_int_t layers, heads, channels, positions, vocabulary;
    double epsilon;
    json_error_t error;
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:F, s?:s}",
                       "family", &family, "name", &name, "layers", &layers, "heads", &heads,
                       "channels", &channels, "positions", &positions, "vocabulary", &vocabulary,
                       "layernorm_epsilon", &epsilon, "dtype", &dtype_name) != 0)
        return coh_fail(COH_ERR_CORRUPT, "the JSON is not a model's: %s", error.text);
    if (strcmp(family, "gpt2") != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "a model of family \"%.100s\" is not known to this program, only \"gpt2\"",
                        family);
    if (!is_fit_name(name))
        return coh_fail(COH_ERR_CORRUPT, "\"%.128s\" cannot be a model's name", name);
    coh_model model = { .gpt2 = { .layers = layers,
                                  .heads = heads,
                                  .channels = channels,
                                  .positions = positions,
                                  .vocabulary = vocabulary,
                                  .layernorm_epsilon = (float)epsilon } };
    snprintf(model.name, sizeof(model.name), "%s", name);
    COH_TRY(dtype_from_name(dtype_name, &model.gpt2.dtype));
    if (coh_gpt2_config_check(&model.gpt2) != COH_OK)
        return coh_fail_prefix(COH_ERR_CORRUPT, "the JSON describes no model");
    *out_model = model;
    return COH_OK;
}

static coh_status parse_object(const char *json, json_t **out_root)
{
    json_error_t error;
    *out_root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    if (!*out_root && json_error_code(&error) == json_error_out_of_memory)
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading a model's JSON");
    if (!*out_root)
        return coh_fail(COH_ERR_CORRUPT, "a model's JSON is malformed, line %d: %s", error.line,
                        error.text);
    return COH_OK;
}

coh_status coh_model_from_json(const char *json, coh_model *out_model)
{
    if (!json || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "reading a model needs its JSON and a place for it");
    json_t *root;
    COH_TRY(parse_object(json, &root));
    coh_status status = model_from_value(root, out_model);
    json_decref(root);
    return status;
}

/* ---- what a user may call a model ---- */

/* The model in a checkpoint's note, under "model". */
static coh_status model_from_note(const char *note_json, coh_model *out_model)
{
    json_t *root;
    if (!note_json)
        return coh_fail(COH_ERR_CORRUPT, "it has no note, so its model is not known");
    COH_TRY(parse_object(note_json, &root));
    json_t *value = json_object_get(root, "model");
    coh_status status = value ? model_from_value(value, out_model)
                              : coh_fail(COH_ERR_CORRUPT, "its note has no \"model\"");
    json_decref(root);
    return status;
}

static coh_status model_from_checkpoint(const coh_checkpoint *checkpoint, coh_model *out_model)
{
    coh_checkpoint_facts facts;
    COH_TRY(coh_checkpoint_facts_get(checkpoint, &facts));
    coh_status status = model_from_note(facts.note_json, out_model);
    if (status != COH_OK)
        return coh_fail_prefix(status, "checkpoint %.300s", facts.path);
    if (snprintf(out_model->checkpoint, sizeof(out_model->checkpoint), "%s", facts.path) >=
        (int)sizeof(out_model->checkpoint))
        return coh_fail(COH_ERR_ARGUMENT, "a checkpoint's path of %zu bytes is too long",
                        strlen(facts.path));
    return COH_OK;
}

coh_status coh_model_resolve(const char *what, int64_t vocabulary, coh_model *out_model)
{
    if (!what || !what[0] || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "a model is a preset's name, such as gpt2-nano, or the "
                                          "path of a checkpoint or run folder; nothing was named");
    coh_model model = { 0 };
    if (coh_gpt2_preset(what, vocabulary, &model.gpt2) == COH_OK) {
        snprintf(model.name, sizeof(model.name), "%s", what);
        *out_model = model;
        return COH_OK;
    }
    /* The vocabulary is checked before the name: say that, if that is what is wrong. */
    coh_gpt2_config ignored;
    COH_TRY(coh_gpt2_preset("gpt2", vocabulary, &ignored));
    struct stat facts;
    if (stat(what, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"%.300s\" is neither a preset (gpt2-nano, gpt2, gpt2-medium, gpt2-large, "
                        "gpt2-xl) nor the folder of a checkpoint or run",
                        what);
    coh_checkpoint *checkpoint = NULL;
    COH_TRY(coh_checkpoint_open(what, &checkpoint));
    coh_status status = model_from_checkpoint(checkpoint, &model);
    coh_checkpoint_close(checkpoint);
    if (status != COH_OK)
        return status;
    if (vocabulary && vocabulary != model.gpt2.vocabulary)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the model in %.300s has a vocabulary of %" PRId64
                        ", the tokenizer has %" PRId64 ": use the one it was trained with",
                        model.checkpoint, model.gpt2.vocabulary, vocabulary);
    *out_model = model;
    return COH_OK;
}
