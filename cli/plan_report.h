/* plan_report.h - the profiling report of a plan, drawn by the same code as that of a run. */
#ifndef COH_CLI_PLAN_REPORT_H
#define COH_CLI_PLAN_REPORT_H

#include "cli/job.h"
#include "report/report.h"

/* The form of a report by the end of its name. Fails: COH_ERR_ARGUMENT, naming the flag. */
coh_status cli_report_form(const char *flag, const char *path, report_form *out_form);

#endif
