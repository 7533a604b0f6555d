/* data.h - the text of a run, as a token file that is read by windows.
 *
 * What the user names is a token file, or text (a file or a folder) that is
 * turned into one first. */
#ifndef COH_CLI_DATA_H
#define COH_CLI_DATA_H

#include "cli/say.h"

typedef struct cli_data {
    coh_token_file *file; /* NULL: none */
    coh_token_file_facts facts;
    char path[CLI_PATH_BYTES]; /* of the token file, absolute; "": it has no name any more */
} cli_data;

/* Opens `what` (said as the value of flag `flag` in sentences). Text is tokenised into
 * `cache_path`; if that is NULL, into a temporary file that vanishes with the process.
 * `vocabulary`: ids must be below it.
 * A token file is read in full and held to its hash.
 * Fails: COH_ERR_CORRUPT (damaged or foreign token file, other tokenizer), COH_ERR_IO. */
coh_status cli_data_open(coh_tokenizer *tokenizer, int64_t vocabulary, const char *flag,
                         const char *what, const char *cache_path, cli_data *out_data);
void cli_data_close(cli_data *data); /* accepts one that is not open */

/* `window_count` windows of `tokens` each, from number `first_window` on, in the order of `seed`.
 * Allocates nothing. */
coh_status cli_data_fill(const cli_data *data, uint64_t seed, uint64_t first_window,
                         int64_t window_count, int64_t tokens, int32_t *out_tokens,
                         int32_t *out_targets);

#endif
