/* Manages a run's folder: lock, checkpoints, space, the link to the best. The one idea: only files
 * with names that a run writes are touched, and only under the lock. Next: cohobate/run.h for lock
 * and space, train_loop.c for the saves. */
#include "cli/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/data.h"
#include "cli/input.h"
#include "cli/validation.h"
#include "report/run.h"

enum { NAME_TRIES = 1000 };

coh_status cli_run_folder_name(const char *model, char *out_path)
{
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(date, sizeof(date), "%Y%m%d-%H%M%S", &local);
    for (int n = 1; n <= NAME_TRIES; n++) {
        int written = n == 1 ? snprintf(out_path, CLI_PATH_BYTES, "./run-%s-%s", model, date)
                             : snprintf(out_path, CLI_PATH_BYTES, "./run-%s-%s-%d", model, date, n);
        if (written < CLI_PATH_BYTES && access(out_path, F_OK) != 0)
            return COH_OK;
    }
    return cli_fail(COH_ERR_IO, "no free name for a run folder next to %s: give --save DIR",
                    out_path);
}

/* Makes the folder of a run that has chosen the name itself. Several runs that begin in one second
 * may choose the same: each takes the next number that it can make. */
static int make_next(cli_run_folder *folder)
{
    char *last = strrchr(folder->given, '-'); /* before the time, or a number */
    int n = last && strlen(last) < sizeof("-HHMMSS") - 1 ? atoi(last + 1) : 1;
    const size_t used = n > 1 ? (size_t)(last - folder->given) : strlen(folder->given);
    while (mkdir(folder->given, 0777) != 0) {
        if (errno != EEXIST || n++ >= NAME_TRIES)
            return 0;
        snprintf(folder->given + used, sizeof(folder->given) - used, "-%d", n);
    }
    return 1;
}

/* Makes the folder. Its parent exists: cli_input_check has checked it. */
static coh_status make_folder(const char *path, int is_chosen, cli_run_folder *folder)
{
    if (snprintf(folder->given, sizeof(folder->given), "%s", path) >= (int)sizeof(folder->given))
        return cli_fail(COH_ERR_ARGUMENT, "--save takes a path of 1 to %d bytes, not of %zu",
                        CLI_PATH_BYTES - 1, strlen(path));
    folder->is_made = is_chosen ? make_next(folder) : mkdir(path, 0777) == 0;
    if (!folder->is_made && (is_chosen || errno != EEXIST))
        return cli_fail(COH_ERR_IO,
                        "--save: cannot make the run folder %s: %s: give another, or --save none",
                        path, strerror(errno));
    const coh_status status = folder->is_made ? coh_name_flush(folder->given) : COH_OK;
    return status == COH_OK ? COH_OK : cli_blame(status, "--save %s", path);
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Is it a token file left unfinished by a killed run ("data-8.tokens.partial", or "-1" behind it;
 * earlier releases had the number of the process there)? */
static int is_token_rest(const char *name)
{
    static const char mark[] = ".tokens.partial";
    const char *found = strstr(name, mark);
    if (!found || (strncmp(name, "data", 4) != 0 && strncmp(name, "validation", 10) != 0))
        return 0;
    const char *rest = found + sizeof(mark) - 1;
    return !*rest || (*rest == '-' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == '\0');
}

/* Under the lock nobody is writing it; a failure to remove it is harmless. */
static void remove_token_rest(const cli_run_folder *folder, const char *name)
{
    char path[2 * CLI_PATH_BYTES];
    if (folder->is_looked_at || !is_token_rest(name))
        return;
    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    (void)unlink(path);
}

static coh_status list_checkpoints(cli_run_folder *folder)
{
    DIR *listing = opendir(folder->path);
    if (!listing)
        return cli_fail(COH_ERR_IO, "--save: cannot list the run folder %s: %s: give another",
                        folder->path, strerror(errno));
    const struct dirent *entry;
    while ((entry = readdir(listing))) {
        uint64_t step;
        const char *rest = report_step_of(entry->d_name, &step);
        remove_token_rest(folder, entry->d_name);
        if (!rest)
            continue;
        /* left by a killed save: under the lock nobody is writing it */
        if (strcmp(rest, ".partial") == 0 && !folder->is_looked_at) {
            char path[2 * CLI_PATH_BYTES];
            snprintf(path, sizeof(path), "%s/%s", folder->path, entry->d_name);
            if (coh_checkpoint_remove(path) != COH_OK)
                cli_note("an unfinished checkpoint stays: %s", coh_last_error());
        }
        if (*rest == '\0' && folder->step_count < CLI_CHECKPOINTS_MOST - 1)
            folder->steps[folder->step_count++] = step;
    }
    closedir(listing);
    qsort(folder->steps, (size_t)folder->step_count, sizeof(folder->steps[0]), by_number);
    return COH_OK;
}

/* Chooses a free name for a broken checkpoint: "<path>.broken", then "<path>.broken.2" and so on,
 * if earlier ones of that step were set aside. If none is free, the last one; renaming to it
 * fails. */
static void name_aside(const char *path, char out_path[CLI_PATH_BYTES + 16])
{
    struct stat facts;
    snprintf(out_path, CLI_PATH_BYTES + 16, "%s.broken", path);
    for (int n = 2; n <= NAME_TRIES && lstat(out_path, &facts) == 0; n++)
        snprintf(out_path, CLI_PATH_BYTES + 16, "%s.broken.%d", path, n);
}

/* Renames damaged later checkpoints (a resume chose the newest intact one), since this run will
 * save under their names. They are not removed. */
static coh_status set_broken_aside(cli_run_folder *folder, uint64_t first_step)
{
    while (folder->step_count > 0 && folder->steps[folder->step_count - 1] > first_step) {
        char path[CLI_PATH_BYTES], aside[CLI_PATH_BYTES + 16];
        int32_t is_damaged;
        CLI_TRY(cli_run_folder_step_path(folder, folder->steps[folder->step_count - 1], path));
        CLI_TRY(coh_checkpoint_damage(path, &is_damaged));
        if (!is_damaged)
            return COH_OK; /* cli_run_folder_open refuses */
        name_aside(path, aside);
        if (rename(path, aside) != 0)
            return cli_fail(COH_ERR_IO,
                            "cannot set the broken checkpoint %s aside as %s: %s: move it"
                            " yourself, or give another --save",
                            path, aside, strerror(errno));
        cli_note("%s is not whole: set aside as %s", path, aside);
        folder->step_count--;
    }
    return COH_OK;
}

/* A path to a folder with a config.json means the Hugging Face model in it, and one to a folder
 * with a manifest.json that checkpoint, so a run's checkpoints there would never be found. */
static coh_status check_no_model(const char *folder)
{
    char path[CLI_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/manifest.json", folder);
    if (access(path, F_OK) == 0)
        return cli_fail(
            COH_ERR_ARGUMENT,
            "--save %s holds manifest.json, a checkpoint, in which no run is kept: give "
            "another folder, or go on from it with --resume %s",
            folder, folder);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    if (access(path, F_OK) != 0)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--save %s holds config.json, a Hugging Face model, whose weights would be "
                    "taken for the run's: give another folder",
                    folder);
}

typedef enum lock_kind { NO_LOCK, EMPTY_LOCK, SOME_LOCK } lock_kind;

/* A run writes the number of its process into its lock; a kill before that leaves it empty. Taking
 * the lock finds out whether it is a run's. */
static lock_kind find_lock(const char *folder)
{
    char path[CLI_PATH_BYTES + 16];
    struct stat facts;
    snprintf(path, sizeof(path), "%s/lock", folder);
    if (lstat(path, &facts) != 0)
        return NO_LOCK; /* taking it names the error */
    return S_ISREG(facts.st_mode) && facts.st_size == 0 ? EMPTY_LOCK : SOME_LOCK;
}

/* A name that is a run's, of a file that is not. */
static coh_status refuse_foreign(const char *folder, const char *name)
{
    char path[CLI_PATH_BYTES + NAME_MAX + 2], shown[NAME_MAX + 1];
    struct stat facts;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    report_copy_printable(name, shown, sizeof(shown));
    if (lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode))
        return cli_fail(COH_ERR_CORRUPT,
                        "--save %s holds a link %s, which the run would replace or write through:"
                        " move it, or give another folder",
                        folder, shown);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--save %s holds a %s that no run wrote, and this one would replace it:"
                    " move it, or give another folder",
                    folder, shown);
}

/* The files that each run writes, whatever its data. */
static const char *const records[] = { "plan.json", "run.json", "steps.jsonl", "trace.bin" };
enum { RECORDS = sizeof(records) / sizeof(records[0]) };

/* Links are not followed and not replaced, and no input is, also not in the folder of a run. */
static coh_status check_records(const char *folder, const cli_options *options)
{
    char path[CLI_PATH_BYTES + 24];
    struct stat facts;
    for (int i = 0; i < RECORDS; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, records[i]);
        if (lstat(path, &facts) != 0)
            continue;
        if (S_ISLNK(facts.st_mode))
            return refuse_foreign(folder, records[i]);
        if (cli_input_is_file(options->data, &facts) ||
            cli_input_is_file(options->validation, &facts))
            return cli_fail(COH_ERR_ARGUMENT,
                            "--save %s holds %s, which this run reads and would replace: move it, "
                            "or give another folder",
                            folder, records[i]);
    }
    return COH_OK;
}

/* Is it a name of an unfinished file, which a run replaces or removes? */
static int is_rest(const char *name)
{
    static const char *const rests[] = { "best.partial", "plan.json.partial", "reserve.partial",
                                         "run.json.partial" };
    uint64_t step;
    const char *rest = report_step_of(name, &step);
    int is_one = rest && strcmp(rest, ".partial") == 0;
    for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++)
        is_one |= strcmp(name, rests[i]) == 0;
    return is_one || is_token_rest(name) || strncmp(name, "tokenizer.partial-", 18) == 0;
}

/* Is it a name of tokens that the run may write, as "data-8.2.tokens"? */
static int is_tokens_name(const char *name, const cli_options *options, uint64_t first_step)
{
    static const char *const parts[] = { "data", "validation" };
    const int splits = cli_given(options, CLI_FLAG_VALIDATION_SPLIT) || options->resume;
    char step[32];
    const size_t step_bytes = (size_t)snprintf(step, sizeof(step), "-%" PRIu64, first_step);
    for (int i = 0; i < 1 + splits; i++) {
        if (strncmp(name, parts[i], strlen(parts[i])) != 0)
            continue;
        const char *rest = name + strlen(parts[i]);
        rest += strncmp(rest, step, step_bytes) == 0 ? step_bytes : 0;
        if (rest[0] == '.' && rest[1] >= '2' && rest[1] <= '9')
            rest += 2;
        if (strcmp(rest, ".tokens") == 0)
            return 1;
    }
    return 0;
}

/* May the run replace or remove `name`? A token file that is --data is read in place. */
static int is_claimed(const char *folder, const char *name, const cli_options *options,
                      uint64_t first_step)
{
    char path[CLI_PATH_BYTES + NAME_MAX + 2];
    struct stat facts;
    int is_ours = is_rest(name), is_text = 0;
    for (int i = 0; i < RECORDS; i++)
        is_ours |= strcmp(name, records[i]) == 0;
    if (is_ours || !is_tokens_name(name, options, first_step))
        return is_ours;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return stat(path, &facts) != 0 || !cli_input_is_file(options->data, &facts) ||
           cli_data_is_text("data", options->data, &is_text) != COH_OK || is_text;
}

/* A folder without a lock was never a run's, so files with a run's names in it are somebody
 * else's. */
static coh_status check_nothing_foreign(const char *folder, const cli_options *options,
                                        uint64_t first_step)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, alphasort);
    coh_status status = COH_OK;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (status == COH_OK && is_claimed(folder, name, options, first_step))
            status = refuse_foreign(folder, name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* A run that was killed while it wrote the number into its lock has a run.json. */
static int has_run_json(const char *folder)
{
    report_run run;
    const int has_one = report_run_read_facts(folder, &run) == COH_OK;
    if (has_one)
        report_run_close(&run);
    return has_one;
}

/* Is the checkpoint that the run goes on from in the folder? It opens: the run has read it. */
static int has_checkpoint_of(const char *folder, const cli_options *options, uint64_t first_step)
{
    char path[CLI_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/step-%" PRIu64 "/manifest.json", folder, first_step);
    return options->resume && access(path, F_OK) == 0;
}

/* Finds out whether the folder was a run's, and refuses what no run wrote. A run that goes on from
 * a checkpoint in it needs no lock to be known: tidying users remove it. */
static coh_status claim(cli_run_folder *folder, const cli_options *options, uint64_t first_step)
{
    const lock_kind lock = find_lock(folder->path);
    const int is_known =
        lock == SOME_LOCK ||
        ((lock == EMPTY_LOCK || has_checkpoint_of(folder->path, options, first_step)) &&
         has_run_json(folder->path));
    folder->is_new = !is_known;
    folder->has_empty_lock = lock == EMPTY_LOCK;
    CLI_TRY(check_records(folder->path, options));
    return folder->is_new ? check_nothing_foreign(folder->path, options, first_step) : COH_OK;
}

/* Returns the step that the link at `path` names; UINT64_MAX: it is no link to a checkpoint next to
 * it, so not a run's. */
static uint64_t step_of_link(const char *path)
{
    uint64_t step;
    char target[32];
    const ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 6)
        return UINT64_MAX;
    target[length] = '\0';
    const char *rest = report_step_of(target, &step);
    return rest && *rest == '\0' ? step : UINT64_MAX;
}

/* Not a checkpoint, a report, hidden, or of the file system. */
static int is_foreign(const struct dirent *entry)
{
    const char *name = entry->d_name;
    uint64_t step;
    return name[0] != '.' && !report_step_of(name, &step) && strcmp(name, "lock") != 0 &&
           strcmp(name, "report.html") != 0 && strcmp(name, "lost+found") != 0;
}

/* Says what else is in a folder that was no run's. Nothing of it is changed or removed. */
static void say_foreign(const char *folder, const cli_options *options)
{
    enum { NAMED = 3 };
    struct dirent **entries = NULL;
    struct stat facts;
    char path[CLI_PATH_BYTES + NAME_MAX + 2], name[NAME_MAX + 1];
    int count = scandir(folder, &entries, is_foreign, alphasort), others = 0;
    cli_line names;
    cli_line_clear(&names);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        const int is_read =
            stat(path, &facts) == 0 && (cli_input_is_file(options->data, &facts) ||
                                        cli_input_is_file(options->validation, &facts));
        const int is_best =
            strcmp(entries[i]->d_name, "best") == 0 && step_of_link(path) != UINT64_MAX;
        if (!is_read && !is_best && others++ < NAMED) {
            report_copy_printable(entries[i]->d_name, name, sizeof(name));
            cli_line_add(&names, "%s", others > 1 ? ", " : "");
            cli_line_add_word(&names, name);
        }
        free(entries[i]);
    }
    free(entries);
    if (others > NAMED)
        cli_line_add(&names, " and %d more", others - NAMED);
    if (others > 0)
        cli_note_choice("note: --save %s holds other files (%s): they stay as they are, next to "
                        "those of this run",
                        folder, names.text);
}

/* Says that a new run replaces the record of one that kept no checkpoint. */
static void say_replaced(const cli_run_folder *folder)
{
    char path[CLI_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/steps.jsonl", folder->path);
    if (folder->step_count == 0 && access(path, F_OK) == 0)
        cli_note_choice("note: --save %s holds the record of a run without a checkpoint: this run "
                        "replaces it",
                        folder->path);
}

static coh_status refuse_later(const cli_run_folder *folder, uint64_t first_step)
{
    cli_line word;
    cli_line_clear(&word);
    cli_line_add_word(&word, folder->path);
    const uint64_t last = folder->steps[folder->step_count - 1];
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s already holds step-%" PRIu64 ", but this run begins at step %" PRIu64
                    ": go on from step %" PRIu64 " with --resume %s, move what comes after step "
                    "%" PRIu64 " out of the folder, or give another --save",
                    folder->path, last, first_step, last, word.text, first_step);
}

void cli_run_folder_absolute(const char *path, char *out_path)
{
    char there[CLI_PATH_BYTES];
    size_t length = strlen(path);
    char *absolute = NULL;
    /* the longest prefix of the path that is an existing folder */
    while (!absolute && length > 0) {
        snprintf(there, sizeof(there), "%.*s", (int)length, path);
        absolute = realpath(there, NULL);
        while (!absolute && length > 0 && path[--length] != '/')
            ;
    }
    if (!absolute)
        absolute = realpath(path[0] == '/' ? "/" : ".", NULL);
    const char *rest = path + length + (path[length] == '/');
    snprintf(out_path, CLI_PATH_BYTES, "%s%s%s", absolute ? absolute : "", rest[0] ? "/" : "",
             rest);
    free(absolute);
}

/* ---- best checkpoint ---- */

static int name_link(const cli_run_folder *folder, const char *suffix, char *out_path)
{
    return snprintf(out_path, CLI_PATH_BYTES, "%s/best%s", folder->path, suffix) < CLI_PATH_BYTES;
}

/* If a link `best` exists, the run continues to keep the best. */
static void find_link(cli_run_folder *folder)
{
    char path[CLI_PATH_BYTES];
    const uint64_t step = name_link(folder, "", path) ? step_of_link(path) : UINT64_MAX;
    if (step == UINT64_MAX)
        return;
    folder->keeps_best = 1;
    for (int i = 0; i < folder->step_count; i++)
        if (folder->steps[i] == step)
            folder->best_step = folder->linked_step = step;
}

/* Replaces the link in one step, so that it always names an existing checkpoint. */
static void write_link(cli_run_folder *folder)
{
    char path[CLI_PATH_BYTES], fresh[CLI_PATH_BYTES], target[32];
    struct stat facts;
    if (!name_link(folder, "", path) || !name_link(folder, ".partial", fresh))
        return;
    if (lstat(path, &facts) == 0 && step_of_link(path) == UINT64_MAX) {
        cli_note("warning: %s is not a link to a checkpoint of the run and stays as it is; the best"
                 " checkpoint is step-%" PRIu64,
                 path, folder->best_step);
        return;
    }
    snprintf(target, sizeof(target), "step-%" PRIu64, folder->best_step);
    (void)unlink(fresh);
    if (symlink(target, fresh) == 0 && rename(fresh, path) == 0 && coh_name_flush(path) == COH_OK)
        folder->linked_step = folder->best_step;
    else
        cli_note("warning: cannot make the link %s: %s; the best checkpoint is %s", path,
                 strerror(errno), target);
}

/* The loss of an existing checkpoint; NaN: unknown, or damaged. */
static double loss_of(const cli_run_folder *folder, uint64_t step, uint64_t validation_hash)
{
    char path[CLI_PATH_BYTES];
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    double loss = NAN;
    if (cli_run_folder_step_path(folder, step, path) != COH_OK ||
        coh_checkpoint_open(path, &checkpoint) != COH_OK)
        return NAN;
    if (coh_checkpoint_facts_get(checkpoint, &facts) == COH_OK)
        loss = cli_validations_note_loss(facts.note_json, validation_hash);
    coh_checkpoint_close(checkpoint);
    return loss;
}

void cli_run_folder_find_best(cli_run_folder *folder, uint64_t validation_hash)
{
    if (!folder->keeps_best || validation_hash == 0)
        return;
    for (int i = 0; i < folder->step_count; i++) {
        const double loss = loss_of(folder, folder->steps[i], validation_hash);
        if (!(loss < folder->best_loss))
            continue;
        folder->best_step = folder->steps[i];
        folder->best_loss = loss;
    }
    if (folder->best_loss < INFINITY)
        write_link(folder);
}

/* Are all checkpoints of the run damaged? A resume has then said to start the run again. */
static int all_are_broken(const cli_run_folder *folder)
{
    char path[CLI_PATH_BYTES];
    int32_t is_damaged = folder->step_count > 0 && !folder->is_new;
    for (int i = 0; i < folder->step_count && is_damaged; i++)
        if (cli_run_folder_step_path(folder, folder->steps[i], path) != COH_OK ||
            coh_checkpoint_damage(path, &is_damaged) != COH_OK)
            return 0;
    return is_damaged;
}

/* Under the lock. */
static coh_status take_checkpoints(cli_run_folder *folder, uint64_t first_step)
{
    CLI_TRY(list_checkpoints(folder));
    if (first_step > 0 || all_are_broken(folder))
        CLI_TRY(set_broken_aside(folder, first_step));
    find_link(folder);
    if (folder->step_count > 0 && folder->steps[folder->step_count - 1] > first_step)
        return refuse_later(folder, first_step);
    return COH_OK;
}

coh_status cli_run_folder_open(const char *path, const cli_options *options, int64_t keep_count,
                               uint64_t first_step, cli_run_folder *out_folder)
{
    cli_run_folder *folder = out_folder;
    cli_run_folder_clear(folder);
    folder->keep_count = keep_count;
    folder->first_step = first_step;
    CLI_TRY(make_folder(path, !options->save && !options->resume, folder));
    char *absolute = realpath(folder->given, NULL);
    if (!absolute)
        return cli_fail(COH_ERR_IO, "--save: cannot find the run folder %s: %s: give another", path,
                        strerror(errno));
    snprintf(folder->path, sizeof(folder->path), "%s", absolute);
    free(absolute);
    CLI_TRY(check_no_model(folder->path));
    CLI_TRY(claim(folder, options, first_step));
    if (folder->is_new && !folder->is_made)
        say_foreign(folder->path, options);
    const coh_status taken = coh_run_lock_take(folder->path, &folder->lock);
    if (taken != COH_OK)
        return taken == COH_ERR_CORRUPT ? refuse_foreign(folder->path, "lock") : taken;
    CLI_TRY(take_checkpoints(folder, first_step));
    if (first_step == 0)
        say_replaced(folder);
    return COH_OK;
}

void cli_run_folder_clear(cli_run_folder *folder)
{
    folder->path[0] = folder->given[0] = '\0';
    folder->is_made = folder->is_new = folder->has_empty_lock = 0;
    folder->lock.fd = -1;
    folder->room = (coh_space_hold){ .fd = -1 };
    folder->piece_is_out = 0;
    folder->checkpoint_bytes = folder->frozen_bytes = 0;
    folder->step_count = 0;
    folder->keeps_best = 0;
    folder->best_step = folder->linked_step = UINT64_MAX;
    folder->best_loss = INFINITY;
    folder->keeps_tokens = folder->is_looked_at = 0;
}

void cli_run_folder_look(const char *path, int64_t keep_count, cli_run_folder *out_folder)
{
    cli_run_folder_clear(out_folder);
    out_folder->is_looked_at = 1;
    out_folder->keep_count = keep_count;
    cli_run_folder_absolute(path, out_folder->path);
    if (list_checkpoints(out_folder) == COH_OK)
        find_link(out_folder);
}

/* Removes the files that a run writes before its first step, as named by run_data.c. */
static void remove_ours(const cli_run_folder *folder)
{
    static const char *const ours[] = { "plan.json", "run.json",    "steps.jsonl",
                                        "trace.bin", "data.tokens", "validation.tokens" };
    enum { RECORDED = 4, NAMED = sizeof(ours) / sizeof(ours[0]), ALL = NAMED + 2 };
    char path[CLI_PATH_BYTES + 64];
    for (int i = 0; i < (folder->keeps_tokens ? RECORDED : ALL); i++) {
        if (i < NAMED)
            snprintf(path, sizeof(path), "%s/%s", folder->path, ours[i]);
        else
            snprintf(path, sizeof(path), "%s/%s-%" PRIu64 ".tokens", folder->path,
                     i == NAMED ? "data" : "validation", folder->first_step);
        (void)unlink(path);
    }
}

/* Did the run write something into the folder? */
static int has_record(const cli_run_folder *folder)
{
    static const char *const first[] = { "data.tokens", "plan.json", "run.json" };
    char path[CLI_PATH_BYTES + 32];
    int has_one = 0;
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder->path, first[i]);
        has_one |= access(path, F_OK) == 0;
    }
    return has_one;
}

/* A folder that was no run's is none again, unless something of this run stays in it. */
void cli_run_folder_undo(cli_run_folder *folder)
{
    char path[CLI_PATH_BYTES + 32];
    coh_space_hold_release(&folder->room);
    if (folder->is_made && folder->lock.fd >= 0)
        remove_ours(folder);
    const int was_none = folder->is_made || (folder->is_new && !has_record(folder));
    if (was_none && !folder->keeps_tokens && folder->lock.fd >= 0) {
        /* The lock is removed last, so that no other run takes the folder meanwhile. It is released
         * before the folder is removed, since NFS keeps an open file under another name. A run that
         * starts in between makes another lock, and the folder stays. */
        snprintf(path, sizeof(path), "%s/lock", folder->path);
        if (!folder->has_empty_lock)
            (void)unlink(path);
        else
            (void)ftruncate(folder->lock.fd, 0); /* as it was */
    }
    coh_run_lock_release(&folder->lock);
    if (folder->is_made)
        (void)rmdir(folder->given); /* it stays if others put files into it */
}

void cli_run_folder_close(cli_run_folder *folder)
{
    coh_space_hold_release(&folder->room);
    coh_run_lock_release(&folder->lock);
}

/* ---- disk space ---- */

uint64_t cli_run_folder_room_count(const cli_run_folder *folder, uint64_t save_count)
{
    uint64_t here = (uint64_t)folder->step_count;
    uint64_t at_once = (uint64_t)folder->keep_count + 1 + (folder->keeps_best != 0);
    if (at_once > here + save_count)
        at_once = here + save_count;
    return at_once > here ? at_once - here : 1;
}

/* Does the file system have links? Tried with the lock, under a name that a reservation has for a
 * moment, too. */
static int has_links(const cli_run_folder *folder)
{
    char lock[CLI_PATH_BYTES + 32], name[CLI_PATH_BYTES + 32];
    snprintf(lock, sizeof(lock), "%s/lock", folder->path);
    snprintf(name, sizeof(name), "%s/reserve.partial", folder->path);
    (void)unlink(name);
    return link(lock, name) == 0 && unlink(name) == 0;
}

/* Has the checkpoint a file of frozen parameters, of `bytes` when rounded up to pages, that can be
 * linked here? */
static int can_link(const cli_run_folder *folder, const coh_checkpoint_facts *loaded,
                    uint64_t bytes)
{
    enum { PAGE_BYTES = 4096 };
    struct stat here, there;
    return (loaded->frozen_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES == bytes &&
           stat(loaded->path, &there) == 0 && stat(folder->path, &here) == 0 &&
           here.st_dev == there.st_dev;
}

uint64_t cli_run_folder_room_bytes(cli_run_folder *folder, uint64_t count,
                                   uint64_t checkpoint_bytes, uint64_t frozen_bytes,
                                   const coh_checkpoint_facts *loaded)
{
    uint64_t bytes;
    folder->checkpoint_bytes = checkpoint_bytes;
    folder->frozen_bytes = 0;
    if (frozen_bytes > 0 && (folder->is_looked_at || has_links(folder))) {
        folder->checkpoint_bytes -= frozen_bytes;
        folder->frozen_bytes = loaded && can_link(folder, loaded, frozen_bytes) ? 0 : frozen_bytes;
    }
    if (__builtin_mul_overflow(count, folder->checkpoint_bytes, &bytes) ||
        __builtin_add_overflow(bytes, folder->frozen_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

void cli_run_folder_add_bytes(const cli_run_folder *folder, int saves_once, cli_line *line)
{
    if (folder->checkpoint_bytes > 0)
        cli_line_add(line, ", %s%s", cli_size(folder->checkpoint_bytes).at,
                     saves_once ? "" : " each");
    if (folder->frozen_bytes > 0)
        cli_line_add(line, " and %s%s of frozen parameters", saves_once ? "" : "once ",
                     cli_size(folder->frozen_bytes).at);
}

coh_status cli_run_folder_hold(cli_run_folder *folder, uint64_t bytes)
{
    return coh_space_hold_take(folder->path, bytes, &folder->room);
}

coh_status cli_run_folder_check_descriptors(const cli_run_folder *folder)
{
    enum { OPENED = 12 };
    int copies[OPENED], count = 0;
    struct rlimit limit = { 0 };
    if (folder->lock.fd < 0)
        return COH_OK;
    while (count < OPENED && (copies[count] = fcntl(folder->lock.fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    for (int i = 0; i < count; i++)
        (void)close(copies[i]); /* the lock stays with the last descriptor */
    if (count == OPENED || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return COH_OK;
    return cli_fail(COH_ERR_FULL,
                    "a save opens up to %d files at once, and the limit of open files (ulimit -n "
                    "%" PRIu64 ") leaves %d: raise it by ulimit -n %" PRIu64 " or more",
                    OPENED, (uint64_t)limit.rlim_cur, count,
                    (uint64_t)limit.rlim_cur + OPENED - (uint64_t)count);
}

void cli_run_folder_make_room(cli_run_folder *folder)
{
    const uint64_t piece = folder->checkpoint_bytes + folder->frozen_bytes;
    if (folder->piece_is_out || folder->room.fd < 0)
        return;
    folder->piece_is_out = 1;
    coh_space_hold_keep(&folder->room, folder->room.bytes > piece ? folder->room.bytes - piece : 0);
}

coh_status cli_run_folder_step_path(const cli_run_folder *folder, uint64_t step, char *out_path)
{
    int written = snprintf(out_path, CLI_PATH_BYTES, "%s/step-%" PRIu64, folder->path, step);
    if (written >= CLI_PATH_BYTES)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the run folder's path is too long: give a shorter --save");
    return COH_OK;
}

static void remove_checkpoint(cli_run_folder *folder, int index)
{
    char path[CLI_PATH_BYTES];
    if (cli_run_folder_step_path(folder, folder->steps[index], path) == COH_OK &&
        access(path, F_OK) == 0 && coh_checkpoint_remove(path) != COH_OK)
        cli_note("an old checkpoint stays: %s", coh_last_error());
    folder->step_count--;
    memmove(folder->steps + index, folder->steps + index + 1,
            (size_t)(folder->step_count - index) * sizeof(folder->steps[0]));
}

void cli_run_folder_judge(cli_run_folder *folder, uint64_t step, double loss)
{
    if (!folder->keeps_best || !(loss < folder->best_loss))
        return;
    folder->best_step = step;
    folder->best_loss = loss;
    write_link(folder);
}

void cli_run_folder_prune(cli_run_folder *folder)
{
    for (int i = 0; i < folder->step_count - folder->keep_count;)
        if (folder->keeps_best &&
            (folder->steps[i] == folder->best_step || folder->steps[i] == folder->linked_step))
            i++;
        else
            remove_checkpoint(folder, i);
}

void cli_run_folder_saved(cli_run_folder *folder, uint64_t step, double loss)
{
    folder->piece_is_out = 0;
    folder->frozen_bytes = 0; /* from now on shared */
    folder->steps[folder->step_count++] = step;
    cli_run_folder_judge(folder, step, loss); /* before the one that `best` named is removed */
    const int count = folder->step_count;
    cli_run_folder_prune(folder);
    if (folder->step_count < count && folder->room.fd < 0) /* for the next one; it may fail */
        (void)coh_space_hold_take(folder->path, folder->checkpoint_bytes, &folder->room);
}
