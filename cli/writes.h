/* writes.h - computes and limits how much a job's plan writes to the drive per day, since writing
 * wears a drive out. */
#ifndef COH_CLI_WRITES_H
#define COH_CLI_WRITES_H

#include "cli/job.h"

/* Limits are per day, plans per step. */
#define CLI_DAY_NS 86400e9

/* Bytes per day of uninterrupted training. */
double cli_writes_per_day(const cli_job *job);

/* Reports that --disk-write-limit allows no plan. `day`: bytes written per day by the fastest plan,
 * or by that of --plan. `least`: the lowest limit for which a plan was found, 0: not searched.
 * Returns COH_ERR_FULL. */
coh_status cli_writes_refuse(const cli_options *options, double day, double least);

#endif
