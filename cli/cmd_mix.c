/* cohobate mix: writes several token files as one, each as often as a pass shall read it. Next:
 * text/token_mix.c does the work. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/made_tokens.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/stop.h"

/* The operands, taken apart. */
typedef struct mix_parts {
    int32_t count;
    char paths[CLI_MIX_MOST][CLI_PATH_BYTES];
    double times[CLI_MIX_MOST];
    coh_token_file *files[CLI_MIX_MOST];
    uint64_t token_counts[CLI_MIX_MOST]; /* in the mixture */
} mix_parts;

static coh_status open_parts(const cli_options *options, mix_parts *parts)
{
    for (int i = 0; i < options->operand_count; i++) {
        CLI_TRY(cli_input_read_part(options->operands[i], parts->paths[i], &parts->times[i]));
        CLI_TRY(coh_token_file_open(parts->paths[i], &parts->files[i]));
        parts->count++;
    }
    return COH_OK;
}

static coh_status go_on(void *context)
{
    (void)context;
    return cli_stop_check("while token files were mixed: nothing of the mixture is kept; the same "
                          "command begins again");
}

static coh_status mix(const cli_options *options, mix_parts *parts)
{
    coh_token_mix_options mixture;
    coh_token_mix_options_init(&mixture);
    mixture.out_path = options->output;
    mixture.seed = (uint64_t)options->seed;
    mixture.go_on = go_on;
    static const char at_once[] = "\ncohobate mix: stopped at once; what was written has no name "
                                  "yet: the next command that writes OUT removes OUT.partial\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    cli_progress_begin("mixing", options->output, CLI_PROGRESS_FIRST_S);
    const coh_status status =
        coh_token_file_mix(parts->files, parts->times, parts->count, &mixture, parts->token_counts);
    cli_progress_end();
    return status;
}

static coh_status print_parts(const cli_options *options, const mix_parts *parts, cli_line *json)
{
    uint64_t all = 0;
    for (int32_t i = 0; i < parts->count; i++)
        all += parts->token_counts[i];
    cli_line_add_json(json, "'parts': [");
    for (int32_t i = 0; i < parts->count; i++) {
        const double share = (double)parts->token_counts[i] / (double)all;
        if (!options->json)
            cli_print("  %5.1f %%  %s of %s, read %.15g time%s", 100 * share,
                      cli_count(parts->token_counts[i], "token").at, parts->paths[i],
                      parts->times[i], parts->times[i] == 1 ? "" : "s");
        cli_line_add_json(json,
                          "{'path': %s, 'times': %.17g, 'tokens': %" PRIu64 ", 'share': %.17g}",
                          parts->paths[i], parts->times[i], parts->token_counts[i], share);
        if (options->json)
            cli_line_flush(json);
    }
    cli_line_add(json, "]");
    return COH_OK;
}

static coh_status run(const cli_options *options, mix_parts *parts)
{
    coh_token_file *made;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    cli_line json;
    CLI_TRY(open_parts(options, parts));
    CLI_TRY(mix(options, parts));
    CLI_TRY(coh_token_file_open(options->output, &made));
    coh_status status = coh_token_file_facts_get(made, &facts);
    if (status == COH_OK && facts.has_mask) { /* reading it counts what is learned */
        status = coh_token_file_check(made);
        if (status == COH_OK)
            status = coh_token_file_facts_get(made, &facts);
    }
    coh_token_file_close(made);
    CLI_TRY(status);
    cli_line_clear(&json);
    cli_line_add(&json, "{");
    CLI_TRY(cli_made_tokens_print(options, options->output, "file", facts.target_count, &json));
    CLI_TRY(print_parts(options, parts, &json));
    if (options->json)
        cli_print("%s}", json.text);
    return COH_OK;
}

coh_status cli_mix(const cli_options *options)
{
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o OUT is missing: the token file to write");
    CLI_TRY(cli_output_check(options));
    mix_parts *parts = calloc(1, sizeof(*parts));
    if (!parts)
        return cli_fail(COH_ERR_MEMORY, "no memory for the names of token files");
    const coh_status status = run(options, parts);
    for (int32_t i = 0; i < parts->count; i++)
        coh_token_file_close(parts->files[i]);
    free(parts);
    return status;
}
