/* inspect_folder.h - prints the contents of a Hugging Face folder as text or JSON: the model, its
 * graph, and each parameter by our name and by Hugging Face's. */
#ifndef COH_CLI_INSPECT_FOLDER_H
#define COH_CLI_INSPECT_FOLDER_H

#include "cli/options.h"

/* options->operand is the folder. Fails: as coh_model_resolve and coh_folder_open do. */
coh_status cli_inspect_folder(const cli_options *options);

#endif
