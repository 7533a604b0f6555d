/* waits.h - derive the waits of a program from what its lines touch. */
#ifndef COH_PLANNER_WAITS_H
#define COH_PLANNER_WAITS_H

#include "planner/program.h"

/* Fill program->waits (and wait_begin/count of each line) from operands, lanes and depths alone.
 *
 * Conflicts (write after read, write after write, read after write) are found on the bytes that
 * operands touch: ranges of an arena, ranges of the file; over three bodies if the program repeats
 * (COH_PROGRAM_BODY), the third kept, so waits that reach into the run before carry. A wait that
 * others imply is left out, so each wait left is necessary.
 *
 * What a line may assume without a wait: lines of its lane at least lane_depth before it have
 * retired, and all that earlier lines of its lane waited for has happened (they were issued first).
 * Nothing about its nearer neighbours. "Retired >= n" joins the knowledge of all lines <= n of that
 * lane.
 *
 * Fails: COH_ERR_INTERNAL if a conflict reaches two bodies back; COH_ERR_MEMORY. */
coh_status coh_waits_derive(const coh_layout *layout, coh_program *program);

#endif
