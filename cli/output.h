/* output.h - checks the output files of a command before it writes them, so that it never destroys
 * a file of another program.
 *
 *     there is no such file, or it is empty    written
 *     it is what the command reads             refused
 *     another flag of the command names it     refused
 *     it holds what such a command wrote       replaced (--log: added to)
 *     anything else                            refused
 * */
#ifndef COH_CLI_OUTPUT_H
#define COH_CLI_OUTPUT_H

#include "cli/options.h"

/* Looks at every output flag of the command. Fails: COH_ERR_ARGUMENT naming flag and file;
 * COH_ERR_IO. */
coh_status cli_output_check(const cli_options *options);

#endif
