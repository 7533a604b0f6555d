/* plan_report.h - the profiling reports that plan and train write, drawn by the same code. */
#ifndef COH_CLI_PLAN_REPORT_H
#define COH_CLI_PLAN_REPORT_H

#include "cli/job.h"
#include "report/report.h"

/* Draws options->report of the job's plan. Fails: COH_ERR_ARGUMENT, COH_ERR_IO, COH_ERR_MEMORY. */
coh_status cli_plan_report(const cli_job *job);

/* Writes the report of a run's folder to `path`. Fails: as report_run_read, report_write. */
coh_status cli_report_folder(const char *folder, const char *path);

/* Fills the what-ifs: plans of `options` for other budgets and links, as many as are made in
 * `seconds`. All are planned quickly first; those with the largest gains again by the search of
 * `options`. Options without a plan have none. A what-if with more device memory than the plan has
 * `most_device_bytes` at most. */
void cli_report_what_ifs(const cli_options *options, uint64_t most_device_bytes, double seconds,
                         report_analysis *out_analysis);

/* The form of a report by the end of its name. Fails: COH_ERR_ARGUMENT, naming the flag. */
coh_status cli_report_form(const char *flag, const char *path, report_form *out_form);

#endif
