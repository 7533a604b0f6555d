/* Opens a training run's data: new, the same as before, or held out for validation. The one idea:
 * the recipe's hash identifies the data of a resumed run, wherever its file is now. Next: data.c
 * opens each file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/budget.h"
#include "cli/input.h"
#include "cli/kept_tokens.h"
#include "cli/train.h"
#include "report/run.h"

enum { NAMES_MOST = 9 };

/* The token file of a resumed run: as in the note, or in the run folder's current place (after a
 * change of data its name is data-<step>.tokens). */
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

/* ---- names ---- */

/* Replaces "data" in the last component of `path` by "validation": the held-out documents. */
static int name_held_out(const char *path, char *out_path)
{
    const char *slash = strrchr(path, '/');
    size_t folder_bytes = slash ? (size_t)(slash + 1 - path) : 0;
    if (strncmp(path + folder_bytes, "data", 4) != 0)
        return 0;
    return snprintf(out_path, CLI_PATH_BYTES, "%.*svalidation%s", (int)folder_bytes, path,
                    path + folder_bytes + 4) < CLI_PATH_BYTES;
}

typedef enum claim { FREE, MADE_BY_THE_RUN, OF_UNKNOWN_ORIGIN, IN_USE } claim;

/* Whose is the file at `path`, in which this run would keep tokens? `own`: the name of the tokens
 * that the folder's run.json says were made there; "": none. */
static claim claim_of(const cli_run *run, const char *path, const char *own)
{
    const cli_recipe *recipe = &run->job.recipe;
    const char *name = strrchr(path, '/') + 1;
    struct stat facts;
    if (lstat(path, &facts) != 0)
        return FREE;
    if (!S_ISREG(facts.st_mode) || cli_input_is_file(run->options->data, &facts) ||
        cli_input_is_file(run->options->validation, &facts) ||
        cli_input_is_file(recipe->validation, &facts))
        return IN_USE;
    if (strncmp(name, "validation", 10) == 0 && strncmp(own, "data", 4) == 0)
        return strcmp(name + 10, own + 4) == 0 ? MADE_BY_THE_RUN : OF_UNKNOWN_ORIGIN;
    return strcmp(name, own) == 0 ? MADE_BY_THE_RUN : OF_UNKNOWN_ORIGIN;
}

static void read_own_tokens(const char *folder, char *out_name)
{
    report_run of;
    out_name[0] = '\0';
    if (report_run_read_facts(folder, &of) != COH_OK)
        return;
    const char *own = report_run_own_tokens(&of);
    snprintf(out_name, CLI_PATH_BYTES, "%s", own ? own : "");
    report_run_close(&of);
}

/* The path for the tokens of text; "": none. A resumed run gives new tokens another name than the
 * earlier ones. A file that may be somebody else's is not replaced: the second name is
 * data.2.tokens, which only runs give. */
static void name_cache(const cli_run *run, const char *folder, char *out_path)
{
    const cli_job *job = &run->job;
    char own[CLI_PATH_BYTES], held_out[CLI_PATH_BYTES], step[32] = "";
    out_path[0] = '\0';
    if (!folder[0])
        return;
    if (job->resumed)
        snprintf(step, sizeof(step), "-%" PRIu64, job->first_step);
    read_own_tokens(folder, own);
    for (int n = 1; n <= NAMES_MOST; n++) {
        char number[16] = "";
        if (n > 1)
            snprintf(number, sizeof(number), ".%d", n);
        snprintf(out_path, CLI_PATH_BYTES, "%.*s/data%s%s.tokens", CLI_PATH_BYTES - 60, folder,
                 step, number);
        claim found = claim_of(run, out_path, own);
        if (job->recipe.form.validation_split > 0 && name_held_out(out_path, held_out)) {
            const claim other = claim_of(run, held_out, own);
            found = found > other ? found : other;
        }
        if (found <= MADE_BY_THE_RUN || (found == OF_UNKNOWN_ORIGIN && n > 1))
            break;
    }
}

static void say_second_name(const char *path)
{
    const char *name = strrchr(path, '/') + 1, *dot = strchr(name, '.');
    if (strcmp(dot, ".tokens") != 0)
        cli_note_choice(
            "note: the tokens go into %s, since nothing says that a run made %.*s.tokens"
            " there: it stays as it is",
            path, (int)(dot - name), name);
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

/* ---- change of data ---- */

/* Is the open data, named by --data, different from the checkpoint's? */
static int is_other_data(const cli_run *run)
{
    return run->job.resumed && run->options->data &&
           run->job.recipe.data_hash != run->data.facts.hash;
}

/* Removes the tokens that this command made from --data; a run that reads them has them open. */
static void remove_tokens(cli_run *run)
{
    char held_out[CLI_PATH_BYTES];
    (void)unlink(run->data.path);
    if (run->job.recipe.form.validation_split > 0 && name_held_out(run->data.path, held_out))
        (void)unlink(held_out);
    run->data.path[0] = '\0';
}

/* Does the run still have its token file, undamaged, and its held-out documents next to it? */
static int has_tokens(const cli_run *run)
{
    char moved[CLI_PATH_BYTES], held_out[CLI_PATH_BYTES];
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    const char *kept = resumed_data(run, moved);
    if (!kept || coh_token_file_open(kept, &file) != COH_OK)
        return 0;
    if (run->job.recipe.form.validation_split > 0 &&
        !(name_held_out(kept, held_out) && access(held_out, R_OK) == 0)) {
        coh_token_file_close(file);
        return 0;
    }
    const int is_whole = coh_token_file_facts_get(file, &facts) == COH_OK &&
                         facts.hash == run->job.recipe.data_hash &&
                         coh_token_file_check(file) == COH_OK;
    coh_token_file_close(file);
    return is_whole;
}

/* Compares the data with the recipe's. A changed file is damage; other data is accepted only with
 * --data. */
static coh_status take_data(cli_run *run, const char *what)
{
    cli_recipe *recipe = &run->job.recipe;
    if (!run->job.resumed)
        return COH_OK;
    if (recipe->data_hash == run->data.facts.hash) {
        if (run->tokens_are_new && has_tokens(run))
            remove_tokens(run);
        return COH_OK;
    }
    if (!run->options->data)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s is not what the checkpoint was trained on (hash %016" PRIx64
                        ", not %016" PRIx64 "): give that data, or other data, with --data",
                        what, run->data.facts.hash, recipe->data_hash);
    cli_note_choice("data %s -> %s: other data, read from its first sequence on",
                    recipe->data[0] ? recipe->data : "not kept", what);
    recipe->data_first_step = run->job.first_step;
    recipe->data_first_window = 0;
    return COH_OK;
}

cli_data_source cli_train_data_source(const cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    const int is_gone = !job->tokenizer && !cli_recipe_has_no_tokenizer(recipe->tokenizer);
    return (cli_data_source){ .tokenizer = job->tokenizer,
                              .tokenizer_identity = is_gone ? recipe->tokenizer_identity : 0,
                              .tokenizer_path = recipe->tokenizer,
                              .vocabulary = coh_model_size_get(&job->model).vocabulary,
                              .sequence = recipe->sequence,
                              .positions = coh_model_size_get(&job->model).positions,
                              .seed = recipe->seed,
                              .form = &recipe->form,
                              .thread_count = cli_budget_thread_count(job->options),
                              .is_form_given = cli_recipe_form_is_given(job->options),
                              .sequence_is_fixed = job->resumed,
                              .skips_bad = recipe->skip_bad != 0 };
}

/* Is the validation named by the flag a text? Then it is read in the form that flags give. */
static int validates_text(const cli_options *options)
{
    const char *what = options->validation;
    int is_text = 0;
    return what && strcmp(what, "none") != 0 &&
           cli_data_is_text("validation", what, &is_text) == COH_OK && is_text;
}

/* ---- the length of a run by --epochs ---- */

/* As the limit of --steps. */
#define STEPS_MOST 1e12

/* Does the command make several plans? Each would print the same note. */
static int is_table(const cli_options *options)
{
    return options->max || options->sweep || options->what_if[0];
}

/* The number of sequences in so many passes, rounded up; 1.1 passes of 10 are 11. */
static double sequences_of(double epochs, uint64_t windows)
{
    const double all = epochs * (double)windows, whole = nearbyint(all);
    return fabs(all - whole) <= 1e-9 * all ? whole : ceil(all);
}

/* The step after which `sequences` of the data were read. A resumed run counts from where its
 * present data or batch begins. */
static uint64_t step_after(const cli_recipe *recipe, uint64_t sequences)
{
    const uint64_t first = recipe->data_first_window, batch = (uint64_t)recipe->batch;
    const uint64_t left = sequences > first ? sequences - first : 0;
    return recipe->data_first_step + left / batch + (left % batch != 0);
}

/* Sets the end of a resumed run, as --steps does: the schedule stays. */
static coh_status go_on_until(cli_job *job, uint64_t step)
{
    if (step <= job->first_step)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is at step %" PRIu64 ", and --epochs %.15g end at step %" PRIu64
                        ": give more, or --steps",
                        job->weights.facts.path, job->first_step, job->options->epochs, step);
    job->recipe.steps = step;
    return COH_OK;
}

coh_status cli_epochs_take(cli_job *job, const cli_data *data)
{
    cli_recipe *recipe = &job->recipe;
    if (!cli_given(job->options, CLI_FLAG_EPOCHS))
        return COH_OK;
    const double epochs = job->options->epochs;
    const uint64_t windows = coh_token_file_window_count(data->file, recipe->sequence);
    const double all = sequences_of(epochs, windows);
    if (!(all / (double)recipe->batch < STEPS_MOST))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs %.15g of %" PRIu64
                        " sequences each are more steps than a run has: lower it",
                        epochs, windows);
    const uint64_t steps = step_after(recipe, (uint64_t)all);
    if (!is_table(job->options))
        cli_note_choice("epochs: %.15g of %" PRIu64 " sequence%s of %" PRId64 " token%s, %" PRId64
                        " a step: %s%" PRIu64 "%s",
                        epochs, windows, windows == 1 ? "" : "s", recipe->sequence,
                        recipe->sequence == 1 ? "" : "s", recipe->batch,
                        job->resumed ? "up to step " : "", steps,
                        job->resumed ? ""
                        : steps == 1 ? " step"
                                     : " steps");
    return job->resumed ? go_on_until(job, steps)
                        : cli_recipe_set_steps(recipe, job->options, steps);
}

coh_status cli_epochs_take_named(cli_job *job)
{
    const cli_options *options = job->options;
    cli_data data;
    int is_text;
    if (!cli_given(options, CLI_FLAG_EPOCHS))
        return COH_OK;
    if (options->resume)
        return cli_fail(COH_ERR_ARGUMENT, "--epochs with --resume is for train, which compares the "
                                          "data with the run's: say where it ends with --steps");
    if (!options->data)
        return cli_fail(COH_ERR_ARGUMENT, "--epochs counts passes through the data: add --data "
                                          "FILE, as cohobate tokenize -o makes it, or say how long "
                                          "the run is with --steps");
    CLI_TRY(cli_data_is_text("data", options->data, &is_text));
    if (is_text)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--epochs: how many sequences the text of --data %s is, tokenizing it says:"
                        " give what cohobate tokenize -o FILE makes of it, or --steps",
                        options->data);
    cli_data_source source = cli_train_data_source(job);
    source.is_form_given = source.is_form_given && !validates_text(options);
    CLI_TRY(cli_data_open(&source, "data", options->data, NULL, NULL, &data, NULL));
    coh_status status =
        cli_data_check_windows(&data, "data", options->data, job->recipe.sequence, 1);
    if (status == COH_OK)
        status = cli_epochs_take(job, &data);
    cli_data_close(&data);
    return status;
}

/* ---- opening ---- */

#define GIVE_VALIDATION                                                                            \
    "give that, or another, with --validation FILE, or go on without with --validation none"

/* The validation text that is named: by the flag, else by the note; NULL: none. */
static const char *named_validation(const cli_run *run)
{
    const char *noted = run->job.recipe.validation;
    if (run->options->validation)
        return run->options->validation;
    return noted[0] ? noted : NULL;
}

/* Opens the held-out documents of a resumed run, stored next to its data. */
static coh_status open_held_out(cli_run *run, const char *data_path)
{
    char path[CLI_PATH_BYTES];
    if (!name_held_out(data_path, path) || access(path, F_OK) != 0) {
        if (!is_other_data(run))
            return cli_fail(COH_ERR_ARGUMENT,
                            "what the run had put aside for validation is gone: " GIVE_VALIDATION);
        cli_note_choice(
            "nothing is put aside of the new data for validation: its loss is not taken "
            "(--validation FILE gives another text)");
        return COH_OK;
    }
    cli_data_source source = cli_train_data_source(&run->job);
    source.is_form_given = 0;
    return cli_data_open(&source, "validation-split", path, NULL, NULL, &run->validation, NULL);
}

/* Refuses to replace a file that is not a token file. */
static coh_status check_replaceable(const char *path)
{
    char head[8] = { 0 };
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return COH_OK; /* nothing exists, or building reports the error */
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
    cli_data_source source = cli_train_data_source(&run->job);
    CLI_TRY(cli_data_is_text("data", what, &is_text));
    source.is_form_given = source.is_form_given && (is_text || !validates_text(run->options));
    name_cache(run, run->folder.path, cache);
    run->data_is_text = is_text;
    run->tokens_are_new = cache[0] && is_text;
    if (cache[0] && splits && is_text) {
        (void)name_held_out(cache, held_out);
        CLI_TRY(check_replaceable(held_out));
    }
    if (run->tokens_are_new)
        say_second_name(cache);
    CLI_TRY(cli_data_open(&source, "data", what, cache[0] ? cache : NULL,
                          held_out[0] ? held_out : NULL, &run->data,
                          splits && is_text ? &run->validation : NULL));
    return splits && !is_text && !named_validation(run) ? open_held_out(run, run->data.path)
                                                        : COH_OK;
}

/* The number in the note by which losses compare: with separate documents they do not compare with
 * others of the same ids. */
static uint64_t validation_hash_of(const cli_run *run)
{
    const uint64_t hash = run->validation.file ? run->validation.facts.hash : 0;
    return hash != 0 && run->job.model.separate_documents ? ~hash : hash;
}

/* `is_chat`: its conversations were written by this version, maybe otherwise than by the one that
 * began the run. */
static coh_status check_same_validation(const cli_run *run, int has_other_data, int is_chat)
{
    const cli_recipe *recipe = &run->job.recipe;
    const uint64_t hash = validation_hash_of(run);
    if (recipe->validation_hash == 0 || hash == 0 || recipe->validation_hash == hash)
        return COH_OK;
    if (!run->options->validation && !has_other_data)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s is not what the run was validated with (hash %016" PRIx64
                        ", not %016" PRIx64 ")%s",
                        recipe->validation[0] ? recipe->validation : "what was put aside", hash,
                        recipe->validation_hash,
                        is_chat ? ": it has changed, or this version writes or marks conversations "
                                  "otherwise: give it again, or another, with --validation FILE, "
                                  "or go on without with --validation none"
                                : ": " GIVE_VALIDATION);
    cli_note_choice(
        "other validation data than before: its losses do not compare with those so far");
    return COH_OK;
}

/* Opens validation data: named by the flag or by the note, or held out when the data was opened. */
static coh_status open_validation(cli_run *run, int has_other_data)
{
    cli_recipe *recipe = &run->job.recipe;
    const char *what = named_validation(run);
    int is_text = 0;
    if (what)
        cli_data_close(&run->validation);
    if (what && strcmp(what, "none") != 0) {
        cli_data_source source = cli_train_data_source(&run->job);
        cli_data_form form = recipe->form;
        form.id_bytes = recipe->validation_id_bytes;
        source.form = &form;
        if (access(what, F_OK) != 0)
            return cli_fail(COH_ERR_ARGUMENT,
                            "%s, which the run was validated with, is gone: " GIVE_VALIDATION,
                            what);
        CLI_TRY(cli_data_is_text("validation", what, &is_text));
        source.is_form_given = source.is_form_given && is_text;
        source.takes_json = !run->options->validation;
        CLI_TRY(cli_data_open(&source, "validation", what, NULL, NULL, &run->validation, NULL));
        cli_data_say_attention(what, run->validation.facts.marks_documents,
                               run->job.model.separate_documents);
    }
    if (run->validation.file)
        CLI_TRY(cli_score_init(&run->validation, what ? "validation" : "validation-split",
                               what ? what : "", recipe->sequence, recipe->sequence, &run->score));
    CLI_TRY(check_same_validation(run, has_other_data, is_text && recipe->form.chat));
    recipe->validation_hash = validation_hash_of(run);
    if (run->options->validation && run->validation.file)
        cli_recipe_keep_path(what, recipe->validation);
    else if (run->options->validation)
        snprintf(recipe->validation, sizeof(recipe->validation), "none");
    return COH_OK;
}

/* Fewer tokens are made again in about a second. */
#define KEPT_TOKENS_LEAST (UINT64_C(1) << 22)

static void add_tokens(const cli_run *run, const char *held_out, const char *between,
                       cli_line *line)
{
    cli_line_clear(line);
    cli_line_add_word(line, run->data.path);
    if (!held_out[0])
        return;
    cli_line_add(line, "%s", between);
    cli_line_add_word(line, held_out);
}

/* Whether tokens in a folder are those of a text nobody can tell without tokenizing it, so the same
 * command makes them again, in place of these; the user knows, and names them. A folder that nobody
 * named would hold them unseen, and each further try another copy. */
void cli_train_keep_data(cli_run *run)
{
    const cli_options *options = run->options;
    char held_out[CLI_PATH_BYTES] = "";
    cli_line data, rest;
    if (!run->job.makes_tokens || !options->save || run->data.facts.token_count < KEPT_TOKENS_LEAST)
        return;
    run->folder.keeps_tokens = 1;
    if (run->job.recipe.form.validation_split <= 0 || options->validation ||
        !name_held_out(run->data.path, held_out))
        held_out[0] = '\0';
    add_tokens(run, held_out, " --validation ", &data);
    add_tokens(run, held_out, " ", &rest);
    if (run->folder.is_made) {
        cli_line_clear(&rest);
        cli_line_add_word(&rest, run->folder.path);
    }
    cli_kept_tokens_note(run->folder.path, &run->data, held_out, &run->validation);
    cli_note("note: the tokens of %s are kept: with --data %s in place of %s, the next try does "
             "not tokenize again; remove %s if you do not want them",
             options->data, data.text,
             validates_text(options) ? "the text, and the other flags as they are"
                                     : "the flags of the text",
             rest.text);
}

void cli_train_undo_data(cli_run *run)
{
    if (run->tokens_are_new && run->data.path[0] && !run->folder.keeps_tokens)
        remove_tokens(run);
}

/* ---- data that change while the run reads them ---- */

static cli_file_mark mark_of(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return (cli_file_mark){ .is_there = 0 };
    return (cli_file_mark){ 1, (uint64_t)facts.st_size, (uint64_t)facts.st_ino,
                            facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec };
}

static int is_same_mark(const cli_file_mark *a, const cli_file_mark *b)
{
    return a->is_there == b->is_there && a->bytes == b->bytes && a->inode == b->inode &&
           a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

void cli_train_look_at_data(cli_run *run)
{
    const char *path = run->data.path;
    if (!path[0] || run->data_is_other)
        return;
    const cli_file_mark now = mark_of(path);
    if (is_same_mark(&now, &run->data_mark))
        return;
    run->data_is_other = 1;
    cli_report_break(&run->report);
    cli_note(
        "warning: %s was %s since the run began to read it: its steps may have read other data "
        "than a resume will find, which compares the hash",
        path,
        !now.is_there                       ? "removed"
        : now.inode != run->data_mark.inode ? "replaced"
                                            : "changed");
}

/* Names what a resumed run has read, as its note has it, and what is to be given again. */
static coh_status refuse_without_data(const cli_run *run)
{
    const char *noted = run->job.recipe.data, *slash = strrchr(noted, '/');
    char own[CLI_PATH_BYTES], above[CLI_PATH_BYTES];
    if (!run->job.resumed)
        return cli_fail(COH_ERR_ARGUMENT, "--data FILE|DIR is missing: the text to train on");
    if (!slash)
        return cli_fail(COH_ERR_ARGUMENT, "the data of the run was not kept: give it with --data");
    snprintf(above, sizeof(above), "%.*s", (int)(slash - noted), noted);
    read_own_tokens(above, own);
    return cli_fail(COH_ERR_ARGUMENT, "%s, %s, cannot be read: %s: give %s with --data", noted,
                    strcmp(own, slash + 1) == 0 ? "the tokens that the run made of its text"
                                                : "the data of the run",
                    strerror(access(noted, R_OK) != 0 ? errno : ENOENT),
                    strcmp(own, slash + 1) == 0 ? "the text or a copy of the tokens" : "it");
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
        return refuse_without_data(run);
    if (options->validation && cli_given(options, CLI_FLAG_VALIDATION_SPLIT))
        return cli_fail(COH_ERR_ARGUMENT, "--validation names the text to validate with, so there "
                                          "is nothing for --validation-split: leave one out");
    CLI_TRY(cli_data_check_id_bytes(options));
    CLI_TRY(open_training(run, what));
    run->data_mark = mark_of(run->data.path);
    const int has_other_data = is_other_data(run);
    CLI_TRY(take_data(run, what));
    CLI_TRY(cli_data_check_windows(&run->data, "data", what, job->recipe.sequence, !job->resumed));
    job->recipe.data_hash = run->data.facts.hash;
    job->data_token_count = run->data.facts.token_count;
    job->data_window_count = coh_token_file_window_count(run->data.file, job->recipe.sequence);
    job->makes_tokens = run->tokens_are_new && run->data.path[0];
    if (run->data.path[0] || !job->resumed || has_other_data)
        snprintf(job->recipe.data, sizeof(job->recipe.data), "%s", run->data.path);
    return open_validation(run, has_other_data);
}

/* ---- how much of it is read ---- */

/* Returns how often all sequences have been read after `step` steps, in one order after another. */
static double passes_at(const cli_run *run, uint64_t step)
{
    const cli_recipe *recipe = &run->job.recipe;
    const double read = (double)recipe->data_first_window +
                        (double)(step - recipe->data_first_step) * (double)recipe->batch;
    return read / (double)run->job.data_window_count;
}

/* "0.41 % of the data read", "the data read 3.2 times" */
static void add_passes(double passes, const char *data, const char *is_read, cli_line *line)
{
    const double percent = 100 * passes;
    if (passes < 1)
        cli_line_add(line, "%.3g %% of %s%s", percent < 99.9 ? percent : 99.9, data, is_read);
    else if (passes < 1.005)
        cli_line_add(line, "%s%s once", data, is_read);
    else
        cli_line_add(line, passes < 1000 ? "%s%s %.3g times" : "%s%s %.0f times", data, is_read,
                     passes);
}

/* Ids behind the last whole sequence of packed data are in no pass. They are named where they are
 * more than a rounding. */
static void describe_tail(const cli_run *run, cli_line *line)
{
    const int64_t sequence = run->job.recipe.sequence;
    const uint64_t targets = run->data.facts.token_count - 1, tail = targets % (uint64_t)sequence;
    if (run->data.facts.window > 0 || tail <= targets / 100)
        return;
    cli_line_add(line,
                 "note:   the last %s of the data (%.3g %%) are never read, as they fill no "
                 "sequence of %" PRId64 ": a shorter --sequence leaves fewer%s\n",
                 cli_count(tail, "token").at, 100.0 * (double)tail / (double)(targets + 1),
                 sequence, run->data_is_text ? ", --documents aligned none" : "");
}

void cli_train_describe_data(const cli_run *run, cli_line *line)
{
    const cli_job *job = &run->job;
    const cli_recipe *recipe = &job->recipe;
    const double passes = passes_at(run, recipe->steps);
    char learned[64] = "";
    if (run->data.facts.has_mask) /* padding, or text that is not learned */
        snprintf(learned, sizeof(learned), ", of which %" PRIu64 " are learned",
                 run->data.learned_count);
    if (job->resumed && !run->data_is_text)
        cli_line_add(line,
                     "data:   %s, %" PRIu64 " tokens made before%s: no text is read again\n%8s",
                     recipe->data, job->data_token_count, learned, "");
    else
        cli_line_add(line, "data:   %s%s, ", cli_count(job->data_token_count, "token").at, learned);
    cli_line_add(line, "%s of %" PRId64 "; ", cli_count(job->data_window_count, "sequence").at,
                 recipe->sequence);
    add_passes(passes, passes < 1 ? "them" : "they", " are read", line);
    if (job->resumed)
        cli_line_add(line, " up to step %" PRIu64 "\n", recipe->steps);
    else
        cli_line_add(line, " in %s of %" PRId64 "%s\n", cli_count(recipe->steps, "step").at,
                     recipe->batch, passes < 1 ? " (all of them: --epochs 1)" : "");
    if (!job->resumed)
        describe_tail(run, line);
}

void cli_train_add_share(const cli_run *run, cli_line *line)
{
    cli_line_add(line, ", ");
    add_passes(passes_at(run, run->done_steps), "the data", " read", line);
}

void cli_train_add_share_json(const cli_run *run, cli_line *line)
{
    cli_line_add_json(line,
                      "'data_tokens': %" PRIu64 ", 'data_learned': %" PRIu64
                      ", 'data_sequences': %" PRIu64 ", 'data_passes': %.17g",
                      run->job.data_token_count, run->data.learned_count,
                      run->job.data_window_count, passes_at(run, run->done_steps));
}
