/* hints.h - the last lines of a plan's screen: what other options of a run would bring.
 *
 * Every figure is of a plan that was made, by the quick search; a hint without one has no figure.
 */
#ifndef COH_CLI_HINTS_H
#define COH_CLI_HINTS_H

#include "cli/job.h"

/* Makes up to six more plans, each as `plan --search quick` makes it, and adds a line for each
 * that is worth a change. Nothing is planned for a plan of a file, or a step of more than 30,000
 * instructions, for which one line names what to try. */
void cli_hints_add(const cli_job *job, cli_line *line);

/* The flag of 8-bit moments for the job's dtype: "--state lean" or "--optimizer adamw8". */
const char *cli_lean_flag(const cli_job *job);

#endif
