/* parameter_groups.h - turns the recipe's --lr-for and --weight-decay-for into the engine's groups
 * of parameters, and --beta1, --beta2, --hyperparameter into its hyperparameters
 * (cohobate/engine.h). */
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

/* The hyperparameters that differ from the optimizers' own, and their texts. */
typedef struct cli_hyperparameters {
    coh_hyperparameter_value values[2 + CLI_FORS_MOST];
    uint32_t count;
    char names[CLI_FORS_MOST][COH_PATTERN_BYTES];
} cli_hyperparameters;

/* Values point to texts in *out_numbers. */
void cli_hyperparameters_of(const cli_recipe *recipe, cli_hyperparameters *out_numbers);

/* Checks names and ranges against the optimizers of the recipe. Fails: COH_ERR_ARGUMENT. */
coh_status cli_hyperparameters_check(const cli_recipe *recipe);

/* Adds a line per group and optimizer; without numbers of parameters if `graph` is NULL. */
void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph,
                                   cli_line *line);

#endif
