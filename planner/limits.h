/* limits.h - what the system lets a process have of main memory, whatever there is of it.
 *
 * A profile has two such limits, UINT64_MAX where it has none:
 *
 *     cgroup_bytes    of all memory: the arenas that stand in main memory, which are both of a host
 *                     device's (its device tier is RAM) and the host tier beside a GPU
 *     memlock_bytes   of memory that is locked: the host tier beside a GPU is pinned. A host device
 *                     locks nothing that it cannot do without. */
#ifndef COH_PLANNER_LIMITS_H
#define COH_PLANNER_LIMITS_H

#include "planner/plan.h"

/* The flag that raises a tier: what stands beside a GPU is no test-bed. */
const char *coh_tier_flag(coh_tier tier, int is_gpu);

/* Could budgets like these be had at all? What is without limit (UINT64_MAX) asks for nothing.
 * Fails: COH_ERR_FULL with the tier, the bytes short and what to do. */
coh_status coh_limits_check_budgets(const coh_profile *profile, const coh_plan_options *options);

/* Can arenas of so many bytes be had? Fails: likewise. */
coh_status coh_limits_check_arenas(const coh_profile *profile,
                                   const uint64_t arena_bytes[COH_TIER_COUNT]);

#endif
