/* neighbours.h - local search: improve a set of decisions by varying one of them, or two that
 * depend on each other, at a time. */
#ifndef COH_PLANNER_NEIGHBOURS_H
#define COH_PLANNER_NEIGHBOURS_H

#include "planner/candidates.h"

/* Usual horizon: the steps for which memory should have been unused before a fetch into it. As many
 * instructions as the disk lanes together have in flight. */
enum { COH_HORIZON_USUAL = 16 };

/* Returns 1 if some operator has an optional cache. */
int coh_candidates_have_caches(const coh_plan *plan);

/* Sets how many blocks are recomputed: the first ones if those of the set are, else evenly spread
 * ones. */
void coh_decide_recompute(const coh_graph *graph, int32_t count, coh_decisions *decisions);

/* Sets how many blocks the host updates. Without any none is late. */
void coh_decide_host_updates(int32_t count, coh_decisions *decisions);

/* Returns 1 if a search with chunks of `now` may try `bytes`: smaller ones take long to place. */
int coh_may_decide_chunk(const coh_plan *plan, uint64_t now, uint64_t bytes);

/* Moves from the candidates's best set to a better one, until no neighbour is better, the best is
 * within 1/500 of `bound_ns`, or the evaluations are used up. Fails: as coh_candidates_try. */
coh_status coh_candidates_improve(coh_candidates *candidates, uint64_t bound_ns);

/* With a host tier: tries evenly spread blocks in place of the first ones that the best set
 * recomputes, as many or fewer, at most `most` sets; from a better set goes on to still fewer and
 * to neighbours with half as many evaluations. A row of kept blocks makes activations faster than
 * the link takes them while the row runs; between recomputed blocks the link catches up. Fails: as
 * coh_candidates_try. */
coh_status coh_candidates_spread(coh_candidates *candidates, uint32_t most, uint64_t bound_ns);

/* The last stages of a search with a far tier; each goes on from a better set to neighbours, at
 * most `most` sets from each. First light operators that run again (light.h), writes to dead space
 * (COH_PATIENT_MOVED), alone and together, and half the host tier's window: from the best set with
 * cheap operators, and from the best without them, also to fewer recomputed blocks. Then the same
 * from the best set with quite another number of host updates. `bound_ns`: that of a plan without
 * the linear programme's. Fails: as coh_candidates_try. */
coh_status coh_candidates_refine(coh_candidates *candidates, uint32_t most, uint64_t bound_ns);

#endif
