/* simulate.h - walk a program with a clock.
 *
 * A compute line lasts max(flops / rate, bytes / rate) + a constant. A mover of depth > 1 overlaps
 * latencies and shares its link's rate: it is done at latency + the time at which the link has
 * served all bytes asked for up to it, never bytes / rate per line in flight. Lanes retire in
 * order. READ and WRITE share one drive: while both run each gets a part of what it gives, to first
 * order. The shared resource cores: see coh_simulate's bound. Pure; 64-bit nanoseconds; the same
 * bits everywhere. */
#ifndef COH_PLANNER_SIMULATE_H
#define COH_PLANNER_SIMULATE_H

#include "planner/profile.h"
#include "planner/program.h"

typedef struct coh_simulation {
    uint64_t period_ns; /* body: from one run to the next once settled. Others: the whole */
    uint64_t first_ns;  /* duration of a first run */
    uint64_t busy_ns[COH_LANE_COUNT];
    /* time in which the compute lane stands still waiting for this lane */
    uint64_t exposed_ns[COH_LANE_COUNT];
    uint64_t link_bytes[COH_LANE_COUNT];
    uint64_t peak_bytes[COH_TIER_COUNT]; /* counted from extents as they are entered and left */
    uint64_t bound_ns;                   /* no schedule on these resources can be faster */
    coh_lane bound_lane;                 /* the resource that sets it; COH_LANE_COUNT: cores */
    uint64_t core_ns;                    /* sum of core-seconds / cores, one of the bounds */
} coh_simulation;

/* `out_line_ns`: NULL, or 2 * line_count numbers: start and end of each line in the settled run,
 * counted from the earliest start among them.
 * Fails: COH_ERR_MEMORY. The program must be verified. */
coh_status coh_simulate(const coh_layout *layout, const coh_program *program,
                        const coh_profile *profile, coh_simulation *out_simulation,
                        uint64_t *out_line_ns);

#endif
