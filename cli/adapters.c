/* Parses --lora, --lora-targets and --freeze. Next: cohobate/models.h. */
#include "cli/adapters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"

/* Parses RANK[:ALPHA]. */
static coh_status parse_lora(const char *text, coh_adapters *adapters)
{
    char *end = NULL;
    const long rank = strtol(text, &end, 10);
    int is_whole = text[0] >= '0' && text[0] <= '9' && rank >= 1 && rank <= INT32_MAX;
    if (is_whole && *end == ':') {
        const char *alpha = end + 1;
        adapters->alpha = strtof(alpha, &end);
        is_whole = end != alpha && adapters->alpha > 0;
    }
    if (!is_whole || *end != '\0')
        return cli_fail(
            COH_ERR_ARGUMENT,
            "--lora takes RANK[:ALPHA], a rank of at least 1 and an alpha above 0, not '%s': "
            "for example --lora 8:16",
            text);
    adapters->rank = (int32_t)rank;
    return COH_OK;
}

static coh_status take_pattern(cli_flag flag, const char *text, char pattern[COH_PATTERN_BYTES])
{
    const char *name = cli_flag_table[flag].name;
    if (strlen(text) >= COH_PATTERN_BYTES)
        return cli_fail(COH_ERR_ARGUMENT, "--%s of %zu bytes: at most %d, so use \"*\"", name,
                        strlen(text), COH_PATTERN_BYTES - 1);
    snprintf(pattern, COH_PATTERN_BYTES, "%s", text);
    return COH_OK;
}

coh_status cli_adapters_select(const cli_options *options, coh_model *model)
{
    coh_adapters adapters = { 0 };
    if (!options->freeze && !options->lora && !options->lora_targets)
        return COH_OK;
    if (model->adapters.rank > 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s has adapters of rank %" PRId32
                        " already: go on with them by leaving --freeze, --lora and --lora-targets "
                        "out, or begin from what export --merge-lora makes of it",
                        options->operand, model->adapters.rank);
    if (options->adapter)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--adapter fixes rank, alpha and targets, and freezes the rest: "
                        "leave --freeze, --lora and --lora-targets out");
    if (options->lora_targets && !options->lora)
        return cli_fail(COH_ERR_ARGUMENT, "--lora-targets goes with --lora: add --lora 8");
    if (options->freeze)
        CLI_TRY(take_pattern(CLI_FLAG_FREEZE, options->freeze, adapters.freeze));
    if (options->lora)
        CLI_TRY(parse_lora(options->lora, &adapters));
    if (options->lora_targets)
        CLI_TRY(take_pattern(CLI_FLAG_LORA_TARGETS, options->lora_targets, adapters.targets));
    return coh_model_adapters_set(model, &adapters);
}
