/* cohobate tokenize: turns text into a token file, and with --held-out or --validation-split part
 * of it into a second one. Next: data.c sets the options, text/token_build.c does the work. */
#include <stdio.h>
#include <string.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/made_tokens.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/recipe.h"
#include "cli/stop.h"

static coh_status check_flags(const cli_options *options)
{
    int splits = cli_given(options, CLI_FLAG_VALIDATION_SPLIT);
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o OUT is missing: the token file to write");
    if (splits && options->held_out > 0)
        return cli_fail(COH_ERR_ARGUMENT, "--held-out and --validation-split both put documents "
                                          "aside: give one of them");
    if ((splits || options->held_out > 0) != (options->held_out_file != NULL))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--held-out-file OUT goes with --held-out N or --validation-split X: give "
                        "both or neither");
    return cli_output_check(options);
}

static coh_status build(const cli_options *options, coh_tokenizer *tokenizer,
                        coh_token_build_facts *out_facts)
{
    cli_data_form form;
    coh_token_build_options build_options;
    CLI_TRY(cli_data_form_from_options(options, &form));
    CLI_TRY(cli_data_check_text(&form, options->operand,
                                cli_given(options, CLI_FLAG_TOKENIZER) &&
                                    strcmp(options->tokenizer, "bytes") == 0));
    const cli_data_source source = { .tokenizer = tokenizer,
                                     .tokenizer_path = options->tokenizer,
                                     .sequence = options->sequence,
                                     .seed = (uint64_t)options->seed,
                                     .form = &form,
                                     .skips_bad = options->skip_bad != 0,
                                     .thread_count = cli_budget_thread_count(options) };
    CLI_TRY(cli_data_build_options(&source, NULL, options->operand, &build_options));
    build_options.out_path = options->output;
    build_options.held_out = (int32_t)options->held_out;
    build_options.validation_split = options->validation_split;
    build_options.held_out_path = options->held_out_file;
    static const char at_once[] =
        "\ncohobate tokenize: stopped at once; what was written has no name "
        "yet: the next command that writes OUT removes OUT.partial\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    cli_progress_begin("tokenizing", options->operand, CLI_PROGRESS_FIRST_S);
    const coh_status status = coh_token_file_make(tokenizer, &build_options, out_facts);
    cli_progress_end();
    CLI_TRY(status);
    cli_data_say_build(&source, options->operand, out_facts);
    cli_data_say_stream(tokenizer, &build_options);
    return COH_OK;
}

coh_status cli_tokenize(const cli_options *options)
{
    coh_tokenizer *tokenizer;
    coh_token_build_facts made = { .struct_bytes = sizeof(made) };
    cli_line json;
    CLI_TRY(check_flags(options));
    if (cli_recipe_has_no_tokenizer(options->tokenizer))
        return cli_fail(COH_ERR_ARGUMENT, "--tokenizer none makes no ids of text: give --tokenizer "
                                          "bytes|PATH");
    CLI_TRY(coh_tokenizer_open(options->tokenizer, &tokenizer));
    coh_status status = build(options, tokenizer, &made);
    coh_tokenizer_close(tokenizer);
    CLI_TRY(status);
    cli_line_clear(&json);
    cli_line_add(&json, "{");
    CLI_TRY(cli_made_tokens_print(options, options->output, "file", made.target_count, &json));
    if (options->held_out_file)
        CLI_TRY(cli_made_tokens_print(options, options->held_out_file, "held_out",
                                      made.held_out_target_count, &json));
    if (options->json)
        cli_print("%s}", json.text);
    return COH_OK;
}
