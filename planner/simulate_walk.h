/* simulate_walk.h - the part common to both walks of a program: instruction after instruction
 * with fixed times (simulate.c), and event after event with varying rates (simulate_fluid.c). */
#ifndef COH_PLANNER_SIMULATE_WALK_H
#define COH_PLANNER_SIMULATE_WALK_H

#include "planner/simulate.h"

/* A body that has not settled after COH_RUNS_MOST runs is averaged over its last three: a cyclic
 * pattern longer than one run has no single period. */
enum { COH_RUNS_MOST = 6, COH_RUNS_AVERAGED = 3 };

static inline uint64_t coh_lane_latency_ns(const coh_profile *profile, int lane)
{
    return coh_whole_ns(profile->link[lane].latency_ns.p50);
}

/* The most instructions of a lane in flight; 1 for compute lanes. */
static inline uint64_t coh_lane_depth(const coh_profile *profile, const coh_program *program,
                                      int lane)
{
    int is_link = coh_profile_is_link(profile, (coh_lane)lane);
    return is_link && program->lane_depth[lane] > 0 ? program->lane_depth[lane] : 1;
}

/* Writes first_ns, period_ns, busy_ns, exposed_ns; instruction times unless out_line_ns is NULL. */
coh_status coh_walk_fluid(const coh_program *program, const coh_profile *profile,
                          const uint64_t *service_ns, coh_simulation *simulation,
                          uint64_t *out_instruction_ns);

#endif
