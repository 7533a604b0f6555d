/* neighbours.h - from a set of decisions to better ones: one, or two that hang together, varied
 * at a time. */
#ifndef COH_PLANNER_NEIGHBOURS_H
#define COH_PLANNER_NEIGHBOURS_H

#include "planner/offers.h"

/* Steps for which room should have stood idle before something is fetched into it: as many lines as
 * the disk lanes have in flight, together. */
enum { COH_HORIZON_USUAL = 16 };

/* Has any operator a cache to give room to? */
int coh_market_has_caches(const coh_plan *plan);

/* From the market's best to a better one, until none of its neighbours is, it is within 1/500 of
 * `bound_ns`, or the evaluations are used up. Fails: as coh_market_try. */
coh_status coh_market_improve(coh_market *market, uint64_t bound_ns);

#endif
