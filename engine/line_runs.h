/* line_runs.h - finds runs of the compute lane's lines that may be issued as one command.
 *
 *   compute   FEED | F0 F1 F2 | F3 F4 B4 N4 | CLIP | U4 ...
 *                             ^ F3 waits for a READ, or a WRITE waits for F2
 *
 * The one idea: only the first line of a run waits for other lines, and other lines wait only for
 * its last. So a device may take the run as one command, issued in place of its first line and
 * retired when its last line ends. Every wait of the program stays as exact as before. The lines do
 * the same in every step, since they name cells and places in arenas, and nothing that belongs to
 * one step.
 *
 * Pure: reads only the program. */
#ifndef COH_ENGINE_LINE_RUNS_H
#define COH_ENGINE_LINE_RUNS_H

#include "base/check.h"
#include "planner/program.h"

/* Lines `first` to `first` + `count` - 1 of the compute lane, by ordinal. */
typedef struct coh_line_run {
    uint32_t first, count;
} coh_line_run;

/* Finds the longest possible runs, in order; a run may have one line. The caller frees the table
 * (coh_free). Fails: COH_ERR_MEMORY. */
coh_status coh_line_runs_find(const coh_program *program, coh_line_run **out_runs,
                              uint32_t *out_count);

#endif
