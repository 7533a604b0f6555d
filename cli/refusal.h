/* refusal.h - prints refusals as JSON (cohobate/refusal.h), for plan, simulate and explain. */
#ifndef COH_CLI_REFUSAL_H
#define COH_CLI_REFUSAL_H

#include "cli/say.h"

/* Adds the members of a refusal, each named as in docs/planning.md, without braces. Nothing here
 * comes from a sentence, except `remedy`, which is one. */
void cli_refusal_add_json(const coh_refusal *refusal, cli_line *line);

/* Prints the last failure, of `status`, as an object that says why there is no plan for `model`
 * (NULL: no name); nothing if it is no refusal. */
void cli_refusal_json(coh_status status, const char *model);

#endif
