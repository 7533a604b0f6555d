/* limits.h - what the system allows a process of main memory, however much there is.
 *
 * A profile has two such limits, UINT64_MAX if there is none:
 *
 *     cgroup_bytes    of all memory: the arenas in main memory. On a host device both arenas count
 *                     (its device tier is RAM), with a GPU only the host tier.
 *     memlock_bytes   of locked memory: with a GPU the host tier is pinned. A host device
 *                     can run without locked memory.
 */
#ifndef COH_PLANNER_LIMITS_H
#define COH_PLANNER_LIMITS_H

#include "planner/plan.h"

/* Checks that the system allows budgets like these. A tier without limit (UINT64_MAX) counts as 0.
 * Fails: COH_ERR_FULL with the tier, the bytes short and what to do. */
coh_status coh_limits_check_budgets(const coh_profile *profile, const coh_plan_options *options);

/* Checks that the system allows arenas of these sizes. Fails: as coh_limits_check_budgets. */
coh_status coh_limits_check_arenas(const coh_profile *profile,
                                   const uint64_t arena_bytes[COH_TIER_COUNT]);

#endif
