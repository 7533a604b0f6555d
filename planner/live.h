/* live.h - the fewest bytes that exist at once in a step, over all tiers: a lower bound for every
 * schedule, computed without building one.
 *
 * An object that survives a step always exists; a gradient that does, where steps meet, and while
 * later micro-batches add to it. An activation, and the data that a forward saves for its backward,
 * exists from the instruction that writes it to the last instruction that reads it. */
#ifndef COH_PLANNER_LIVE_H
#define COH_PLANNER_LIVE_H

#include "planner/plan.h"

/* Computes the bound for schedules that recompute `recompute` and the blocks that pins add, and in
 * which `light` operators of the other blocks run again (enum coh_light); with `or_fewer`, also for
 * schedules that recompute only some of these blocks. Fails: COH_ERR_MEMORY, and as
 * coh_layout_build. */
coh_status coh_live_bytes(const coh_graph *graph, const coh_plan_options *options,
                          const coh_block_set *recompute, int light, int or_fewer,
                          uint64_t *out_bytes);

#endif
