/* instruction_runs.h - finds runs of the compute lane's instructions that may be issued as one
 * command.
 *
 *   compute   FEED | F0 F1 F2 | F3 F4 B4 N4 | CLIP | U4 ...
 *                             ^ F3 waits for a READ, or a WRITE waits for F2
 *
 * The one idea: only the first instruction of a run waits for other instructions, and other
 * instructions wait only for its last. So a device may take the run as one command, issued in place
 * of its first instruction and retired when its last instruction ends. Every wait of the program
 * stays as exact as before. The instructions do the same in every step, since they name cells and
 * places in arenas, and nothing that belongs to one step.
 *
 * Pure: reads only the program. */
#ifndef COH_ENGINE_INSTRUCTION_RUNS_H
#define COH_ENGINE_INSTRUCTION_RUNS_H

#include "base/check.h"
#include "planner/program.h"

/* Instructions `first` to `first` + `count` - 1 of the compute lane, by ordinal. */
typedef struct coh_instruction_run {
    uint32_t first, count;
} coh_instruction_run;

/* Finds the longest possible runs, in order; a run may have one instruction. The caller frees
 * the table (coh_free). Fails: COH_ERR_MEMORY. */
coh_status coh_instruction_runs_find(const coh_program *program, coh_instruction_run **out_runs,
                                     uint32_t *out_count);

#endif
