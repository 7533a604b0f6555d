/* search.h - choose the decisions of a plan: a small portfolio, priced by the simulator.
 *
 * Everything in memory comes first. Then streaming: passes over split rows and recomputation, from
 * the best of them one decision varied at a time. Not a search with bounds: about twenty
 * schedules. */
#ifndef COH_PLANNER_SEARCH_H
#define COH_PLANNER_SEARCH_H

#include "planner/plan.h"

/* Fills plan->decisions and smallest_device_bytes.
 * Fails: COH_ERR_FULL: nothing fits; the sentence says what would. COH_ERR_MEMORY. */
coh_status coh_plan_search(coh_plan *plan);

#endif
