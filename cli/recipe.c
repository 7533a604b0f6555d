/* Makes a recipe from flags, reads it from a note and writes it to one. The one idea: one table of
 * keys serves reading and writing, so a checkpoint's note gives back the same recipe. Next:
 * recipe_resume.c changes a resumed run's recipe. */
#include "cli/recipe.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/artefact.h"
#include "cli/weights.h"

enum { NOTE_VERSION = 1, MICRO_BATCH_MOST = 8, WARMUP_MOST = 100, WARMUP_SHARE = 10 };

int64_t cli_default_micro_batch(int64_t batch)
{
    for (int64_t divisor = batch < MICRO_BATCH_MOST ? batch : MICRO_BATCH_MOST; divisor > 1;
         divisor--)
        if (batch % divisor == 0)
            return divisor;
    return 1;
}

coh_status cli_recipe_check_micro_batch(const cli_recipe *recipe)
{
    if (recipe->batch % recipe->micro_batch == 0)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--micro-batch %" PRId64 " does not divide --batch %" PRId64
                    ": give a divisor, or leave it out for %" PRId64,
                    recipe->micro_batch, recipe->batch, cli_default_micro_batch(recipe->batch));
}

void cli_recipe_keep_path(const char *path, char *out_path)
{
    char *absolute = path[0] ? realpath(path, NULL) : NULL;
    snprintf(out_path, CLI_PATH_BYTES, "%s", absolute ? absolute : path);
    free(absolute);
}

/* For commands with presets, a preset's name always means the preset, whatever the working folder
 * holds. */
static int is_preset(const cli_options *options)
{
    return cli_command_operand(options->command) == CLI_OPERAND_MODEL &&
           cli_artefact_is_preset(options->operand);
}

/* Finds the tokenizer of the run of a checkpoint; "" if the operand is not a checkpoint, or has no
 * note of a run. Opening it as a model reports what is wrong with it. */
static void find_noted(const char *path, char *out_path)
{
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    cli_recipe noted;
    struct stat kind;
    out_path[0] = '\0';
    if (stat(path, &kind) != 0 || !S_ISDIR(kind.st_mode) ||
        coh_checkpoint_open(path, &checkpoint) != COH_OK)
        return;
    if (coh_checkpoint_facts_get(checkpoint, &facts) == COH_OK &&
        cli_recipe_from_note(facts.note_json, &noted) == COH_OK)
        snprintf(out_path, CLI_PATH_BYTES, "%s", noted.tokenizer);
    coh_checkpoint_close(checkpoint);
}

/* Is it a word of --tokenizer that is not a path? */
static int is_word(const char *tokenizer)
{
    return strcmp(tokenizer, "bytes") == 0 || cli_recipe_has_no_tokenizer(tokenizer);
}

int cli_recipe_has_no_tokenizer(const char *tokenizer)
{
    return strcmp(tokenizer, "none") == 0;
}

coh_status cli_recipe_open_named(const char *tokenizer, coh_tokenizer **out_tokenizer)
{
    *out_tokenizer = NULL;
    if (cli_recipe_has_no_tokenizer(tokenizer))
        return COH_OK;
    return coh_tokenizer_open(tokenizer, out_tokenizer);
}

/* `more`: a further remedy. */
static coh_status check_noted_is_there(const char *tokenizer, const char *more)
{
    struct stat facts;
    if (is_word(tokenizer) || stat(tokenizer, &facts) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the tokenizer of the run, %s, is not there any more: give it with --tokenizer"
                    " PATH%s",
                    tokenizer, more);
}

coh_status cli_recipe_open_tokenizer(const cli_recipe *recipe, const cli_options *options,
                                     coh_tokenizer **out_tokenizer)
{
    const int is_given = cli_given(options, CLI_FLAG_TOKENIZER);
    const int exports = options->command == CLI_EXPORT;
    CLI_TRY(check_noted_is_there(recipe->tokenizer,
                                 exports ? ", or leave it out with --tokenizer none" : ""));
    CLI_TRY(cli_recipe_open_named(recipe->tokenizer, out_tokenizer));
    if (!*out_tokenizer || recipe->tokenizer_identity == 0) /* trained without a tokenizer */
        return COH_OK;
    const uint64_t identity = coh_tokenizer_identity(*out_tokenizer);
    if (identity == recipe->tokenizer_identity)
        return COH_OK;
    coh_tokenizer_close(*out_tokenizer);
    *out_tokenizer = NULL;
    return cli_fail(COH_ERR_CORRUPT,
                    "the tokenizer %s is not the one the checkpoint was trained with (%016" PRIx64
                    ", not %016" PRIx64 "): %s%s",
                    recipe->tokenizer, identity, recipe->tokenizer_identity,
                    is_given ? "leave --tokenizer out" : "give that one with --tokenizer PATH",
                    exports ? ", or give --tokenizer none" : "");
}

void cli_recipe_set_tokenizer(cli_recipe *recipe, const cli_options *options)
{
    if (!cli_given(options, CLI_FLAG_TOKENIZER))
        return;
    if (is_word(options->tokenizer))
        snprintf(recipe->tokenizer, sizeof(recipe->tokenizer), "%s", options->tokenizer);
    else
        cli_recipe_keep_path(options->tokenizer, recipe->tokenizer);
}

/* Chooses a Hugging Face folder's tokenizer. Its model is checked first: if it is refused, a
 * tokenizer does not help. */
static coh_status choose_of_folder(const cli_options *options, const char **out_chosen)
{
    const char *folder = options->operand;
    coh_model ignored;
    CLI_TRY(cli_weights_resolve(folder, 0, &ignored));
    if (cli_given(options, CLI_FLAG_TOKENIZER))
        return COH_OK;
    const int reads_no_text = options->command == CLI_PLAN || options->command == CLI_TUNE ||
                              options->command == CLI_PROFILE;
    if (cli_artefact_has_tokenizer(folder))
        *out_chosen = folder;
    else if (!reads_no_text)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s holds no tokenizer (tokenizer.json, tokenizer.model, or vocab.json "
                        "with merges.txt): give the one it was trained with as --tokenizer "
                        "bytes|PATH%s",
                        folder,
                        options->command == CLI_GENERATE
                            ? ""
                            : ", or --tokenizer none for --data that is ids already");
    return COH_OK;
}

coh_status cli_recipe_choose_tokenizer(const cli_options *options, char *out_path)
{
    char noted[CLI_PATH_BYTES];
    const char *chosen = options->tokenizer;
    const char *folder = options->operand;
    const int is_folder = folder && cli_artefact_is_folder(folder);
    if (is_folder && is_preset(options)) {
        cli_note("note: %s is the preset of that name; the folder here is ./%s", folder, folder);
    } else if (is_folder) {
        CLI_TRY(choose_of_folder(options, &chosen));
    } else if (folder && !is_folder && !is_preset(options) &&
               !cli_given(options, CLI_FLAG_TOKENIZER)) {
        find_noted(folder, noted);
        if (noted[0]) {
            CLI_TRY(check_noted_is_there(noted, ""));
            chosen = noted;
        }
    }
    snprintf(out_path, CLI_PATH_BYTES, "%s", chosen);
    if (!is_word(chosen))
        cli_recipe_keep_path(chosen, out_path);
    return COH_OK;
}

uint64_t cli_warmup_steps(const cli_share *warmup, uint64_t schedule_steps)
{
    if (!warmup->is_share)
        return (uint64_t)warmup->count;
    return (uint64_t)(warmup->percent * (double)schedule_steps / 100 + 0.5);
}

/* High rates destroy trained weights. Adapters are new weights (LoRA, Hu et al. 2021, section D:
 * 2e-4 for GPT-2). */
#define PRETRAINED_RATE 2e-5
#define ADAPTER_RATE    2e-4

void cli_recipe_set_rate(cli_recipe *recipe, const cli_options *options, int is_pretrained)
{
    recipe->schedule.highest = options->lr;
    if (!is_pretrained || cli_given(options, CLI_FLAG_LR))
        return;
    const int adapts = cli_given(options, CLI_FLAG_LORA);
    recipe->schedule.highest = adapts ? ADAPTER_RATE : PRETRAINED_RATE;
    if (options->command == CLI_TRAIN)
        cli_note("lr %s: default for %s", cli_rate(recipe->schedule.highest).at,
                 adapts ? "adapters of pretrained weights" : "pretrained weights");
}

coh_status cli_recipe_set_steps(cli_recipe *recipe, const cli_options *options, uint64_t steps)
{
    cli_schedule *schedule = &recipe->schedule;
    recipe->steps = steps;
    schedule->lowest =
        cli_given(options, CLI_FLAG_MIN_LR) ? options->min_lr : schedule->highest / 10;
    schedule->schedule_steps = cli_given(options, CLI_FLAG_SCHEDULE_STEPS)
                                   ? (uint64_t)options->schedule_steps
                                   : recipe->steps;
    uint64_t warmup = schedule->schedule_steps / WARMUP_SHARE;
    schedule->warmup_steps = warmup < WARMUP_MOST ? warmup : WARMUP_MOST;
    if (cli_given(options, CLI_FLAG_WARMUP))
        schedule->warmup_steps = cli_warmup_steps(&options->warmup, schedule->schedule_steps);
    if (schedule->lowest > schedule->highest)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--min-lr %g is above the highest rate %g: lower it, or raise --lr",
                        schedule->lowest, schedule->highest);
    if (schedule->warmup_steps > schedule->schedule_steps)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--warmup %" PRIu64 " is longer than the schedule of %" PRIu64
                        " steps: lower it or raise --schedule-steps",
                        schedule->warmup_steps, schedule->schedule_steps);
    return COH_OK;
}

int cli_recipe_form_is_given(const cli_options *options)
{
    return cli_given(options, CLI_FLAG_FIELD) || cli_given(options, CLI_FLAG_CHAT) ||
           cli_given(options, CLI_FLAG_CHAT_FORM) || cli_given(options, CLI_FLAG_DOCUMENTS) ||
           cli_given(options, CLI_FLAG_VALIDATION_SPLIT);
}

void cli_recipe_set_order(cli_recipe *recipe, coh_sweep_order order)
{
    uint64_t by_layers = order == COH_SWEEP_LAYER;
    if (recipe->batch == recipe->micro_batch || by_layers == recipe->by_layers)
        return;
    cli_note("sweep order %s -> %s: other rounding", recipe->by_layers ? "layer" : "micro-batch",
             coh_sweep_order_name(order));
    recipe->by_layers = by_layers;
}

/* The flag's choices have the order of coh_dtype. */
static uint64_t asks_for_f32_gradients(const cli_options *options)
{
    return cli_given(options, CLI_FLAG_GRADIENTS) && options->gradients == COH_DTYPE_F32;
}

coh_status cli_recipe_set_optimizer(cli_recipe *recipe, const cli_options *options)
{
    if (!cli_given(options, CLI_FLAG_OPTIMIZER))
        return COH_OK;
    if (coh_optimizer_find(options->optimizer) == NULL)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--optimizer is one of adamw, adamw8, adamw8sr, lion and sgd, not '%s'",
                        options->optimizer);
    snprintf(recipe->optimizer, sizeof(recipe->optimizer), "%s", options->optimizer);
    return COH_OK;
}

coh_status cli_recipe_check_clip(const cli_recipe *recipe)
{
    if (recipe->clips_by_previous && recipe->clip <= 0)
        return cli_fail(COH_ERR_ARGUMENT, "--clip-mode previous has no limit to clip to with --clip"
                                          " 0: raise it, or give --clip-mode exact");
    return COH_OK;
}

coh_status cli_recipe_from_options(const cli_options *options, cli_recipe *out_recipe)
{
    cli_recipe *recipe = out_recipe;
    *recipe = (cli_recipe){ .batch = options->batch,
                            .sequence = options->sequence,
                            .beta1 = cli_given(options, CLI_FLAG_BETA1) ? options->beta1 : -1,
                            .beta2 = cli_given(options, CLI_FLAG_BETA2) ? options->beta2 : -1,
                            .weight_decay = options->weight_decay,
                            .clip = options->clip,
                            .clips_by_previous = (uint64_t)options->clip_mode,
                            .lr_for = options->lr_for,
                            .weight_decay_for = options->weight_decay_for,
                            .optimizer_for = options->optimizer_for,
                            .hyperparameters = options->hyperparameters,
                            .dropout = options->dropout,
                            .seed = (uint64_t)options->seed };
    recipe->micro_batch =
        options->micro_batch > 0 ? options->micro_batch : cli_default_micro_batch(options->batch);
    CLI_TRY(cli_recipe_check_micro_batch(recipe));
    CLI_TRY(cli_recipe_check_clip(recipe));
    CLI_TRY(cli_recipe_set_optimizer(recipe, options));
    recipe->by_layers =
        cli_given(options, CLI_FLAG_SWEEP_ORDER) && options->sweep_order == COH_SWEEP_LAYER;
    recipe->f32_gradients = asks_for_f32_gradients(options);
    recipe->atomics = (uint64_t)options->atomics;

    if (cli_given(options, CLI_FLAG_EPOCHS) && cli_given(options, CLI_FLAG_STEPS))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs and --steps both say how long the run is: leave one out");
    CLI_TRY(cli_recipe_choose_tokenizer(options, recipe->tokenizer));
    if (options->kernels)
        cli_recipe_keep_path(options->kernels, recipe->kernels);
    recipe->validation_id_bytes = cli_data_id_bytes(options);
    return cli_data_form_from_options(options, &recipe->form);
}

/* ---- reading the note: one row per key ---- */

typedef enum note_type {
    NOTE_AMOUNT,
    NOTE_REAL,
    NOTE_HEX,
    NOTE_PATH,
    NOTE_NAME, /* of an optimizer, or "" */
    NOTE_FORS,
    NOTE_OPTIMIZERS
} note_type;

typedef struct note_row {
    const char *key;
    note_type type;
    size_t offset;
    double least;
    int later; /* the key is missing in older notes of version 1: then 0 or empty */
} note_row;

#define LATER(key, type, field)                                                                    \
    {                                                                                              \
        key, type, offsetof(cli_recipe, field), 0, 1                                               \
    }
#define ROW(key, type, field, least)                                                               \
    {                                                                                              \
        key, type, offsetof(cli_recipe, field), least, 0                                           \
    }

static const note_row note_rows[] = {
    ROW("steps", NOTE_AMOUNT, steps, 1),
    ROW("schedule_steps", NOTE_AMOUNT, schedule.schedule_steps, 1),
    ROW("warmup_steps", NOTE_AMOUNT, schedule.warmup_steps, 0),
    ROW("lr", NOTE_REAL, schedule.highest, 0),
    ROW("min_lr", NOTE_REAL, schedule.lowest, 0),
    ROW("batch", NOTE_AMOUNT, batch, 1),
    ROW("micro_batch", NOTE_AMOUNT, micro_batch, 1),
    ROW("sequence", NOTE_AMOUNT, sequence, 1),
    ROW("beta1", NOTE_REAL, beta1, -1),
    ROW("beta2", NOTE_REAL, beta2, -1),
    ROW("weight_decay", NOTE_REAL, weight_decay, 0),
    ROW("clip", NOTE_REAL, clip, 0),
    ROW("seed", NOTE_AMOUNT, seed, 0),
    ROW("tokenizer", NOTE_PATH, tokenizer, 0),
    ROW("tokenizer_identity", NOTE_HEX, tokenizer_identity, 0),
    ROW("data", NOTE_PATH, data, 0),
    ROW("data_hash", NOTE_HEX, data_hash, 0),
    ROW("data_first_step", NOTE_AMOUNT, data_first_step, 0),
    LATER("data_first_window", NOTE_AMOUNT, data_first_window),
    LATER("lr_for", NOTE_FORS, lr_for),
    LATER("weight_decay_for", NOTE_FORS, weight_decay_for),
    LATER("optimizer", NOTE_NAME, optimizer),
    LATER("optimizer_for", NOTE_OPTIMIZERS, optimizer_for),
    { "hyperparameters", NOTE_FORS, offsetof(cli_recipe, hyperparameters), -1e30, 1 },
    LATER("dropout", NOTE_REAL, dropout),
    LATER("kernels", NOTE_PATH, kernels),
    LATER("clips_by_previous", NOTE_AMOUNT, clips_by_previous),
    LATER("by_layers", NOTE_AMOUNT, by_layers),
    LATER("f32_gradients", NOTE_AMOUNT, f32_gradients),
    LATER("atomics", NOTE_AMOUNT, atomics),
    LATER("field", NOTE_PATH, form.field),
    LATER("chat", NOTE_AMOUNT, form.chat),
    LATER("chat_form", NOTE_AMOUNT, form.chat_form),
    LATER("aligned", NOTE_AMOUNT, form.aligned),
    LATER("validation_split", NOTE_REAL, form.validation_split),
    LATER("base", NOTE_PATH, base),
    LATER("id_bytes", NOTE_AMOUNT, form.id_bytes),
    LATER("validation", NOTE_PATH, validation),
    LATER("validation_hash", NOTE_HEX, validation_hash),
    LATER("validation_id_bytes", NOTE_AMOUNT, validation_id_bytes),
};
enum { NOTE_ROW_COUNT = sizeof(note_rows) / sizeof(note_rows[0]) };

/* Reads [["PATTERN", X], ...]. */
static int read_fors(const json_t *value, double least, cli_for_list *out_list)
{
    size_t i;
    json_t *pair;
    *out_list = (cli_for_list){ 0 };
    if (!json_is_array(value) || json_array_size(value) > CLI_FORS_MOST)
        return 0;
    json_array_foreach(value, i, pair)
    {
        cli_for *one = &out_list->at[out_list->count++];
        const char *pattern = json_string_value(json_array_get(pair, 0));
        const json_t *number = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !pattern || strlen(pattern) >= sizeof(one->pattern) ||
            !json_is_number(number) || !(json_number_value(number) >= least))
            return 0;
        snprintf(one->pattern, sizeof(one->pattern), "%s", pattern);
        one->value = json_number_value(number);
    }
    return 1;
}

static int read_name(const json_t *value, char *out_text, size_t room)
{
    const char *text = json_string_value(value);
    if (text == NULL || json_string_length(value) >= room || strlen(text) >= room)
        return 0;
    snprintf(out_text, room, "%s", text);
    return 1;
}

/* Reads [["PATTERN", "NAME"], ...]. */
static int read_optimizers(const json_t *value, cli_optimizer_list *out_list)
{
    size_t i;
    json_t *pair;
    *out_list = (cli_optimizer_list){ 0 };
    if (!json_is_array(value) || json_array_size(value) > CLI_FORS_MOST)
        return 0;
    json_array_foreach(value, i, pair)
    {
        coh_optimizer_choice *one = &out_list->at[out_list->count++];
        if (json_array_size(pair) != 2 ||
            !read_name(json_array_get(pair, 0), one->pattern, sizeof(one->pattern)) ||
            !read_name(json_array_get(pair, 1), one->optimizer, sizeof(one->optimizer)))
            return 0;
    }
    return 1;
}

static int read_value(const note_row *row, const json_t *value, void *field)
{
    switch (row->type) {
    case NOTE_AMOUNT:
        if (!json_is_integer(value) || (double)json_integer_value(value) < row->least)
            return 0;
        *(uint64_t *)field = (uint64_t)json_integer_value(value);
        return 1;
    case NOTE_REAL:
        if (!json_is_number(value) || !(json_number_value(value) >= row->least))
            return 0;
        *(double *)field = json_number_value(value);
        return 1;
    case NOTE_HEX: {
        char *end = NULL;
        if (!json_is_string(value) || json_string_length(value) != 16)
            return 0;
        *(uint64_t *)field = strtoull(json_string_value(value), &end, 16);
        return *end == '\0';
    }
    case NOTE_PATH:
        if (!json_is_string(value) || json_string_length(value) >= CLI_PATH_BYTES)
            return 0;
        memcpy(field, json_string_value(value), json_string_length(value) + 1);
        return 1;
    case NOTE_NAME:
        return read_name(value, field, COH_OPTIMIZER_NAME_BYTES);
    case NOTE_FORS:
        return read_fors(value, row->least, field);
    case NOTE_OPTIMIZERS:
        return read_optimizers(value, field);
    }
    return 0;
}

coh_status cli_recipe_from_note(const char *note_json, cli_recipe *out_recipe)
{
    json_error_t error;
    coh_status status = COH_OK;
    *out_recipe = (cli_recipe){ 0 };
    json_t *note = json_loads(note_json, JSON_REJECT_DUPLICATES, &error);
    const char *format = json_string_value(json_object_get(note, "format"));
    if (!format || strcmp(format, "cohobate-note") != 0 ||
        json_integer_value(json_object_get(note, "version")) != NOTE_VERSION)
        CLI_TRY_GOTO(status,
                     cli_fail(COH_ERR_CORRUPT,
                              "the checkpoint holds no training note of version %d: it was not"
                              " written by this program's train, so it cannot be resumed",
                              NOTE_VERSION),
                     done);
    for (int i = 0; i < NOTE_ROW_COUNT; i++) {
        const note_row *row = &note_rows[i];
        const json_t *value = json_object_get(note, row->key);
        if (!(row->later && !value) && !read_value(row, value, (char *)out_recipe + row->offset))
            CLI_TRY_GOTO(status,
                         cli_fail(COH_ERR_CORRUPT,
                                  "the checkpoint's note has no valid '%s': use another checkpoint",
                                  row->key),
                         done);
    }
    if (!json_object_get(note, "validation_id_bytes")) /* older notes had one value for both */
        out_recipe->validation_id_bytes = out_recipe->form.id_bytes;
    if (out_recipe->batch % out_recipe->micro_batch != 0 || out_recipe->beta1 >= 1 ||
        out_recipe->beta2 >= 1 || out_recipe->dropout >= 1)
        status = cli_fail(COH_ERR_CORRUPT,
                          "the checkpoint's note contradicts itself (batch %" PRId64
                          ", micro-batch %" PRId64 "): use another checkpoint",
                          out_recipe->batch, out_recipe->micro_batch);
done:
    json_decref(note);
    return status;
}

static int is_of_training(const char *note_json)
{
    json_t *note = json_loads(note_json, JSON_REJECT_DUPLICATES, NULL);
    const char *format = json_string_value(json_object_get(note, "format"));
    const int is_ours = format && strcmp(format, "cohobate-note") == 0;
    json_decref(note);
    return is_ours;
}

coh_status cli_recipe_of_checkpoint(const char *note_json, const cli_options *options,
                                    cli_recipe *out_recipe)
{
    if (is_of_training(note_json))
        return cli_recipe_from_note(note_json, out_recipe);
    if (!cli_given(options, CLI_FLAG_TOKENIZER))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s was not written by cohobate train, so it does not name its tokenizer: "
                        "give --tokenizer bytes|PATH",
                        options->operand);
    cli_options without = *options; /* a micro-batch of eval need not divide a batch */
    without.micro_batch = 0;
    return cli_recipe_from_options(&without, out_recipe);
}

/* ---- writing the note ---- */

static void add_fors(const cli_for_list *list, cli_line *line)
{
    for (int64_t i = 0; i < list->count; i++)
        cli_line_add_json(line, "[%s, %.17g]", list->at[i].pattern, list->at[i].value);
}

static void add_optimizers(const cli_optimizer_list *list, cli_line *line)
{
    for (int64_t i = 0; i < list->count; i++)
        cli_line_add_json(line, "[%s, %s]", list->at[i].pattern, list->at[i].optimizer);
}

static void add_row(const note_row *row, const cli_recipe *recipe, cli_line *line)
{
    const void *field = (const char *)recipe + row->offset;
    switch (row->type) {
    case NOTE_AMOUNT:
        cli_line_add_json(line, "%s: %" PRIu64, row->key, *(const uint64_t *)field);
        break;
    case NOTE_REAL:
        cli_line_add_json(line, "%s: %.17g", row->key, *(const double *)field);
        break;
    case NOTE_HEX:
        cli_line_add_json(line, "%s: '%016" PRIx64 "'", row->key, *(const uint64_t *)field);
        break;
    case NOTE_PATH:
    case NOTE_NAME:
        cli_line_add_json(line, "%s: %s", row->key, (const char *)field);
        break;
    case NOTE_FORS:
        cli_line_add_json(line, "%s: [", row->key);
        add_fors(field, line);
        cli_line_add_json(line, "]");
        break;
    case NOTE_OPTIMIZERS:
        cli_line_add_json(line, "%s: [", row->key);
        add_optimizers(field, line);
        cli_line_add_json(line, "]");
        break;
    }
}

coh_status cli_recipe_to_note(const cli_recipe *recipe, const coh_model *model, cli_line *out_note)
{
    char model_json[COH_MODEL_JSON_BYTES];
    CLI_TRY(coh_model_to_json(model, model_json, sizeof(model_json)));
    cli_line_clear(out_note);
    cli_line_add(out_note, "{\"format\": \"cohobate-note\", \"version\": %d, \"model\": %s",
                 NOTE_VERSION, model_json);
    for (int i = 0; i < NOTE_ROW_COUNT; i++)
        add_row(&note_rows[i], recipe, out_note);
    cli_line_add(out_note, "}");
    if (out_note->cut)
        return cli_fail(COH_ERR_ARGUMENT,
                        "paths and patterns are too long for a checkpoint's note (%d bytes): use "
                        "shorter ones",
                        CLI_LINE_BYTES);
    json_t *read = json_loads(out_note->text, 0, NULL);
    if (!read)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the paths of model, tokenizer or data are not UTF-8, so no checkpoint "
                        "could name them: rename what is not");
    json_decref(read);
    return COH_OK;
}
