/* parameter_groups.h - turns the recipe's --lr-for and --weight-decay-for into the engine's groups
 * of parameters (cohobate/engine.h). */
#ifndef COH_CLI_PARAMETER_GROUPS_H
#define COH_CLI_PARAMETER_GROUPS_H

#include "cli/recipe.h"

enum { CLI_GROUPS_MOST = 2 * CLI_FORS_MOST };

/* Fills `out_groups`; returns their number. Their patterns point into the recipe. */
uint32_t cli_parameter_groups(const cli_recipe *recipe,
                              coh_parameter_group out_groups[CLI_GROUPS_MOST]);

/* Checks that every pattern matches a trained parameter, and that there is a rate to be multiplied.
 * Fails: COH_ERR_ARGUMENT with flag and pattern. */
coh_status cli_parameter_groups_check(const cli_recipe *recipe, const coh_graph *graph);

/* Adds a line per group; without numbers of parameters if `graph` is NULL. */
void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph,
                                   cli_line *line);

#endif
