/* input.h - asked before a command reads what the user named: is it there?
 *
 * One rule for every path on the command line:
 *
 *     it is not there                    exit 2: the command line must change
 *     it is there and cannot be read     exit 5: the system's fault
 *     it can be read and is not right    exit 4: the file's fault */
#ifndef COH_CLI_INPUT_H
#define COH_CLI_INPUT_H

#include "cli/options.h"

/* Looks at every path that the command will read, and at the folders of those it will write.
 * Fails: COH_ERR_ARGUMENT naming flag and path; COH_ERR_CORRUPT for what is there where a model is
 * due, and is none by its kind; COH_ERR_IO. */
coh_status cli_input_check(const cli_options *options);

/* Does folder `path` hold a *.safetensors? */
int cli_input_has_tensors(const char *path);

#endif
