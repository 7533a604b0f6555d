/* links.h - the table of links on the screen of a plan (docs/planning.md). */
#ifndef COH_CLI_LINKS_H
#define COH_CLI_LINKS_H

#include "cli/job.h"

/* Adds a row for each link over which data moves, and lines for updates on the host lane and for a
 * clip mode that keeps data. */
void cli_links_add(const cli_job *job, cli_line *line);

#endif
