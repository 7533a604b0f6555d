#include <inttypes.h>
#include <math.h>

#include "cli/artefact.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/weights.h"

static coh_status check_checkpoint(const char *path, uint64_t *out_hash)
{
    cli_weights weights;
    CLI_TRY(cli_weights_open_checkpoint(path, &weights));
    const coh_status status = coh_checkpoint_check(weights.checkpoint, out_hash);
    cli_weights_close(&weights);
    return status;
}

/* Every number, through a piece of 1 MiB. */
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
            for (uint64_t e = 0; e < count; e++)
                if (!isfinite(values[e]))
                    return cli_fail(COH_ERR_CORRUPT, "%s of %s holds a number that is not finite",
                                    at.found_name, at.file_name);
        }
    }
    return COH_OK;
}

/* A folder has no hash of its own. */
static coh_status check_folder(const cli_options *options)
{
    coh_model model;
    cli_weights weights;
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
    coh_token_file_facts facts;
    CLI_TRY(is_raw ? coh_token_file_open_raw(options->operand, 0, cli_data_id_bytes(options), &file)
                   : coh_token_file_open(options->operand, &file));
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
    coh_profile_summary facts;
    CLI_TRY(coh_profile_read(path, &profile));
    coh_status status = coh_profile_summarize(profile, &facts);
    if (status == COH_OK)
        *out_hash = facts.hash;
    coh_profile_destroy(profile);
    return status;
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
        CLI_TRY(check_checkpoint(path, &hash));
        break;
    case CLI_ARTEFACT_FOLDER:
        return check_folder(options);
    case CLI_ARTEFACT_PLAN:
        CLI_TRY(cli_artefact_plan_hash(path, &hash));
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
