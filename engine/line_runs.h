/* line_runs.h - which lines of the compute lane may go out as one.
 *
 *   compute   FEED | F0 F1 F2 | F3 F4 B4 N4 | CLIP | U4 ...
 *                             ^ F3 waits for a READ, or a WRITE waits for F2
 *
 * The one idea: a run waits for others only before its first line, and others wait only for its
 * last. So a device that takes it as one command, issued where its first line stands and retired
 * where its last one ends, keeps every wait of the program as exact as it was. What its lines do is
 * the same in every step: they name cells and places of arenas, nothing of the step's own.
 *
 * Pure: reads the program alone. */
#ifndef COH_ENGINE_LINE_RUNS_H
#define COH_ENGINE_LINE_RUNS_H

#include "base/check.h"
#include "planner/program.h"

/* Lines `first` to `first` + `count` - 1 of the compute lane, by ordinal. */
typedef struct coh_line_run {
    uint32_t first, count;
} coh_line_run;

/* The longest runs there are, in their order; of one line too. The caller frees the table
 * (coh_free). Fails: COH_ERR_MEMORY. */
coh_status coh_line_runs_find(const coh_program *program, coh_line_run **out_runs,
                              uint32_t *out_count);

#endif
