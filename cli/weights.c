/* Opens the source of a model's parameters and reads numbers from it. The one idea: a checkpoint
 * and a folder sit behind one source function, which the engine calls. Next: models/folder_read.c,
 * cohobate/checkpoint.h. */
#include "cli/weights.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/recipe.h"
#include "report/run.h"

/* Does the folder have a folder step-<number>? */
static int has_checkpoint(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    struct stat facts;
    int is_found = 0;
    while (listing && !is_found && (entry = readdir(listing))) {
        const char *name = entry->d_name;
        is_found = cli_artefact_is_step(name) && fstatat(dirfd(listing), name, &facts, 0) == 0 &&
                   S_ISDIR(facts.st_mode);
    }
    if (listing)
        closedir(listing);
    return is_found;
}

coh_status cli_weights_blame_going(const char *path, coh_status status)
{
    char why[1024];
    int32_t is_held = 0;
    int64_t process = 0;
    if (status != COH_ERR_CORRUPT || has_checkpoint(path))
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    if (coh_run_lock_holder(path, &is_held, &process) == COH_OK && is_held)
        return cli_fail(status,
                        "%s has no checkpoint yet, and its run continues (process %" PRId64
                        "): wait for its first save (--save-every N), or stop it, which saves",
                        path, process);
    return cli_fail(status, "%s", why);
}

coh_status cli_weights_open_checkpoint(const char *path, cli_weights *out_weights)
{
    *out_weights = (cli_weights){ .facts.struct_bytes = sizeof(out_weights->facts),
                                  .adapters = out_weights->adapters,
                                  .adapted = out_weights->adapted };
    CLI_TRY(cli_weights_blame_going(path, coh_checkpoint_open(path, &out_weights->checkpoint)));
    out_weights->is_checkpoint = 1;
    const coh_status status =
        coh_checkpoint_facts_get(out_weights->checkpoint, &out_weights->facts);
    if (status != COH_OK)
        cli_weights_close(out_weights);
    else if (out_weights->facts.passed_over[0])
        cli_note("warning: %s; the newest that is whole is taken: %s",
                 out_weights->facts.passed_over, out_weights->facts.path);
    return status;
}

coh_status cli_weights_check_not_in_use(const char *folder)
{
    char path[CLI_PATH_BYTES], why[1024];
    coh_run_lock lock;
    int length = snprintf(path, sizeof(path), "%s/lock", folder);
    if (length >= CLI_PATH_BYTES || access(path, F_OK) != 0)
        return COH_OK;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    coh_status status = coh_run_lock_take(folder, &lock);
    coh_run_lock_release(&lock);
    if (status == COH_ERR_ARGUMENT)
        return status;
    (void)cli_fail(COH_ERR_CORRUPT, "%s", why);
    return COH_OK;
}

coh_status cli_weights_resolve(const char *path, int64_t vocabulary, coh_model *out_model)
{
    char below[CLI_PATH_BYTES];
    if (strchr(path, '/') || snprintf(below, sizeof(below), "./%s", path) >= CLI_PATH_BYTES)
        snprintf(below, sizeof(below), "%s", path);
    return cli_weights_blame_going(path, coh_model_resolve(below, vocabulary, out_model));
}

coh_status cli_weights_check_vocabulary(const coh_model *model, const coh_tokenizer *tokenizer)
{
    if (!tokenizer)
        return COH_OK;
    const int64_t rows = coh_model_size_get(model).vocabulary;
    const int64_t ids = coh_tokenizer_vocabulary(tokenizer);
    const char *text, *path = model->folder[0] ? model->folder : model->checkpoint;
    size_t bytes;
    if (rows < coh_tokenizer_own_vocabulary(tokenizer))
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s has a vocabulary of %" PRId64 ", the tokenizer one of %" PRId64
                        ": give the --tokenizer it was trained with",
                        path, rows, ids);
    if (rows >= ids)
        return COH_OK;
    CLI_TRY(coh_tokenizer_piece(tokenizer, (int32_t)rows, &text, &bytes));
    cli_note_choice(
        "warning: %s has a vocabulary of %" PRId64 ", and added tokens of its tokenizer have ids "
        "up to %" PRId64 " (\"%.*s\" is the first beyond): text that holds one of those is "
        "refused",
        path, rows, ids - 1, bytes < 100 ? (int)bytes : 100, text);
    return COH_OK;
}

static int is_other(const coh_tokenizer *tokenizer, uint64_t identity)
{
    return identity != 0 && coh_tokenizer_identity(tokenizer) != identity;
}

void cli_weights_say_other_tokenizer(const cli_weights *weights, const coh_model *model,
                                     const cli_options *options, const coh_tokenizer *tokenizer)
{
    cli_recipe noted;
    coh_tokenizer *own = NULL;
    if (weights->checkpoint && cli_recipe_from_note(weights->facts.note_json, &noted) == COH_OK &&
        is_other(tokenizer, noted.tokenizer_identity))
        cli_note_choice(
            "note: the checkpoint was trained with another tokenizer (%s), whose ids mean other"
            " text",
            noted.tokenizer);
    if (weights->folder && cli_given(options, CLI_FLAG_TOKENIZER) &&
        !cli_artefact_is_within(model->folder, options->tokenizer) &&
        coh_tokenizer_open(model->folder, &own) == COH_OK &&
        is_other(tokenizer, coh_tokenizer_identity(own)))
        cli_note_choice("note: --tokenizer %s is not the tokenizer of %s, so ids mean other text "
                        "than the weights have learned: leave --tokenizer out",
                        options->tokenizer, model->folder);
    coh_tokenizer_close(own);
}

static coh_status open_folder(coh_model *model, cli_weights *weights)
{
    CLI_TRY(coh_folder_open(model, &weights->folder));
    weights->is_folder = 1;
    weights->folder_facts = (coh_folder_facts){ .struct_bytes = sizeof(weights->folder_facts) };
    CLI_TRY(coh_folder_facts_get(weights->folder, &weights->folder_facts));
    return coh_folder_describe(weights->folder, model);
}

coh_status cli_weights_open(coh_model *model, cli_weights *out_weights)
{
    *out_weights =
        (cli_weights){ .adapters = out_weights->adapters, .adapted = out_weights->adapted };
    if (model->checkpoint[0])
        return cli_weights_open_checkpoint(model->checkpoint, out_weights);
    if (!model->folder[0])
        return COH_OK;
    const coh_status status = open_folder(model, out_weights);
    if (status != COH_OK)
        cli_weights_close(out_weights);
    return status;
}

coh_status cli_weights_open_adapters(const cli_options *options, coh_model *model,
                                     cli_weights *weights)
{
    if (!options->adapter)
        return COH_OK;
    if (!model->folder[0] && !model->checkpoint[0])
        return cli_fail(COH_ERR_ARGUMENT,
                        "--adapter goes with trained weights, and %s begins with first values: "
                        "give the folder of the model that the adapters belong to",
                        options->operand);
    if (model->adapters.rank > 0 || model->adapters.freeze[0])
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s already has adapters or frozen operators: leave --adapter out, or "
                        "give the model that the adapters belong to",
                        options->operand);
    weights->adapted = model;
    CLI_TRY(coh_adapters_open(options->adapter, model, &weights->adapters));
    if (model->folder[0])
        cli_artefact_say_other_base(options->adapter, model->folder);
    if (coh_adapters_frozen_nf4(weights->adapters) && !cli_given(options, CLI_FLAG_FROZEN_DTYPE))
        cli_note_choice("note: the adapters in %s were trained over weights in nf4, and those of "
                        "%s are taken as they are stored, which they fit a little less%s",
                        options->adapter, options->operand,
                        cli_flag_table[CLI_FLAG_FROZEN_DTYPE].commands >> options->command & 1
                            ? "; --frozen-dtype nf4 rounds those, too"
                            : "");
    return COH_OK;
}

int cli_weights_find_older(const char *run, uint64_t *step, char out_path[CLI_PATH_BYTES])
{
    DIR *listing = opendir(run);
    const struct dirent *entry;
    int is_found = 0;
    uint64_t newest = 0;
    while (listing && (entry = readdir(listing))) {
        uint64_t found;
        const char *rest = report_step_of(entry->d_name, &found);
        if (!rest || rest[0] != '\0' || found >= *step || (is_found && found <= newest) ||
            snprintf(out_path, CLI_PATH_BYTES, "%s/%s", run, entry->d_name) >= CLI_PATH_BYTES)
            continue;
        is_found = 1;
        newest = found;
    }
    if (listing)
        closedir(listing);
    *step = newest;
    return is_found;
}

/* No checkpoint is in the folder of one that was given by its own path. */
coh_status cli_weights_name_older(const cli_weights *weights, const char *operand,
                                  coh_status status)
{
    char older[CLI_PATH_BYTES], why[1024];
    uint64_t step = weights->facts.step;
    if (status != COH_ERR_CORRUPT || !weights->is_checkpoint || !operand)
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    return cli_weights_find_older(operand, &step, older)
               ? cli_fail(status, "%s; before it there is %s: give that", why, older)
               : status;
}

coh_status cli_weights_loaded(cli_weights *weights)
{
    if (weights->checkpoint) {
        weights->loaded_path = strdup(weights->facts.path);
        if (!weights->loaded_path)
            return cli_fail(COH_ERR_MEMORY, "no memory for the path of a checkpoint");
        weights->facts.path = weights->loaded_path;
        weights->facts.note_json = weights->facts.passed_over = "";
    }
    coh_checkpoint_close(weights->checkpoint);
    coh_folder_close(weights->folder);
    coh_adapters_close(weights->adapters);
    weights->checkpoint = NULL;
    weights->folder = NULL;
    weights->adapters = NULL;
    return COH_OK;
}

void cli_weights_close(cli_weights *weights)
{
    coh_checkpoint_close(weights->checkpoint);
    coh_folder_close(weights->folder);
    coh_adapters_close(weights->adapters);
    free(weights->loaded_path);
    *weights = (cli_weights){ 0 };
}

/* -1: the checkpoint has no such tensor. */
static int32_t tensor_named(const cli_weights *from, const char *name)
{
    coh_checkpoint_tensor tensor;
    for (int32_t i = 0; i < from->facts.tensor_count; i++)
        if (coh_checkpoint_tensor_at(from->checkpoint, i, &tensor) == COH_OK &&
            strcmp(tensor.name, name) == 0)
            return i;
    return -1;
}

coh_status cli_weights_numbers(void *weights, const char *name, uint64_t element_begin,
                               uint64_t count, float *values)
{
    const cli_weights *from = weights;
    if (from->adapters && coh_model_is_adapted(from->adapted, name))
        return coh_adapters_numbers(from->adapters, name, element_begin, count, values);
    if (from->folder)
        return coh_folder_numbers(from->folder, COH_PARAMETER_NEW, name, element_begin, count,
                                  values);
    const int32_t index = tensor_named(from, name);
    if (index < 0)
        return cli_fail(COH_ERR_CORRUPT, "checkpoint %s has no tensor %s: it is of another model",
                        from->facts.path, name);
    return coh_checkpoint_read(from->checkpoint, index, 0, element_begin, count, values);
}

coh_status cli_weights_check_finite(const cli_weights *weights, const char *name, uint64_t count,
                                    const float *values)
{
    coh_folder_tensor at = { .found_name = "" };
    int is_broken = 0;
    for (uint64_t e = 0; e < count; e++)
        is_broken |= !isfinite(values[e]);
    if (!is_broken)
        return COH_OK;
    for (int64_t i = 0; i < weights->folder_facts.tensor_count; i++) {
        CLI_TRY(coh_folder_tensor_at(weights->folder, i, &at));
        if (strcmp(at.tensor.name, name) == 0)
            break;
    }
    return cli_fail(COH_ERR_CORRUPT,
                    "%s of %s holds a number that is not finite: take a whole copy of the model",
                    at.found_name, at.file_name);
}

coh_status cli_weights_source(void *weights, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *values)
{
    const cli_weights *from = weights;
    (void)parameter;
    if (from->adapters && coh_model_is_adapted(from->adapted, name))
        return coh_adapters_numbers(from->adapters, name, element_begin, count, values);
    /* New adapters start with the initial values of their kinds. */
    if (!from->folder && coh_model_is_adapter_name(name) && tensor_named(from, name) < 0)
        return COH_OK;
    CLI_TRY(cli_weights_numbers(weights, name, element_begin, count, values));
    return from->folder ? cli_weights_check_finite(from, name, count, values) : COH_OK;
}

void cli_weights_say(const coh_model *model)
{
    for (const char *line = model->notes; *line;) {
        const size_t length = strcspn(line, "\n");
        cli_note_once("%.*s", (int)length, line); /* may explain a refusal */
        line += length + (line[length] == '\n');
    }
}
