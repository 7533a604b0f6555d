#include <inttypes.h>

#include "cli/commands.h"
#include "cli/output.h"

static coh_status print_file(const cli_options *options, const char *path, const char *key,
                             cli_line *json)
{
    coh_token_file *file;
    coh_token_file_facts facts;
    CLI_TRY(coh_token_file_open(path, &file));
    coh_status status = coh_token_file_facts_get(file, &facts);
    coh_token_file_close(file);
    CLI_TRY(status);
    if (!options->json) {
        cli_print("%s: %" PRIu64 " tokens, vocabulary %" PRId64 ", hash %016" PRIx64, path,
                  facts.token_count, facts.vocabulary, facts.hash);
        return COH_OK;
    }
    cli_line_add(json, "%s\"%s\": {\"path\": ", json->used > 1 ? ", " : "", key);
    cli_line_add_json_string(json, path);
    cli_line_add(json,
                 ", \"tokens\": %" PRIu64 ", \"vocabulary\": %" PRId64 ", \"hash\": \"%016" PRIx64
                 "\"}",
                 facts.token_count, facts.vocabulary, facts.hash);
    return COH_OK;
}

coh_status cli_tokenize(const cli_options *options)
{
    coh_tokenizer *tokenizer;
    uint64_t token_count;
    cli_line json;
    if (!options->output)
        return cli_fail(COH_ERR_ARGUMENT, "-o OUT is missing: the token file to write");
    if ((options->held_out > 0) != (options->held_out_file != NULL))
        return cli_fail(COH_ERR_ARGUMENT,
                        "--held-out N and --held-out-file OUT go together: give both or neither");
    CLI_TRY(cli_output_check(options));
    CLI_TRY(coh_tokenizer_open(options->tokenizer, &tokenizer));
    coh_status status =
        coh_token_file_build(tokenizer, options->operand, options->output, (int)options->held_out,
                             options->held_out_file, &token_count);
    coh_tokenizer_close(tokenizer);
    CLI_TRY(status);
    cli_line_clear(&json);
    cli_line_add(&json, "{");
    CLI_TRY(print_file(options, options->output, "file", &json));
    if (options->held_out_file)
        CLI_TRY(print_file(options, options->held_out_file, "held_out", &json));
    if (options->json)
        cli_print("%s}", json.text);
    return COH_OK;
}
