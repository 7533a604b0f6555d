/* Prints a token file that a command has made. Next: cmd_tokenize.c and cmd_mix.c make them. */
#include "cli/made_tokens.h"

#include <inttypes.h>
#include <stdio.h>

coh_status cli_made_tokens_print(const cli_options *options, const char *path, const char *key,
                                 uint64_t learned, cli_line *json)
{
    coh_token_file *file;
    coh_token_file_facts facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(coh_token_file_open(path, &file));
    coh_status status = coh_token_file_facts_get(file, &facts);
    coh_token_file_close(file);
    CLI_TRY(status);
    char some[64] = "";
    if (facts.has_mask)
        snprintf(some, sizeof(some), ", of which %" PRIu64 " are learned", learned);
    if (!options->json) {
        cli_print("%s: %s%s, vocabulary %" PRId64 ", hash %016" PRIx64, path,
                  cli_count(facts.token_count, "token").at, some, facts.vocabulary, facts.hash);
        return COH_OK;
    }
    cli_line_add_json(json,
                      "%s: {'path': %s, 'tokens': %" PRIu64 ", 'learned': %" PRIu64
                      ", 'vocabulary': %" PRId64 ", 'hash': '%016" PRIx64 "'}",
                      key, path, facts.token_count, learned, facts.vocabulary, facts.hash);
    return COH_OK;
}
