/* What a drive's rate means for a run. The one idea: bytes that the plan knows, over a rate. Next:
 * drive.h; disks.c for the rates of several folders. */
#include "cli/drive.h"

#include <inttypes.h>

#include "cli/disks.h"

/* ---- the start ---- */

#define START_WORTH_SAYING_S 10.0

cli_drive_start cli_drive_start_get(const cli_job *job)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    cli_drive_start start = { .bytes = job->summary.peak_bytes[COH_TIER_DISK] *
                                       (uint64_t)cli_budget_local_ranks(job->options) };
    if (coh_profile_summarize(coh_plan_profile(job->plan), &facts) == COH_OK &&
        facts.write_bytes_per_s > 0)
        start.seconds = (double)start.bytes / facts.write_bytes_per_s;
    return start;
}

int cli_drive_start_lines(const cli_job *job)
{
    return cli_drive_start_get(job).seconds >= START_WORTH_SAYING_S;
}

void cli_drive_add_start(const cli_job *job, cli_line *line)
{
    const cli_drive_start start = cli_drive_start_get(job);
    if (cli_drive_start_lines(job) > 0)
        cli_line_add(line,
                     "start:  writes the whole working store once: %s, %s at the write rate\n",
                     cli_size(start.bytes).at, cli_time(start.seconds).at);
}

void cli_drive_add_json(const cli_job *job, cli_line *line)
{
    const cli_drive_start start = cli_drive_start_get(job);
    cli_line_add_json(line, "'start_bytes_written': %" PRIu64 ", 'start_seconds': %.9f",
                      start.bytes, start.seconds);
}

/* ---- a slow drive ---- */

/* Rates of a drive differ by less from one hour to the next. */
#define SLOW_PART 0.5

/* Calibrated plans have the drive's true times, and ranks of one machine share its rate. */
static int prices_are_its_rate(const cli_job *job)
{
    return job->calibration.runs == 0 && cli_budget_local_ranks(job->options) == 1;
}

static int is_slow(uint64_t measured, double priced)
{
    return measured > 0 && (double)measured < SLOW_PART * priced;
}

/* The least time of a step by one lane; 0: its rate was not measured. */
static double least_seconds(const cli_job *job, coh_lane lane, uint64_t bytes_per_s)
{
    return bytes_per_s > 0 ? (double)job->summary.link_bytes[lane] / (double)bytes_per_s : 0;
}

void cli_drive_add_slow(const cli_job *job, const coh_engine_facts *facts, cli_line *line)
{
    coh_profile_summary priced = { .struct_bytes = sizeof(priced) };
    const uint64_t read = facts->store_read_bytes_per_s, write = facts->store_write_bytes_per_s;
    const double by_read = least_seconds(job, COH_LANE_READ, read);
    const double by_write = least_seconds(job, COH_LANE_WRITE, write);
    if (read == 0 || write == 0 || !prices_are_its_rate(job) ||
        coh_profile_summarize(coh_plan_profile(job->plan), &priced) != COH_OK ||
        !(is_slow(read, priced.read_bytes_per_s) || is_slow(write, priced.write_bytes_per_s)))
        return;
    cli_line_add(line,
                 "note:   the drive is slower than this plan's prices: it reads at %s/s (priced at "
                 "%s/s) and writes at %s/s (%s/s), so no step is faster than %s: cohobate profile",
                 cli_size(read).at, cli_size((uint64_t)priced.read_bytes_per_s).at,
                 cli_size(write).at, cli_size((uint64_t)priced.write_bytes_per_s).at,
                 cli_time(by_read > by_write ? by_read : by_write).at);
    cli_disks_add(job->options, " --disk ", NULL, line);
    cli_line_add(line, " -o FILE measures it, and --profile FILE plans with it\n");
}
