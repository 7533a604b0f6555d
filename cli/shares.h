/* shares.h - how the batch of a step is cut: into the shares of --replicas, of which each of
 * --ranks makes some, in micro-batches. */
#ifndef COH_CLI_SHARES_H
#define COH_CLI_SHARES_H

#include "cli/job.h"

/* Sets the ranks, the replicas of each and their wires, from the recipe and the flags. Fails:
 * COH_ERR_ARGUMENT if the parts do not divide, with all flags that have to change. */
coh_status cli_job_share(cli_job *job);

#endif
