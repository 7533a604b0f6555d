/* made_tokens.h - the line, or the member `key` of `json`, about a token file that a command has
 * made. */
#ifndef COH_CLI_MADE_TOKENS_H
#define COH_CLI_MADE_TOKENS_H

#include "cli/options.h"
#include "cli/say.h"

/* Prints the line, or with --json adds the member. `learned`: how many ids of the file count as
 * targets. Fails: as opening the file does. */
coh_status cli_made_tokens_print(const cli_options *options, const char *path, const char *key,
                                 uint64_t learned, cli_line *json);

#endif
