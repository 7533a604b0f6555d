/* Computes disk writes per day and refuses plans above --disk-write-limit. The one idea: bytes of a
 * step times steps per day. Next: job_plan.c, which plans within the limit. */
#include "cli/writes.h"

#include <stdio.h>

double cli_writes_per_day(const cli_job *job)
{
    return job->summary.step_ns > 0
               ? job->summary.disk_bytes_written * CLI_DAY_NS / (double)job->summary.step_ns
               : 0;
}

coh_status cli_writes_refuse(const cli_options *options, double day, double least)
{
    const uint64_t limit = options->disk_write_limit, written = (uint64_t)day;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal),
                            .status = COH_ERR_FULL,
                            .reason = COH_REFUSAL_WRITES,
                            .tier = 2,
                            .given_bytes = limit,
                            .needed_bytes = written,
                            .short_bytes = written > limit ? written - limit : 0,
                            .is_proven = options->plan_file != NULL,
                            .change_count = options->plan_file ? 2 : 3,
                            .changes = {
                                { .kind = COH_CHANGE_RAISE_WRITES, .bytes = (uint64_t)least },
                                { .kind = COH_CHANGE_RAISE },
                                { .kind = COH_CHANGE_RAISE_BATCH } } };
    if (options->plan_file)
        refusal.changes[1].kind = COH_CHANGE_PLAN_AGAIN;
    return coh_refuse(&refusal);
}

int cli_job_wears(const cli_job *job)
{
    const double run_s = cli_job_predicted_seconds(job, job->recipe.steps - job->first_step);
    return !cli_given(job->options, CLI_FLAG_DISK_WRITE_LIMIT) &&
           cli_writes_per_day(job) * (run_s < 86400 ? run_s / 86400 : 1) > CLI_WRITES_ASKED_FOR;
}

coh_status cli_job_check_writes(const cli_job *job)
{
    const double day = cli_writes_per_day(job);
    char written[32];
    if (!cli_job_wears(job))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "this run would write %s to the drive in a day, which wears it out: allow it "
                    "with --disk-write-limit %.0fTB/day, or bound it with less",
                    coh_size_format((uint64_t)day, written, sizeof(written)), day * 1e-12 + 1);
}
