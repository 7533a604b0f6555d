/* path_check.h - the paths of a command line: one table of what each flag and operand needs, and of
 * the exit code for what is there instead. Every command uses it before it does anything. */
#ifndef COH_CLI_PATH_CHECK_H
#define COH_CLI_PATH_CHECK_H

#include "cli/options.h"

/* Checks every path that `options` has. A path may be a preset's or a shipped profile's name where
 * the command takes one.
 * Fails: COH_ERR_ARGUMENT (2) where nothing is there, or where an output has no folder to lie in;
 * COH_ERR_CORRUPT (4) where a thing of another kind is there; COH_ERR_IO (5) where it cannot be
 * looked at, read or written. */
coh_status cli_path_check(const cli_options *options);

#endif
