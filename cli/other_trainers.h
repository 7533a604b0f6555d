/* other_trainers.h - flags that users of other trainers type, and what they are called here. */
#ifndef COH_CLI_OTHER_TRAINERS_H
#define COH_CLI_OTHER_TRAINERS_H

#include "cli/options.h"

/* Returns what to give in place of the word "--NAME[=VALUE]", a flag of another trainer, in any
 * case of "-" and "_", or if VALUE is false what turns that off; NULL: no flag of the command does
 * the same, or the name is not known. Static storage. */
const char *cli_other_trainers_find(cli_command command, const char *word);

#endif
