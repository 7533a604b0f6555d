/* schedule.h - from a graph and a set of decisions to finished programs.
 *
 *   layout.h       the objects, in chunks
 *   lower.h        compute instructions and their operands
 *   residency.h    places and moves, device over its far tier; then host over disk, on the movers
 *   holes.h        addresses that nothing uses go
 *   move_order.h   the order of a level's fetches and stores, before the next level is placed
 *   schedule.h     instructions in key order, operands, waits
 */
#ifndef COH_PLANNER_SCHEDULE_H
#define COH_PLANNER_SCHEDULE_H

#include "planner/plan.h"

/* Builds the layout and programs[COH_PROGRAM_BODY]; with `all` every program that the mode has.
 * Waits are derived; nothing is verified or priced. `microbatches`: the body has the first this
 * many of the step's micro-batches, which must run one after another; 0: all. Fails: COH_ERR_FULL
 * if the decisions cannot be met, with the reason; COH_ERR_MEMORY. On failure everything is
 * released and *out_layout is zero, except if only the outermost tier is too small: its arena_bytes
 * then give the sizes that would do. */
coh_status coh_schedule_build(const coh_graph *graph, const coh_plan_options *options,
                              const coh_profile *profile, const coh_decisions *decisions,
                              int32_t microbatches, int all, coh_layout *out_layout,
                              coh_program *out_programs);

/* Computes the device bytes below which these decisions have no schedule, and the operator of the
 * instruction that needs them (-1: none; `out_op` may be NULL). Ignores budgets. */
coh_status coh_schedule_bound(const coh_graph *graph, const coh_plan_options *options,
                              const coh_decisions *decisions, uint64_t *out_bytes, int32_t *out_op);

#endif
