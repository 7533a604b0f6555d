/* writes.h - what a job's plan writes to the drive in a day, and what is said of it: a drive wears
 * out by what it is written. */
#ifndef COH_CLI_WRITES_H
#define COH_CLI_WRITES_H

#include "cli/job.h"

/* Limits are of a day, plans of a step. */
#define CLI_DAY_NS 86400e9

/* Bytes, of days of nothing but such steps. */
double cli_writes_per_day(const cli_job *job);

/* --disk-write-limit leaves no plan: `day` bytes is what the fastest writes, or that of --plan.
 * `least`: the least limit that a plan was found for, 0: none was looked for.
 * Returns COH_ERR_FULL. */
coh_status cli_writes_refuse(const cli_options *options, double day, double least);

#endif
