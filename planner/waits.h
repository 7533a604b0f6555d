/* waits.h - derive the waits of a program from the bytes that its instructions touch. */
#ifndef COH_PLANNER_WAITS_H
#define COH_PLANNER_WAITS_H

#include "planner/program.h"

/* Fills program->waits (and wait_begin/count of each instruction) from operands, lanes and depths
 * alone.
 *
 * Conflicts (write after read, write after write, read after write) are found on the bytes that
 * operands touch: ranges of an arena, ranges of the file. If the program repeats
 * (COH_PROGRAM_BODY), two bodies are processed and the second is kept, so waits on the previous run
 * are marked as carried. A wait implied by others is left out, so each remaining wait is necessary.
 * A further body would have the same waits: a wait is on its own body or the one before, since each
 * body writes again what it wrote. What is known of a body's own instructions is known through
 * instructions of this body alone, so the first one has all of it, and the second all that a wait
 * can be implied by.
 *
 * Without a wait an instruction may assume that instructions of its lane at least lane_depth before
 * it have retired, and that all waits of earlier instructions of its lane are satisfied (they were
 * issued first). It may assume nothing about its nearer neighbours. "Retired >= n" joins the
 * knowledge of all instructions <= n of that lane.
 *
 * Fails: COH_ERR_MEMORY; COH_ERR_FULL if there are too many instructions or waits. */
coh_status coh_waits_derive(const coh_layout *layout, coh_program *program);

#endif
