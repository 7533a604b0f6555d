/* foreign.h - refuses data whose bytes are no text to learn, although texts are in it: compressed
 * files, Parquet, and JSON that would be read as plain text.
 *
 * `flag` is the flag that names the file, without its dashes; NULL: it is an operand. `head`: the
 * first bytes of the file. */
#ifndef COH_CLI_FOREIGN_H
#define COH_CLI_FOREIGN_H

#include <stddef.h>

#include "cohobate/status.h"

/* Fails: COH_ERR_CORRUPT: the file is compressed, or Parquet; the message has the command that
 * converts it. */
coh_status cli_foreign_check(const char *flag, const char *path, const void *head,
                             size_t head_bytes);

/* Is it a file named *.json that begins as an array or an object of JSON? */
int cli_foreign_is_json(const char *path, const void *head, size_t head_bytes);
/* Refuses such a file where no flag says what its objects are. Returns COH_ERR_CORRUPT. */
coh_status cli_foreign_refuse_json(const char *flag, const char *path);

#endif
