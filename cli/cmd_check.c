/* cohobate check: reads an artefact completely and checks its hashes. The one idea: the kind of the
 * path chooses the check, and each check uses the reader that other commands use. Next:
 * artefact.c. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/weights.h"
#include "report/run.h"

enum { WHY_BYTES = 512 }; /* two reasons and a path fit in a message */

/* Checks one given checkpoint completely. */
static coh_status check_named(const char *path, uint64_t *out_hash)
{
    coh_checkpoint *checkpoint;
    CLI_TRY(cli_weights_blame_going(path, coh_checkpoint_open(path, &checkpoint)));
    cli_progress_begin("reading", path, CLI_PROGRESS_FIRST_S);
    const coh_status status = coh_checkpoint_check(checkpoint, out_hash);
    cli_progress_end();
    coh_checkpoint_close(checkpoint);
    return status;
}

/* Finds the checkpoint that opening a run selects, and the defect of a newer one in out_why; "":
 * none. */
static coh_status find_newest(const char *path, char out_path[CLI_PATH_BYTES], uint64_t *out_step,
                              char out_why[WHY_BYTES])
{
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(cli_weights_blame_going(path, coh_checkpoint_open(path, &checkpoint)));
    const coh_status status = coh_checkpoint_facts_get(checkpoint, &facts);
    if (status == COH_OK) {
        snprintf(out_path, CLI_PATH_BYTES, "%s", facts.path);
        snprintf(out_why, WHY_BYTES, "%s", facts.passed_over);
        *out_step = facts.step;
    }
    coh_checkpoint_close(checkpoint);
    return status;
}

/* The newest checkpoint of a run must be intact. If it is not, the newest intact one is named:
 * opening detects missing or truncated files, reading everything detects the rest. */
static coh_status check_checkpoint(const char *path, uint64_t *out_hash)
{
    char at[CLI_PATH_BYTES], why[WHY_BYTES];
    uint64_t step;
    CLI_TRY(find_newest(path, at, &step, why));
    const int is_run = strcmp(at, path) != 0;
    coh_status status = check_named(at, out_hash);
    while (is_run && status == COH_ERR_CORRUPT) {
        if (!why[0])
            snprintf(why, sizeof(why), "%s", coh_last_error());
        if (!cli_weights_find_older(path, &step, at))
            return cli_fail(COH_ERR_CORRUPT, "%s; no older one in %s is whole", why, path);
        status = check_named(at, out_hash);
    }
    if (status != COH_OK || !why[0])
        return status;
    return cli_fail(COH_ERR_CORRUPT, "%s; the newest that is whole is %s, hash %016" PRIx64, why,
                    at, *out_hash);
}

/* Is it the name of a save that is not finished, "step-<digits>.partial"? */
static int is_partial(const char *name)
{
    uint64_t step;
    const char *rest = report_step_of(name, &step);
    return rest && strcmp(rest, ".partial") == 0;
}

/* Names the saves of a run's folder that are not finished: no command reads them. */
static void note_partials(const char *path)
{
    DIR *listing = opendir(path);
    const struct dirent *entry;
    int32_t is_held = 0;
    int64_t process;
    (void)coh_run_lock_holder(path, &is_held, &process);
    while (listing && (entry = readdir(listing))) {
        if (!is_partial(entry->d_name))
            continue;
        if (is_held)
            cli_note("note: %s/%s is a save that is not finished: the run in this folder may be "
                     "writing it",
                     path, entry->d_name);
        else
            cli_note("note: %s/%s is what a run that ended during a save left of it: no command "
                     "reads it, and it can be removed",
                     path, entry->d_name);
    }
    if (listing)
        closedir(listing);
}

/* Checks every number, in pieces of 1 MiB. */
static coh_status check_folder_numbers(const cli_weights *weights)
{
    enum { PIECE = 1 << 18 };
    static float values[PIECE];
    for (int64_t i = 0; i < weights->folder_facts.tensor_count; i++) {
        coh_folder_tensor at;
        CLI_TRY(coh_folder_tensor_at(weights->folder, i, &at));
        const uint64_t elements =
            (uint64_t)at.tensor.dim[0] * (uint64_t)(at.tensor.rank > 1 ? at.tensor.dim[1] : 1);
        for (uint64_t begin = 0; begin < elements; begin += PIECE) {
            const uint64_t count = elements - begin < PIECE ? elements - begin : PIECE;
            CLI_TRY(coh_folder_numbers(weights->folder, COH_PARAMETER_NEW, at.tensor.name, begin,
                                       count, values));
            CLI_TRY(cli_weights_check_finite(weights, at.tensor.name, count, values));
        }
    }
    return COH_OK;
}

/* Checks a folder; it has no hash. */
static coh_status check_folder(const cli_options *options)
{
    coh_model model;
    cli_weights weights = { 0 };
    CLI_TRY(cli_weights_resolve(options->operand, 0, &model));
    CLI_TRY(cli_weights_open(&model, &weights));
    const coh_status status = check_folder_numbers(&weights);
    cli_weights_close(&weights);
    CLI_TRY(status);
    if (options->json)
        cli_print("{\"valid\": true, \"type\": \"folder\"}");
    else
        cli_print("%s: a whole and valid model of type %s", options->operand,
                  coh_model_type_name(&model));
    return COH_OK;
}

/* `is_raw`: ids without a token file's header. */
static coh_status check_tokens(const cli_options *options, int is_raw, uint64_t *out_hash)
{
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(cli_data_open_file(options, is_raw, &file));
    coh_status status = coh_token_file_check(file);
    if (status == COH_OK)
        status = coh_token_file_facts_get(file, &facts);
    if (status == COH_OK)
        *out_hash = facts.hash;
    coh_token_file_close(file);
    return status;
}

static coh_status check_profile(const char *path, uint64_t *out_hash)
{
    coh_profile *profile;
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(coh_profile_read(path, &profile));
    coh_status status = coh_profile_summarize(profile, &facts);
    if (status == COH_OK)
        *out_hash = facts.hash;
    coh_profile_destroy(profile);
    return status;
}

static coh_status check_plan(const char *path, uint64_t *out_hash)
{
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    CLI_TRY(coh_plan_file_read(path, &file));
    *out_hash = file.program_hash;
    return COH_OK;
}

coh_status cli_check(const cli_options *options)
{
    static const char *const names[] = { "checkpoint", "folder",     "plan",   "kernel table",
                                         "profile",    "token file", "id file" };
    const char *path = options->operand;
    cli_artefact artefact;
    uint64_t hash = 0;
    CLI_TRY(cli_artefact_find(options, &artefact));
    switch (artefact) {
    case CLI_ARTEFACT_CHECKPOINT:
        note_partials(path);
        CLI_TRY(check_checkpoint(path, &hash));
        break;
    case CLI_ARTEFACT_FOLDER:
        return check_folder(options);
    case CLI_ARTEFACT_PLAN:
        CLI_TRY(check_plan(path, &hash));
        break;
    case CLI_ARTEFACT_KERNELS:
        CLI_TRY(cli_artefact_kernels_hash(path, &hash));
        break;
    case CLI_ARTEFACT_PROFILE:
        CLI_TRY(check_profile(path, &hash));
        break;
    case CLI_ARTEFACT_TOKENS:
    case CLI_ARTEFACT_IDS:
        CLI_TRY(check_tokens(options, artefact == CLI_ARTEFACT_IDS, &hash));
        break;
    }
    if (options->json)
        cli_print("{\"valid\": true, \"type\": \"%s\", \"hash\": \"%016" PRIx64 "\"}",
                  names[artefact], hash);
    else
        cli_print("%s: a whole and valid %s, hash %016" PRIx64, path, names[artefact], hash);
    return COH_OK;
}
