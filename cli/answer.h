/* answer.h - the text that a model writes: collected, ended before a stop string, printed as far as
 * it is certain.
 *
 *     bytes of a token ─> cli_answer_add ─> [ certain | may begin a stop string ]
 *
 * Stop strings are found byte by byte, so it does not matter where tokens or characters begin and
 * end: the text ends at the first byte that completes one, before the longest that it completes. */
#ifndef COH_CLI_ANSWER_H
#define COH_CLI_ANSWER_H

#include "cli/say.h"

typedef struct cli_answer {
    const char *const *stops; /* NULL behind the last; the caller's */
    const char *prefix;       /* dropped where the text begins with it; at most one byte */
    char *bytes;
    size_t count, capacity;
    size_t added_count;     /* bytes so far, with those that were dropped */
    const char *stopped_by; /* NULL: no stop string yet */
} cli_answer;

/* Appends the bytes of a token; what follows a stop string is left out. Fails: COH_ERR_MEMORY. */
coh_status cli_answer_add(cli_answer *answer, const char *bytes, size_t count);
/* Bytes from the front that no later token takes back. */
size_t cli_answer_certain(const cli_answer *answer);
/* Forgets the text and keeps its memory. */
void cli_answer_clear(cli_answer *answer);
void cli_answer_free(cli_answer *answer); /* accepts a zeroed one */

/* Prints `bytes` as a JSON string through stdio. What is not UTF-8 becomes U+FFFD, as in Python's
 * errors="replace". */
void cli_print_json_text(const char *bytes, size_t count);

#endif
