/* Reads the flags that select the trained part of a model. The one idea: a flag replaces one field
 * of the model's coh_adapters; the library then checks the patterns. Next: models/adapters.c
 * matches patterns. */
#include "cli/adapters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        return cli_fail(COH_ERR_ARGUMENT,
                        "--lora %s is not a rank with or without an alpha: give RANK[:ALPHA], as "
                        "--lora 8:16",
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

coh_status cli_adapters_set(const cli_options *options, coh_model *model)
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

void cli_adapters_describe(const coh_model *model, uint64_t parameter_count, cli_line *line)
{
    const coh_adapters *adapters = &model->adapters;
    if (adapters->rank == 0 && !adapters->freeze[0])
        return;
    const uint64_t trained = coh_model_trained_count(model);
    cli_line_add(line, "trains: %" PRIu64 " of %" PRIu64 " parameters (%.3g %%)", trained,
                 parameter_count, 100.0 * (double)trained / (double)parameter_count);
    if (adapters->rank > 0)
        cli_line_add(line, ": adapters of rank %" PRId32 ", alpha %g on %" PRId64 " of %s",
                     adapters->rank, (double)adapters->alpha, coh_model_adapter_count(model),
                     adapters->targets);
    if (adapters->freeze[0])
        cli_line_add(line, "%s %s frozen", adapters->rank > 0 ? ";" : ":", adapters->freeze);
    cli_line_add(line, "\n");
}
