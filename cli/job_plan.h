/* job_plan.h - the plan of a job, and the micro-batch and sweep order that it is for. */
#ifndef COH_CLI_JOB_PLAN_H
#define COH_CLI_JOB_PLAN_H

#include "cli/job.h"

/* Fills job->plan, graph and summary; the recipe's micro-batch and sweep order where the plan may
 * choose them, which is said on standard error. Held to --disk-write-limit.
 * Fails: COH_ERR_FULL with what would fit; as coh_plan_create. */
coh_status cli_job_plan(cli_job *job);

void cli_job_drop_plan(cli_job *job); /* where there is one */

#endif
