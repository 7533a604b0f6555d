/* refusal.h - prints refusals as JSON (cohobate/refusal.h), for plan, simulate and explain. */
#ifndef COH_CLI_REFUSAL_H
#define COH_CLI_REFUSAL_H

#include "cli/say.h"

/* Adds a refusal as member `key`, unless its reason is COH_REFUSAL_NONE. docs/planning.md names its
 * members; none comes from a sentence, except `remedy`, which is one. */
void cli_refusal_add_json(const char *key, const coh_refusal *refusal, cli_line *line);

/* Prints the last failure, of `status`, as an object that says why there is no plan for `model`
 * (NULL: no name); nothing if it is no refusal. */
void cli_refusal_json(coh_status status, const char *model);

#endif
