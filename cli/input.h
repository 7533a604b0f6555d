/* input.h - checks given paths before a command reads them: the kind of each path (path_check.h),
 * and whether a model's folder holds a model. */
#ifndef COH_CLI_INPUT_H
#define COH_CLI_INPUT_H

#include "cli/options.h"

/* Fails: as cli_path_check; COH_ERR_CORRUPT for a folder without the required model. */
coh_status cli_input_check(const cli_options *options);

/* Does folder `path` hold a *.safetensors? */
int cli_input_has_tensors(const char *path);

#endif
