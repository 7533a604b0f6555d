/* Finds the model that a user names: a preset, a Hugging Face folder or a checkpoint. Also reads
 * and writes a model in the note of a checkpoint:
 *
 *   {"family": "llama", "name": "tiny", "dtype": "bf16", "config": {"model_type": "llama", ...},
 *    "adapters": {"freeze": "", "rank": 8, "alpha": 16.0, "targets": "q_proj,v_proj"},
 *    "stored": {"dtypes": "fhhhf", "metadata": {"format": "pt"}}}
 *
 * "config" is a config.json. "adapters" is present if not all is trained, with a member "also" if
 * operators are trained in full next to adapters; "stored", if a folder's tensors were stored
 * differently from config (stored.h). Notes older than model families hold GPT-2's sizes. Next:
 * config_read.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cohobate/checkpoint.h"
#include "models/adapters.h"
#include "models/config.h"
#include "models/family.h"
#include "models/stored.h"

/* ---- JSON ---- */

/* A name becomes part of a run folder's name: it must be one path component, printable, in UTF-8
 * like notes. */
static int is_fit_name(const char *name)
{
    if (!name[0] || strlen(name) >= sizeof(((coh_model *)0)->name) || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return 0;
    for (const char *at = name; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f || *at == '/')
            return 0;
    }
    return coh_utf8_stretch((const uint8_t *)name, strlen(name)) == strlen(name);
}

coh_status coh_model_to_json(const coh_model *model, char *text, size_t text_bytes)
{
    if (!model || !text || !text_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "a model's JSON needs a model and a place for the text");
    if (!is_fit_name(model->name))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"%.128s\" cannot be a model's name: 1 to %zu bytes of UTF-8 without "
                        "\"/\" and control characters",
                        model->name, sizeof(model->name) - 1);
    const coh_family_table *family = coh_family_of(model);
    if (!family)
        return coh_fail(COH_ERR_ARGUMENT, "a model of family %d is not known", (int)model->family);
    COH_TRY(family->check(coh_family_config(model)));
    COH_TRY(coh_adapters_check(model));
    if (coh_model_type_name(model)[0] == '\0' || (unsigned)model->stored >= COH_STORED_DTYPES)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a model of family %s has no such type, or is stored in no known dtype",
                        family->name);
    coh_text out = { .data = text, .capacity = text_bytes, .is_fixed = 1 };
    (void)coh_text_add(&out, "{\"family\": \"%s\", \"name\": ", family->name);
    (void)coh_text_add_quoted(&out, model->name);
    (void)coh_text_add(&out, ", \"dtype\": \"%s\", \"config\": ",
                       coh_stored_dtypes[coh_model_size_get(model).dtype].note);
    coh_config_write(model, model->stored, &out);
    coh_adapters_to_text(&model->adapters, &out);
    coh_stored_to_text(model, &out);
    (void)coh_text_add(&out, "}");
    if (out.bytes >= text_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "a model's JSON of %zu bytes does not fit in %zu",
                        out.bytes, text_bytes);
    return COH_OK;
}

static coh_status dtype_from_name(const char *name, coh_dtype *out_dtype)
{
    for (int dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_BF16; dtype++)
        if (strcmp(name, coh_stored_dtypes[dtype].note) == 0) {
            *out_dtype = (coh_dtype)dtype;
            return COH_OK;
        }
    return coh_fail(COH_ERR_CORRUPT, "a model's dtype is f32 or bf16, not \"%.100s\"", name);
}

static coh_status name_set(const char *name, coh_model *model)
{
    if (!is_fit_name(name))
        return coh_fail(COH_ERR_CORRUPT, "\"%.128s\" cannot be a model's name", name);
    snprintf(model->name, sizeof(model->name), "%s", name);
    return COH_OK;
}

/* Reads a note older than model families: exactly these fields, each of its type; "dtype" may be
 * missing, since the first checkpoints had none. */
static coh_status model_from_old(json_t *value, coh_model *out_model)
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
                        "a model of family \"%.100s\" has no such fields, only one of \"gpt2\"",
                        family);
    coh_model model = { .family = COH_FAMILY_GPT2,
                        .gpt2 = { .layers = layers,
                                  .heads = heads,
                                  .channels = channels,
                                  .positions = positions,
                                  .vocabulary = vocabulary,
                                  .layernorm_epsilon = (float)epsilon } };
    COH_TRY(name_set(name, &model));
    COH_TRY(dtype_from_name(dtype_name, &model.gpt2.dtype));
    if (coh_family_of(&model)->check(&model.gpt2) != COH_OK)
        return coh_fail_prefix(COH_ERR_CORRUPT, "the JSON describes no model");
    *out_model = model;
    return COH_OK;
}

static coh_status model_from_value(json_t *value, coh_model *out_model)
{
    const char *family, *name, *dtype_name;
    json_t *config, *adapters = NULL, *stored = NULL;
    json_error_t error;
    coh_dtype dtype;
    coh_model model;
    if (!json_object_get(value, "config"))
        return model_from_old(value, out_model);
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:s, s:s, s:o, s?:o, s?:o}", "family",
                       &family, "name", &name, "dtype", &dtype_name, "config", &config, "adapters",
                       &adapters, "stored", &stored) != 0)
        return coh_fail(COH_ERR_CORRUPT, "the JSON is not a model's: %s", error.text);
    COH_TRY(dtype_from_name(dtype_name, &dtype));
    COH_TRY(coh_config_read(config, &model));
    if (strcmp(family, coh_family_of(&model)->name) != 0)
        return coh_fail(COH_ERR_CORRUPT, "a model of type \"%s\" is not of family \"%.100s\"",
                        coh_model_type_name(&model), family);
    COH_TRY(name_set(name, &model));
    coh_model_dtype_set(&model, dtype);
    COH_TRY(coh_adapters_from_json(adapters, &model.adapters));
    COH_TRY(coh_stored_from_json(stored, &model));
    if (coh_adapters_check(&model) != COH_OK)
        return coh_fail_prefix(COH_ERR_CORRUPT, "a model's JSON");
    model.notes[0] = '\0'; /* already printed when the folder was read */
    *out_model = model;
    return COH_OK;
}

static coh_status parse_object(const char *json, json_t **out_root)
{
    coh_status status = coh_json_load(json, strlen(json), out_root);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "a model's JSON");
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

/* ---- names given by users ---- */

/* Reads the model in a checkpoint's note, under "model". */
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

static coh_status path_set(const char *what, const char *path, char *place, size_t place_bytes)
{
    if (snprintf(place, place_bytes, "%s", path) >= (int)place_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "%s path of %zu bytes is too long", what, strlen(path));
    return COH_OK;
}

static coh_status model_from_open(const coh_checkpoint *checkpoint, coh_model *out_model)
{
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    COH_TRY(coh_checkpoint_facts_get(checkpoint, &facts));
    coh_status status = model_from_note(facts.note_json, out_model);
    if (status != COH_OK)
        return coh_fail_prefix(status, "checkpoint %.300s", facts.path);
    if (facts.passed_over[0])
        snprintf(out_model->notes, sizeof(out_model->notes),
                 "warning: %.400s; the newest that is whole is taken: %.400s", facts.passed_over,
                 facts.path);
    return path_set("a checkpoint's", facts.path, out_model->checkpoint,
                    sizeof(out_model->checkpoint));
}

static coh_status model_from_checkpoint(const char *path, coh_model *out_model)
{
    coh_checkpoint *checkpoint = NULL;
    COH_TRY(coh_checkpoint_open(path, &checkpoint));
    coh_status status = model_from_open(checkpoint, out_model);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* Takes the last component of a path as the model's name, if it is a valid name. */
static void name_after(const char *path, coh_model *model)
{
    char name[sizeof(model->name)];
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (end - begin >= sizeof(name))
        return;
    snprintf(name, sizeof(name), "%.*s", (int)(end - begin), path + begin);
    if (is_fit_name(name))
        memcpy(model->name, name, sizeof(name));
}

static coh_status model_from_folder(const char *path, const char *config_path, coh_model *out_model)
{
    char *text;
    size_t bytes;
    COH_TRY(coh_file_read_whole(config_path, COH_CONFIG_BYTES_MOST, &text, &bytes));
    coh_status status = strlen(text) == bytes
                            ? coh_model_from_config(text, out_model)
                            : coh_fail(COH_ERR_CORRUPT, "config.json: it contains a zero byte");
    coh_free(text);
    if (status != COH_OK)
        return coh_fail_prefix(status, "%.300s", path);
    name_after(path, out_model);
    return path_set("a folder's", path, out_model->folder, sizeof(out_model->folder));
}

/* Checks a folder with a config.json for checkpoints: the folder's weights would be used and the
 * checkpoints, which are newer, ignored. */
static coh_status check_one_model(const char *path)
{
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    coh_status status = coh_checkpoint_open(path, &checkpoint);
    if (status != COH_OK)
        return status == COH_ERR_CORRUPT ? COH_OK : status;
    status = coh_checkpoint_facts_get(checkpoint, &facts);
    if (status == COH_OK)
        status = coh_fail(COH_ERR_ARGUMENT,
                          "%.300s holds config.json, a Hugging Face model, and next to it a run's "
                          "checkpoint %.300s: name the checkpoint, or move one of the two",
                          path, facts.path);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* A folder with a config.json is Hugging Face's; any other folder must hold a checkpoint. */
static coh_status model_from_path(const char *path, coh_model *out_model)
{
    char config_path[sizeof(out_model->folder) + 16];
    snprintf(config_path, sizeof(config_path), "%s/config.json", path);
    if (access(config_path, F_OK) != 0)
        return model_from_checkpoint(path, out_model);
    COH_TRY(check_one_model(path));
    return model_from_folder(path, config_path, out_model);
}

static coh_status check_folder(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode))
        return COH_OK;
    char names[COH_PRESET_NAMES_BYTES] = "", meant[COH_PRESET_MEANT_BYTES];
    coh_preset_meant(path, meant);
    if (!meant[0])
        coh_preset_names(names);
    return coh_fail(COH_ERR_ARGUMENT,
                    "\"%.300s\" is neither a preset%s nor the folder of a checkpoint, a run or a "
                    "Hugging Face model%s",
                    path, names, meant);
}

coh_status coh_model_resolve(const char *what, int64_t vocabulary, coh_model *out_model)
{
    if (!what || !what[0] || !out_model)
        return coh_fail(COH_ERR_ARGUMENT, "a model is a preset's name, such as gpt2-nano, or the "
                                          "path of a checkpoint, run or Hugging Face folder; "
                                          "nothing was named");
    coh_model model;
    if (coh_model_preset(what, vocabulary, out_model) == COH_OK)
        return COH_OK;
    /* coh_model_preset checks the vocabulary before the name; report a bad vocabulary first. */
    COH_TRY(coh_model_preset("gpt2", vocabulary, &model));
    COH_TRY(check_folder(what));
    model = (coh_model){ 0 };
    COH_TRY(model_from_path(what, &model));
    /* A table may have more rows than its tokenizer has ids, as padding. */
    const int64_t own = coh_model_size_get(&model).vocabulary;
    if (vocabulary > own)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the model in %.300s has a vocabulary of %" PRId64 " tokens, and %" PRId64
                        " were asked for: take the tokenizer that it was "
                        "trained with, and no vocabulary of your own",
                        model.checkpoint[0] ? model.checkpoint : model.folder, own, vocabulary);
    *out_model = model;
    return COH_OK;
}
