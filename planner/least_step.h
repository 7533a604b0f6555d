/* least_step.h - the least possible step over all decisions: no plan of this graph, these options
 * and this machine is faster, whatever it recomputes, keeps, moves or updates on the host.
 *
 * bounds.h bounds one set of decisions; this bounds all of them, by a linear programme. A step has
 * up to four phases, and memory is counted where they meet:
 *
 *     begin          turn            begin        turn
 *       |  forward     |   backward    |  forward   |   backward  ...  CLIP |
 *       |  AHEAD       |   EARLIER     |  BETWEEN   |   BACK                |
 *
 * AHEAD is the forward that applies the deferred updates: of the first micro-batch, or of all in a
 * sweep by layers. BETWEEN is the forward of the other micro-batches. BACK is the last backward,
 * in which alone gradients become final, and EARLIER the others. A byte that is read in a phase
 * either lies in memory when the phase begins, or crosses the link within it. The first turn is
 * counted apart from the mean of the others: a deferred update runs before it, so changed content
 * lies in memory there, or has left in AHEAD.
 *
 * The variables are the shares of each parameter, state, gradient and activation that lie in memory
 * at each boundary, the share of each block that is recomputed, and the share that the host
 * updates. Shares are real numbers, equal blocks are one block, transfers overlap perfectly within
 * a phase, and device and host together are one memory over the drive. Each of these only lowers
 * the result: averaged over its runs, every settled schedule is a solution. */
#ifndef COH_PLANNER_LEAST_STEP_H
#define COH_PLANNER_LEAST_STEP_H

#include "planner/plan.h"

/* Fails: COH_ERR_MEMORY, and as coh_layout_build. */
coh_status coh_least_step_find(const coh_graph *graph, const coh_plan_options *options,
                               const coh_pricer *pricer, coh_least_step *out_least);

/* Computes plan->least, unless it is known. Fails: as coh_least_step_find. */
coh_status coh_least_step_of(coh_plan *plan);

#endif
