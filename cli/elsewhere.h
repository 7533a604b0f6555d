/* elsewhere.h - flags that only other commands have. */
#ifndef COH_CLI_ELSEWHERE_H
#define COH_CLI_ELSEWHERE_H

#include "cli/options.h"

/* Returns the flag that a word, "--NAME" or "--NAME=VALUE", names exactly, if only other commands
 * have it; NULL: none. getopt would take the word for an abbreviation of a longer flag of this
 * command. */
const cli_flag_row *cli_elsewhere_find(cli_command command, const char *word);

/* Fails, naming the commands that have the flag and what to give instead. COH_ERR_ARGUMENT. */
coh_status cli_elsewhere_refuse(cli_command command, const cli_flag_row *row);

#endif
