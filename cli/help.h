/* help.h - the texts of --help, also read by the man pages (manual.c). Flags are rows of flags.def,
 * not texts. */
#ifndef COH_CLI_HELP_H
#define COH_CLI_HELP_H

#include "cli/options.h"

/* A sentence without a full stop: what the command does. */
extern const char *const cli_help_summaries[CLI_COMMAND_COUNT];
/* The forms of the command, one a line; each but the first begins with 7 spaces. */
extern const char *const cli_help_usages[CLI_COMMAND_COUNT];
/* Paragraphs of lines of at most 90 columns. Lines that begin with a space are a table. */
extern const char *const cli_help_details[CLI_COMMAND_COUNT];
/* Commands, each after 2 spaces. */
extern const char *const cli_help_examples[CLI_COMMAND_COUNT];
/* Flags that are cut short, units of sizes, exit codes: a paragraph each. */
extern const char cli_help_short[], cli_help_sizes[], cli_help_exit_codes[];

#endif
