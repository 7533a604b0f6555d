/* inspect_plan.h - prints the contents of a plan file as text or JSON, without rebuilding the
 * plan. */
#ifndef COH_CLI_INSPECT_PLAN_H
#define COH_CLI_INSPECT_PLAN_H

#include "cli/options.h"

/* Prints to standard output. Fails: COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
coh_status cli_inspect_plan(const cli_options *options);

#endif
