/* drive.h - a drive's rate and a run: what the start of a run writes, and a drive that is slower
 * than the plan's prices. */
#ifndef COH_CLI_DRIVE_H
#define COH_CLI_DRIVE_H

#include "cli/job.h"

/* What the start of a run does before its first step: it writes each block of the working stores of
 * this machine's ranks once, at the write rate of the plan's profile. */
typedef struct cli_drive_start {
    uint64_t bytes; /* 0: no store */
    double seconds; /* 0: the profile has no rate */
} cli_drive_start;

cli_drive_start cli_drive_start_get(const cli_job *job);

/* Adds one line "start: ..." of a start that takes 10 s or longer. */
void cli_drive_add_start(const cli_job *job, cli_line *line);
/* The number of lines that it adds. */
int cli_drive_start_lines(const cli_job *job);
/* Adds 'start_bytes_written' and 'start_seconds'. */
void cli_drive_add_json(const cli_job *job, cli_line *line);

/* Adds a line "note: ..." if the drive, as it was measured when the engine opened, has less than
 * half of a rate of the plan: both rates, the least time of a step that follows, and the command
 * that measures it. Nothing is added about a calibrated plan, or ranks that share a drive. */
void cli_drive_add_slow(const cli_job *job, const coh_engine_facts *facts, cli_line *line);

#endif
