#include "cli/input.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/artefact.h"

static int is_missing(const char *path)
{
    struct stat facts;
    return stat(path, &facts) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static coh_status check_one(const char *flag, const char *path, const char *remedy)
{
    if (!path || !is_missing(path))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "%s%s%s is not there: %s", flag, flag[0] ? " " : "", path,
                    remedy);
}

/* Where a folder will be made, or is. */
static coh_status check_no_file(const char *flag, const char *path)
{
    struct stat facts;
    if (!path || strcmp(path, "none") == 0 || stat(path, &facts) != 0 || S_ISDIR(facts.st_mode))
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT, "%s %s is no folder, which a run needs: give another", flag,
                    path);
}

/* The folder that `path` will be written in. */
static coh_status check_folder_of(const char *flag, const char *path)
{
    char folder[CLI_PATH_BYTES];
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || slash == path || slash - path >= CLI_PATH_BYTES)
        return COH_OK;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    if (!is_missing(folder))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "%s %s: the folder %s is not there: make it, or give another",
                    flag, path, folder);
}

/* What tells folders apart. */
typedef struct content {
    int has_config, has_checkpoint;
    char tensors[256]; /* the name of a safetensors file; "": none */
} content;

static content look_into(const char *path)
{
    content found = { 0 };
    DIR *listing = opendir(path);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        const char *name = entry->d_name, *ending = strrchr(name, '.');
        found.has_config |= strcmp(name, "config.json") == 0;
        found.has_checkpoint |=
            strcmp(name, "manifest.json") == 0 || strncmp(name, "step-", 5) == 0;
        if (ending && strcmp(ending, ".safetensors") == 0 && !found.tensors[0])
            snprintf(found.tensors, sizeof(found.tensors), "%s", name);
    }
    if (listing)
        closedir(listing);
    return found;
}

int cli_input_has_tensors(const char *path)
{
    return look_into(path).tensors[0] != '\0';
}

/* Where a model may stand: adapters alone, tensors that nothing describes. */
static coh_status check_has_config(const char *path)
{
    CLI_TRY(cli_artefact_refuse_adapters(path));
    const content found = look_into(path);
    if (!found.tensors[0] || found.has_config || found.has_checkpoint)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s holds %s but no config.json, which says what model the tensors are of: put "
                    "the model's config.json beside them",
                    path, found.tensors);
}

/* --resume takes what a run saved. */
static coh_status check_resume(const char *path)
{
    const content found = look_into(path);
    cli_line word;
    CLI_TRY(check_has_config(path));
    if (!found.has_config || found.has_checkpoint)
        return COH_OK;
    cli_line_clear(&word);
    cli_line_add_word(&word, path);
    return cli_fail(COH_ERR_CORRUPT,
                    "--resume %s: a Hugging Face model's folder, and not that of a run: a run that "
                    "begins with its weights is cohobate train %s --data FILE",
                    path, word.text);
}

/* Where it must be a model: what is there and no folder is bad data, whatever it holds. */
static coh_status check_is_folder(const char *path)
{
    struct stat facts;
    const int error = stat(path, &facts) == 0 ? 0 : errno;
    if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG)
        return COH_OK; /* said where presets are known */
    if (error != 0)
        return cli_fail(COH_ERR_IO, "%s cannot be read: %s: see to its rights, or give another",
                        path, strerror(error));
    if (S_ISDIR(facts.st_mode))
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s is no model: a model is the folder of a checkpoint, of a run or of a "
                    "Hugging Face model: give one",
                    path);
}

/* A folder that the operand names as a model; NULL: none, or a preset of that name. */
static const char *operand_model(const cli_options *options)
{
    coh_model ignored;
    switch (options->command) {
    case CLI_TRAIN:
    case CLI_PLAN:
    case CLI_TUNE:
    case CLI_PROFILE:
        return options->operand && coh_model_preset(options->operand, 0, &ignored) != COH_OK
                   ? options->operand
                   : NULL;
    case CLI_GENERATE:
    case CLI_EVAL:
    case CLI_INSPECT:
    case CLI_EXPORT:
    case CLI_CHECK:
        return options->operand;
    case CLI_SIMULATE:
    case CLI_EXPLAIN:
    case CLI_TOKENIZE:
    case CLI_DOCTOR:
    case CLI_COMMAND_COUNT:
        return NULL;
    }
    return NULL;
}

/* The operand where it must be a path: a MODEL may be a preset's name, and models.h says what was
 * tried; what is looked at may be a shipped profile. */
static const char *operand_path(const cli_options *options)
{
    switch (options->command) {
    case CLI_GENERATE:
    case CLI_EVAL:
    case CLI_TOKENIZE:
    case CLI_EXPORT:
    case CLI_SIMULATE:
    case CLI_EXPLAIN:
        return options->operand;
    case CLI_INSPECT:
    case CLI_CHECK:
        return cli_artefact_is_shipped_profile(options->operand) ? NULL : options->operand;
    case CLI_TRAIN:
    case CLI_PLAN:
    case CLI_TUNE:
    case CLI_PROFILE:
    case CLI_DOCTOR:
    case CLI_COMMAND_COUNT:
        return NULL;
    }
    return NULL;
}

coh_status cli_input_check(const cli_options *options)
{
    const int is_word = strcmp(options->tokenizer, "bytes") == 0 ||
                        (options->command == CLI_EXPORT && strcmp(options->tokenizer, "none") == 0);
    const int validates = options->validation && strcmp(options->validation, "none") != 0;
    const char *validation = validates ? options->validation : NULL;
    const char *tokenizer = is_word ? NULL : options->tokenizer;
    const char *file = "give a file or folder that is";
    CLI_TRY(check_one("", operand_path(options), file));
    CLI_TRY(check_one("--resume", options->resume, "give a run folder or a checkpoint"));
    CLI_TRY(check_one("--data", options->data, file));
    CLI_TRY(check_one("--validation", validation, file));
    CLI_TRY(
        check_one("--tokenizer", tokenizer,
                  "give bytes, or a folder with tokenizer.json, tokenizer.model or vocab.json"));
    CLI_TRY(check_one("--plan", options->plan_file, "write one with cohobate plan -o"));
    CLI_TRY(check_one("--pins", options->pins, "give a JSON file of pins (docs/planning.md)"));
    CLI_TRY(check_one("--kernels", options->kernels, "write one with cohobate tune -o"));
    CLI_TRY(check_one("--disk", options->disk_folder[0] ? options->disk_folder : NULL,
                      "give a folder that is"));
    CLI_TRY(check_one("--folder", options->folder, "give a folder that is"));
    CLI_TRY(check_no_file("--save", options->save));
    CLI_TRY(check_folder_of("-o", options->output));
    CLI_TRY(check_folder_of("--held-out-file", options->held_out_file));
    CLI_TRY(check_folder_of("--program", options->program));
    CLI_TRY(check_folder_of("--log", options->log));
    CLI_TRY(check_folder_of("--tune", options->tune));
    if (options->resume) {
        CLI_TRY(check_is_folder(options->resume));
        CLI_TRY(check_resume(options->resume));
    }
    const char *model = operand_model(options);
    const int is_any_artefact = options->command == CLI_INSPECT || options->command == CLI_CHECK;
    if (model && !is_any_artefact)
        CLI_TRY(check_is_folder(model));
    return model ? check_has_config(model) : COH_OK;
}
