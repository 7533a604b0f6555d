/* Checks a command's paths and models before anything is opened. The one idea: the contents of a
 * folder show what it is, so the message can name what the user probably meant. Next: path_check.c,
 * artefact.c. */
#include "cli/input.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/path_check.h"

/* Contents that distinguish folders. */
typedef struct content {
    int has_config, has_checkpoint;
    char tensors[256]; /* the name of one safetensors file; "": none */
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

/* Refuses folders that look like a model: adapters alone, tensors without a config.json. */
static coh_status check_has_config(const char *path)
{
    CLI_TRY(cli_artefact_refuse_adapters(path));
    const content found = look_into(path);
    if (!found.tensors[0] || found.has_config || found.has_checkpoint)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "%s holds %s but no config.json, which says what model the tensors are of: put "
                    "the model's config.json next to them",
                    path, found.tensors);
}

/* Checks that --resume names something that a run saved. */
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

/* The folder that the operand names as a model; NULL: none, or a preset of that name. */
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

coh_status cli_input_check(const cli_options *options)
{
    CLI_TRY(cli_path_check(options));
    if (options->resume)
        CLI_TRY(check_resume(options->resume));
    const char *model = operand_model(options);
    return model ? check_has_config(model) : COH_OK;
}
