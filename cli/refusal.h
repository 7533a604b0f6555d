/* refusal.h - prints refusals (cohobate/refusal.h) and other failures as JSON. */
#ifndef COH_CLI_REFUSAL_H
#define COH_CLI_REFUSAL_H

#include "cli/say.h"

/* Adds a refusal as member `key`, unless its reason is COH_REFUSAL_NONE. docs/planning.md names its
 * members; none comes from a sentence, except `remedy`, which is one. */
void cli_refusal_add_json(const char *key, const coh_refusal *refusal, cli_line *line);

/* Prints the last failure, of `status`, as an object: the exit code, the sentence, and the name of
 * the status or, if the failure is a refusal (else NULL), its members and `model` (NULL: no name).
 */
void cli_failure_json(coh_status status, int exit_code, const char *model,
                      const coh_refusal *refusal);

#endif
