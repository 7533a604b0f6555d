/* report.h - the profiling report of a run or a plan, as text, JSON or HTML.
 *
 *     run folder ──> report_run ──> report_analysis ──> text (80 columns), JSON, one HTML file
 *
 * The forms differ in what they show, never in the numbers. Next: run.h, analysis.h. */
#ifndef COH_REPORT_REPORT_H
#define COH_REPORT_REPORT_H

#include "report/analysis.h"

typedef enum report_form { REPORT_TEXT, REPORT_ASCII, REPORT_JSON, REPORT_HTML } report_form;

enum { REPORT_RUNS = 8, REPORT_HTML_BYTES = 3 << 20, REPORT_JSON_VERSION = 1 };

/* Writes the report of analyses[0] to `path`, whole or not at all, or to standard output for NULL:
 * stdio keeps its errors. The others are runs whose curves are drawn over those of the first one:
 * HTML only.
 * Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status report_write(const report_analysis *const *analyses, int count, report_form form,
                        const char *path);

/* Prints what became faster or slower from run `before` to run `after`, and what differs between
 * them. Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status report_diff(const report_analysis *before, const report_analysis *after,
                       report_form form);

#endif
