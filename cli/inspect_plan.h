/* inspect_plan.h - what a plan file says of itself, for people and machines; nothing is rebuilt. */
#ifndef COH_CLI_INSPECT_PLAN_H
#define COH_CLI_INSPECT_PLAN_H

#include "cli/options.h"

/* To standard output. Fails: COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
coh_status cli_inspect_plan(const cli_options *options);

#endif
