/* Parses --lora, --lora-targets, --lora-also and --freeze. Next: cohobate/models.h. */
#include "cli/adapters.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"

#define ALL_FLAGS "--freeze, --lora, --lora-targets and --lora-also"

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

/* Checks that the flags go with the model and with one another. */
static coh_status check_flags(const cli_options *options, const coh_model *model)
{
    if (model->adapters.rank > 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s has adapters of rank %" PRId32
                        " already: go on with them by leaving " ALL_FLAGS
                        " out, or begin from what export --merge-lora makes of it",
                        options->operand, model->adapters.rank);
    if (options->adapter)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--adapter fixes rank, alpha, targets and what is trained in full, and "
                        "freezes the rest: leave " ALL_FLAGS " out");
    if ((options->lora_targets || options->lora_also) && !options->lora)
        return cli_fail(COH_ERR_ARGUMENT, "--%s goes with --lora: add --lora 8",
                        options->lora_targets ? "lora-targets" : "lora-also");
    return COH_OK;
}

static int trains_any_weight(const coh_model *model)
{
    for (int64_t i = 0; i < coh_model_tensor_count(model); i++)
        if (!coh_model_is_frozen(model, i))
            return 1;
    return 0;
}

/* Each pattern of --lora-also has to train something: --freeze may take out a part of it only. An
 * older run's note may hold both, so the library takes them. */
static coh_status check_also(const coh_model *model)
{
    char patterns[COH_PATTERN_BYTES], *rest = NULL;
    coh_model one = *model;
    snprintf(patterns, sizeof(patterns), "%s", model->adapters.also);
    for (char *at = strtok_r(patterns, ", ", &rest); at; at = strtok_r(NULL, ", ", &rest)) {
        snprintf(one.adapters.also, sizeof(one.adapters.also), "%s", at);
        if (!trains_any_weight(&one))
            return cli_fail(COH_ERR_ARGUMENT,
                            "--freeze '%s' freezes all that --lora-also '%s' is to train: take it "
                            "out of one of the two",
                            model->adapters.freeze, at);
    }
    return COH_OK;
}

coh_status cli_adapters_select(const cli_options *options, coh_model *model)
{
    coh_adapters adapters = { 0 };
    if (!options->freeze && !options->lora && !options->lora_targets && !options->lora_also)
        return COH_OK;
    CLI_TRY(check_flags(options, model));
    if (options->freeze)
        CLI_TRY(take_pattern(CLI_FLAG_FREEZE, options->freeze, adapters.freeze));
    if (options->lora)
        CLI_TRY(parse_lora(options->lora, &adapters));
    if (options->lora_targets)
        CLI_TRY(take_pattern(CLI_FLAG_LORA_TARGETS, options->lora_targets, adapters.targets));
    if (options->lora_also)
        CLI_TRY(take_pattern(CLI_FLAG_LORA_ALSO, options->lora_also, adapters.also));
    CLI_TRY(coh_model_adapters_set(model, &adapters));
    return check_also(model);
}
