/* job_plan.h - makes the plan of a job and chooses its micro-batch and sweep order. */
#ifndef COH_CLI_JOB_PLAN_H
#define COH_CLI_JOB_PLAN_H

#include "cli/job.h"

/* Sets job->plan, graph and summary, and the recipe's micro-batch and sweep order if they may be
 * chosen, with a note on standard error. Respects --disk-write-limit. Fails: COH_ERR_FULL with what
 * would fit; as coh_plan_create. */
coh_status cli_job_plan(cli_job *job);

void cli_job_drop_plan(cli_job *job); /* if there is one */

#endif
