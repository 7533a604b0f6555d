/* Computes disk writes per day and refuses plans above --disk-write-limit. The one idea: bytes of a
 * step times steps per day. Next: job_plan.c, which plans within the limit. */
#include "cli/writes.h"

#include <math.h>
#include <stdio.h>

double cli_writes_per_day(const cli_job *job)
{
    return job->summary.step_ns > 0
               ? job->summary.disk_bytes_written * CLI_DAY_NS / (double)job->summary.step_ns
               : 0;
}

enum { LIMIT_BYTES = 32 };

/* Formats "2731GB/day" as the flag accepts it, rounded up. */
static const char *write_limit(double day, char text[LIMIT_BYTES])
{
    const int is_large = day >= 100e9;
    snprintf(text, LIMIT_BYTES, "%.0f%s/day", ceil(day / (is_large ? 1e9 : 1e6)),
             is_large ? "GB" : "MB");
    return text;
}

coh_status cli_writes_refuse(const cli_options *options, double day, double least)
{
    char written[LIMIT_BYTES], allowed[LIMIT_BYTES], limit[LIMIT_BYTES], remedy[96] = "raise it";
    if (least > 0)
        snprintf(remedy, sizeof(remedy), "raise it to %s, the least that a plan was found for",
                 write_limit(least, limit));
    else if (!options->plan_file)
        snprintf(remedy, sizeof(remedy), "raise it (to less than that, perhaps)");
    return cli_fail(
        COH_ERR_FULL, "%s writes %s to the drive, --disk-write-limit allows %s: %s, or %s",
        options->plan_file ? "this plan" : "the fastest plan", write_limit(day, written),
        write_limit((double)options->disk_write_limit, allowed), remedy,
        options->plan_file ? "plan again with it"
                           : "give more --device-memory or a larger --batch");
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
