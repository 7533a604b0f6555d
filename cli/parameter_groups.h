/* parameter_groups.h - parameters with a rate or a decay of their own: --lr-for and
 * --weight-decay-for, as the recipe has them, made into the engine's groups (cohobate/engine.h). */
#ifndef COH_CLI_PARAMETER_GROUPS_H
#define COH_CLI_PARAMETER_GROUPS_H

#include "cli/recipe.h"

enum { CLI_GROUPS_MOST = 2 * CLI_FORS_MOST };

/* Fills `out_groups`; returns how many there are. Their patterns point into the recipe. */
uint32_t cli_parameter_groups(const cli_recipe *recipe,
                              coh_parameter_group out_groups[CLI_GROUPS_MOST]);

/* Does every pattern match a parameter that is trained, and is there a rate to be a multiple of?
 * Fails: COH_ERR_ARGUMENT with flag and pattern. */
coh_status cli_parameter_groups_check(const cli_recipe *recipe, const coh_graph *graph);

/* A line a group. `graph` NULL: without how many parameters it has. */
void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph,
                                   cli_line *line);

#endif
