/* Refuses runs that would wear the drive out without permission. The one idea: bytes of a step
 * times steps per day. Next: planner/plan_writes.c, which keeps plans within --disk-write-limit. */
#include "cli/job.h"

#include <stdio.h>

#define DAY_NS 86400e9

/* Bytes per day of uninterrupted training. */
static double written_per_day(const cli_job *job)
{
    return job->summary.step_ns > 0
               ? job->summary.disk_bytes_written * DAY_NS / (double)job->summary.step_ns
               : 0;
}

int cli_job_wears(const cli_job *job)
{
    const double run_s = cli_job_predicted_seconds(job, job->recipe.steps - job->first_step);
    return job->plan_options.disk_write_bytes_per_day == 0 &&
           written_per_day(job) * (run_s < 86400 ? run_s / 86400 : 1) > CLI_WRITES_ASKED_FOR;
}

coh_status cli_job_check_writes(const cli_job *job)
{
    const double day = written_per_day(job);
    if (!cli_job_wears(job))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "this run would write %s to the drive in a day, which wears it out: allow it "
                    "with --disk-write-limit %.0fTB/day, or bound it with less",
                    cli_size((uint64_t)day).at, day * 1e-12 + 1);
}
