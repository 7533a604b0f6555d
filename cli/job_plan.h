/* job_plan.h - makes the plan of a job from its recipe and budget. */
#ifndef COH_CLI_JOB_PLAN_H
#define COH_CLI_JOB_PLAN_H

#include "cli/job.h"

/* Sets job->plan, graph and summary, and the recipe's micro-batch and sweep order if they may be
 * chosen, with a note on standard error. Fails: as coh_batch_plan_create, or as coh_plan_read. */
coh_status cli_job_plan(cli_job *job);

#endif
