#include <inttypes.h>

#include "cli/artefact.h"
#include "cli/commands.h"

static coh_status check_checkpoint(const char *path, uint64_t *out_hash)
{
    coh_checkpoint *checkpoint;
    CLI_TRY(coh_checkpoint_open(path, &checkpoint));
    coh_status status = coh_checkpoint_check(checkpoint, out_hash);
    coh_checkpoint_close(checkpoint);
    return status;
}

static coh_status check_tokens(const char *path, uint64_t *out_hash)
{
    coh_token_file *file;
    coh_token_file_facts facts;
    CLI_TRY(coh_token_file_open(path, &file));
    coh_status status = coh_token_file_check(file);
    if (status == COH_OK)
        status = coh_token_file_facts_get(file, &facts);
    if (status == COH_OK)
        *out_hash = facts.hash;
    coh_token_file_close(file);
    return status;
}

coh_status cli_check(const cli_options *options)
{
    static const char *const names[] = { "checkpoint", "plan", "kernel table", "token file" };
    const char *path = options->operand;
    cli_artefact artefact;
    uint64_t hash = 0;
    CLI_TRY(cli_artefact_find(path, &artefact));
    switch (artefact) {
    case CLI_ARTEFACT_CHECKPOINT:
        CLI_TRY(check_checkpoint(path, &hash));
        break;
    case CLI_ARTEFACT_PLAN:
        CLI_TRY(cli_artefact_plan_hash(path, &hash));
        break;
    case CLI_ARTEFACT_KERNELS:
        CLI_TRY(cli_artefact_kernels_hash(path, &hash));
        break;
    case CLI_ARTEFACT_TOKENS:
        CLI_TRY(check_tokens(path, &hash));
        break;
    }
    if (options->json)
        cli_print("{\"valid\": true, \"type\": \"%s\", \"hash\": \"%016" PRIx64 "\"}",
                  names[artefact], hash);
    else
        cli_print("%s: a whole and valid %s, hash %016" PRIx64, path, names[artefact], hash);
    return COH_OK;
}
