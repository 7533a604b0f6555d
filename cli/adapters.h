/* adapters.h - the flags that say which part of a model is trained. */
#ifndef COH_CLI_ADAPTERS_H
#define COH_CLI_ADAPTERS_H

#include "cli/options.h"

/* Sets the adapters of a new run. Without any of these flags the model is unchanged: training of a
 * checkpoint's adapters continues. Fails: COH_ERR_ARGUMENT. */
coh_status cli_adapters_select(const cli_options *options, coh_model *model);

#endif
