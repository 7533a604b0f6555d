/* answer.h - collects the text that a model writes, ends it before a stop string, and finds the
 * part that can be printed already.
 *
 *     bytes of a token ─> cli_answer_add ─> [ certain | may begin a stop string ]
 *
 * Stop strings are searched byte by byte, regardless of the borders of tokens and characters. The
 * first byte that completes a stop string ends the text, before the longest stop string that it
 * completes. */
#ifndef COH_CLI_ANSWER_H
#define COH_CLI_ANSWER_H

#include "cli/say.h"

typedef struct cli_answer {
    const char *const *stops; /* ended by NULL; the caller's */
    const char *prefix;       /* dropped if the text begins with it; at most one byte */
    char *bytes;
    size_t count, capacity;
    size_t added_count;     /* bytes so far, including dropped ones */
    const char *stopped_by; /* NULL: no stop string yet */
} cli_answer;

/* Appends the bytes of a token, up to a stop string. Fails: COH_ERR_MEMORY. */
coh_status cli_answer_add(cli_answer *answer, const char *bytes, size_t count);
/* The number of initial bytes that no later token can retract. */
size_t cli_answer_certain(const cli_answer *answer);
/* Clears the text and keeps its memory. */
void cli_answer_clear(cli_answer *answer);
void cli_answer_free(cli_answer *answer); /* accepts a zeroed one */

/* Prints `bytes` as a JSON string through stdio. Invalid UTF-8 becomes U+FFFD, as with Python's
 * errors="replace". */
void cli_print_json_text(const char *bytes, size_t count);

#endif
