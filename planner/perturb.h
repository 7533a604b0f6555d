/* perturb.h - the last part of a search: random changes to several decisions at once, from the best
 * set. Neighbours (neighbours.h) differ in one decision or in two, so where no neighbour is better
 * a set that differs in three may be.
 *
 * A second start is the best of a few sets near the linear programme's solutions with light
 * operators (light.h), which the search has no starts for: unless it is much slower than the best
 * set, half of the changes begin there.
 *
 * Stochastic hill climbing: a better set is the one that is changed from then on, a worse one never
 * is. A thorough search then changes the eight fastest sets, the faster ones more often. The
 * numbers are drawn by coh_rng_below from the number of the set, so every machine tries the same
 * sets. */
#ifndef COH_PLANNER_PERTURB_H
#define COH_PLANNER_PERTURB_H

#include "planner/candidates.h"

/* Returns 1 if a step is more than a hundredth above the bound: nearer, random changes seldom gain
 * anything. */
int coh_perturb_may_gain(uint64_t step_ns, uint64_t bound_ns);

/* Tries at most `most` random sets beside those near the solutions, a few at a time, while they may
 * gain something. The best streams a training step. Fails: as coh_candidates_try. */
coh_status coh_candidates_perturb(coh_candidates *candidates, uint32_t most, uint64_t bound_ns);

/* Goes on, for a thorough search, with changes of the eight fastest sets of those tried. */
coh_status coh_candidates_perturb_leaders(coh_candidates *candidates, uint32_t most,
                                          uint64_t bound_ns);

#endif
