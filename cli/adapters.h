/* adapters.h - what is trained of a model, from --freeze, --lora and --lora-targets. */
#ifndef COH_CLI_ADAPTERS_H
#define COH_CLI_ADAPTERS_H

#include "cli/options.h"

/* For a new run. Without one of the flags the model stays as it is: a checkpoint's adapters go on
 * being trained. Fails: COH_ERR_ARGUMENT: a flag's value, or a pattern that stands for nothing. */
coh_status cli_adapters_set(const cli_options *options, coh_model *model);

/* A line where not all is trained: how much is, and what. `parameter_count`: of the graph. */
void cli_adapters_describe(const coh_model *model, uint64_t parameter_count, cli_line *line);

#endif
