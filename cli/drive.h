/* drive.h - a drive's rate and a run: a drive that is slower than the plan's prices. */
#ifndef COH_CLI_DRIVE_H
#define COH_CLI_DRIVE_H

#include "cli/job.h"

/* Adds a line "note: ..." if the drive, as it was measured when the engine opened, has less than
 * half of a rate of the plan: both rates, the least time of a step that follows, and the command
 * that measures it. Nothing is added about a calibrated plan, or ranks that share a drive. */
void cli_drive_add_slow(const cli_job *job, const coh_engine_facts *facts, cli_line *line);

#endif
