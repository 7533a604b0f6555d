/* adapters.h - selects the trained part of a model from --freeze, --lora and --lora-targets. */
#ifndef COH_CLI_ADAPTERS_H
#define COH_CLI_ADAPTERS_H

#include "cli/options.h"

/* Sets the adapters of a new run. Without any of these flags the model is unchanged: training of a
 * checkpoint's adapters continues. Fails: COH_ERR_ARGUMENT: an invalid value, or a pattern that
 * matches nothing. */
coh_status cli_adapters_set(const cli_options *options, coh_model *model);

/* Adds a line if not everything is trained: how much is trained, and what. `parameter_count`: of
 * the graph. */
void cli_adapters_describe(const coh_model *model, uint64_t parameter_count, cli_line *line);

#endif
