/* The data of a training run: named, the same as before, or put aside for validation. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget.h"
#include "cli/train.h"

/* The token file of a resumed run: as the note has it, or where the run folder is now (of a run
 * that went on with other data it is called data-<step>.tokens). */
static const char *resumed_data(const cli_run *run, char *moved)
{
    const char *noted = run->job.recipe.data;
    if (noted[0] && access(noted, R_OK) == 0)
        return noted;
    const char *slash = strrchr(noted, '/'), *name = slash ? slash + 1 : noted;
    if (snprintf(moved, CLI_PATH_BYTES, "%s/../%s", run->job.weights.facts.path,
                 name[0] ? name : "data.tokens") >= CLI_PATH_BYTES)
        return NULL;
    return access(moved, R_OK) == 0 ? moved : NULL;
}

static coh_status check_same_data(cli_run *run)
{
    cli_recipe *recipe = &run->job.recipe;
    if (!run->job.resumed || recipe->data_hash == run->data.facts.hash)
        return COH_OK;
    if (!run->options->new_data)
        return cli_fail(COH_ERR_CORRUPT,
                        "the data is not what the checkpoint was trained on (hash %016" PRIx64
                        ", not %016" PRIx64 "): give that data, or add --new-data",
                        run->data.facts.hash, recipe->data_hash);
    recipe->data_first_step = run->job.first_step;
    cli_note("other data than before: its windows are read from the first one on");
    return COH_OK;
}

/* ---- names ---- */

/* `path` with "data" for "validation" in its last component: what was put aside of it. */
static int name_held_out(const char *path, char *out_path)
{
    const char *slash = strrchr(path, '/');
    size_t folder_bytes = slash ? (size_t)(slash + 1 - path) : 0;
    if (strncmp(path + folder_bytes, "data", 4) != 0)
        return 0;
    return snprintf(out_path, CLI_PATH_BYTES, "%.*svalidation%s", (int)folder_bytes, path,
                    path + folder_bytes + 4) < CLI_PATH_BYTES;
}

/* Where the tokens of new text go; "": nowhere. The tokens of the run so far are never written
 * over: other data gets a name of its own, and text that must prove to be the same goes into an
 * unnamed file. */
static void name_cache(const cli_run *run, const char *folder, char *out_path)
{
    const cli_job *job = &run->job;
    out_path[0] = '\0';
    if (!folder[0] || (job->resumed && !run->options->new_data))
        return;
    if (job->resumed)
        snprintf(out_path, CLI_PATH_BYTES, "%.*s/data-%" PRIu64 ".tokens", CLI_PATH_BYTES - 40,
                 folder, job->first_step);
    else
        snprintf(out_path, CLI_PATH_BYTES, "%.*s/data.tokens", CLI_PATH_BYTES - 40, folder);
}

coh_status cli_train_name_data(const cli_run *run, const char *folder, cli_recipe *recipe)
{
    const cli_options *options = run->options;
    int is_text;
    if (options->data) {
        CLI_TRY(cli_data_is_text("data", options->data, &is_text));
        if (is_text)
            name_cache(run, folder, recipe->data);
        else
            cli_recipe_keep_path(options->data, recipe->data);
    }
    if (options->validation)
        cli_recipe_keep_path(options->validation, recipe->validation);
    return COH_OK;
}

/* ---- opening ---- */

cli_data_source cli_train_data_source(const cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    return (cli_data_source){ .tokenizer = job->tokenizer,
                              .tokenizer_path = recipe->tokenizer,
                              .vocabulary = coh_model_size_get(&job->model).vocabulary,
                              .sequence = recipe->sequence,
                              .seed = recipe->seed,
                              .form = &recipe->form,
                              .thread_count = cli_budget_thread_count(job->options),
                              .is_form_given = cli_recipe_form_is_given(job->options) };
}

#define GIVE_VALIDATION                                                                            \
    "give that, or another, with --validation FILE, or go on without with --validation none"

/* The text to validate with that has a name of its own: the flag's, else the note's; NULL: none. */
static const char *named_validation(const cli_run *run)
{
    const char *noted = run->job.recipe.validation;
    if (run->options->validation)
        return run->options->validation;
    return noted[0] ? noted : NULL;
}

/* What a resumed run put aside stands beside its data. */
static coh_status open_held_out(cli_run *run, const char *data_path)
{
    char path[CLI_PATH_BYTES];
    if (!name_held_out(data_path, path) || access(path, F_OK) != 0) {
        if (!run->options->new_data)
            return cli_fail(COH_ERR_ARGUMENT,
                            "what the run had put aside for validation is gone: " GIVE_VALIDATION);
        cli_note("nothing is put aside of the new data for validation: its loss is not taken "
                 "(--validation FILE gives another text)");
        return COH_OK;
    }
    cli_data_source source = cli_train_data_source(&run->job);
    source.is_form_given = 0;
    return cli_data_open(&source, "validation-split", path, NULL, NULL, &run->validation, NULL);
}

/* What stands there and is no token file is somebody else's. */
static coh_status check_replaceable(const char *path)
{
    char head[8] = { 0 };
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return COH_OK; /* nothing; or building says what is wrong */
    ssize_t got = read(descriptor, head, sizeof(head));
    close(descriptor);
    if (got == 0 || (got == sizeof(head) && memcmp(head, "COHTOKEN", sizeof(head)) == 0))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s is there and is no token file, and what --validation-split puts aside "
                    "would replace it: move it, or give another --save",
                    path);
}

static coh_status open_training(cli_run *run, const char *what)
{
    cli_recipe *recipe = &run->job.recipe;
    char cache[CLI_PATH_BYTES], held_out[CLI_PATH_BYTES] = "";
    int is_text, splits = recipe->form.validation_split > 0;
    const cli_data_source source = cli_train_data_source(&run->job);
    CLI_TRY(cli_data_is_text("data", what, &is_text));
    name_cache(run, run->folder.path, cache);
    if (cache[0] && splits && is_text) {
        (void)name_held_out(cache, held_out);
        CLI_TRY(check_replaceable(held_out));
    }
    CLI_TRY(cli_data_open(&source, "data", what, cache[0] ? cache : NULL,
                          held_out[0] ? held_out : NULL, &run->data,
                          splits && is_text ? &run->validation : NULL));
    return splits && !is_text && !named_validation(run) ? open_held_out(run, run->data.path)
                                                        : COH_OK;
}

static coh_status check_same_validation(const cli_run *run)
{
    const cli_recipe *recipe = &run->job.recipe;
    const uint64_t hash = run->validation.file ? run->validation.facts.hash : 0;
    if (recipe->validation_hash == 0 || hash == 0 || recipe->validation_hash == hash)
        return COH_OK;
    if (!run->options->validation && !run->options->new_data)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s is not what the run was validated with (hash %016" PRIx64
                        ", not %016" PRIx64 "): " GIVE_VALIDATION,
                        recipe->validation[0] ? recipe->validation : "what was put aside", hash,
                        recipe->validation_hash);
    cli_note("other validation data than before: its losses do not compare with those so far");
    return COH_OK;
}

/* Named by the flag or by the note, or put aside when the data was opened. */
static coh_status open_validation(cli_run *run)
{
    cli_recipe *recipe = &run->job.recipe;
    const char *what = named_validation(run);
    if (what)
        cli_data_close(&run->validation);
    if (what && strcmp(what, "none") != 0) {
        cli_data_source source = cli_train_data_source(&run->job);
        cli_data_form form = recipe->form;
        int is_text;
        form.id_bytes = recipe->validation_id_bytes;
        source.form = &form;
        if (access(what, F_OK) != 0)
            return cli_fail(COH_ERR_ARGUMENT,
                            "%s, which the run was validated with, is gone: " GIVE_VALIDATION,
                            what);
        CLI_TRY(cli_data_is_text("validation", what, &is_text));
        source.is_form_given = source.is_form_given && is_text;
        CLI_TRY(cli_data_open(&source, "validation", what, NULL, NULL, &run->validation, NULL));
    }
    if (run->validation.file)
        CLI_TRY(cli_data_check_windows(&run->validation, what ? "validation" : "validation-split",
                                       what ? what : "", recipe->sequence, !run->job.resumed));
    CLI_TRY(check_same_validation(run));
    recipe->validation_hash = run->validation.file ? run->validation.facts.hash : 0;
    if (run->options->validation && run->validation.file)
        cli_recipe_keep_path(what, recipe->validation);
    else if (run->options->validation)
        snprintf(recipe->validation, sizeof(recipe->validation), "none");
    return COH_OK;
}

coh_status cli_train_open_data(cli_run *run)
{
    cli_job *job = &run->job;
    const cli_options *options = run->options;
    char moved[CLI_PATH_BYTES];
    const char *what = options->data;
    if (!what && job->resumed)
        what = resumed_data(run, moved);
    if (!what)
        return cli_fail(COH_ERR_ARGUMENT, job->resumed
                                              ? "the data of the run is gone: give it with --data"
                                              : "--data FILE|DIR is missing: the text to train on");
    if (options->validation && cli_given(options, CLI_FLAG_VALIDATION_SPLIT))
        return cli_fail(COH_ERR_ARGUMENT, "--validation names the text to validate with, so there "
                                          "is nothing for --validation-split: leave one out");
    CLI_TRY(cli_data_check_id_bytes(options));
    CLI_TRY(open_training(run, what));
    CLI_TRY(check_same_data(run));
    CLI_TRY(cli_data_check_windows(&run->data, "data", what, job->recipe.sequence, !job->resumed));
    job->recipe.data_hash = run->data.facts.hash;
    if (run->data.path[0] || !job->resumed || options->new_data)
        snprintf(job->recipe.data, sizeof(job->recipe.data), "%s", run->data.path);
    return open_validation(run);
}
