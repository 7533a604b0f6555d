#include "cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* The operand where it must be a path: a MODEL may be a preset's name, and models.h says what was
 * tried. */
static const char *operand_path(const cli_options *options)
{
    switch (options->command) {
    case CLI_GENERATE:
    case CLI_EVAL:
    case CLI_TOKENIZE:
    case CLI_INSPECT:
    case CLI_EXPORT:
    case CLI_CHECK:
        return options->operand;
    case CLI_TRAIN:
    case CLI_PLAN:
    case CLI_TUNE:
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
    CLI_TRY(check_one("--kernels", options->kernels, "write one with cohobate tune -o"));
    CLI_TRY(check_one("--disk", options->disk_folder[0] ? options->disk_folder : NULL,
                      "give a folder that is"));
    CLI_TRY(check_one("--folder", options->folder, "give a folder that is"));
    CLI_TRY(check_folder_of("-o", options->output));
    CLI_TRY(check_folder_of("--held-out-file", options->held_out_file));
    CLI_TRY(check_folder_of("--program", options->program));
    return check_folder_of("--log", options->log);
}
