/* simulate.h - walk a program with a clock.
 *
 * Every line has a time that it takes alone (price.h). A mover of depth > 1 overlaps latencies and
 * shares its link's rate: it is done at latency + the time at which the link has served all bytes
 * asked for up to it, never bytes / rate per line in flight. Lanes retire in order. Lanes that meet
 * slow one another as the profile's contention says; how, is the mode. Pure; 64-bit nanoseconds;
 * the same bits everywhere. */
#ifndef COH_PLANNER_SIMULATE_H
#define COH_PLANNER_SIMULATE_H

#include "planner/price.h"
#include "planner/profile.h"
#include "planner/program.h"

typedef enum coh_contention {
    COH_CONTENTION_NONE,  /* no lane slows another */
    COH_CONTENTION_FLUID, /* a lane runs at the product of its parts of speed beside the lanes that
                             are busy at that moment */
    COH_CONTENTION_ALL    /* as if every other lane of the program were always busy */
} coh_contention;

typedef struct coh_simulation {
    uint64_t period_ns; /* body: from one run to the next once settled. Others: the whole */
    uint64_t first_ns;  /* duration of a first run */
    uint64_t busy_ns[COH_LANE_COUNT]; /* slowed as it was */
    /* time in which the compute lane stands still waiting for this lane */
    uint64_t exposed_ns[COH_LANE_COUNT];
    uint64_t link_bytes[COH_LANE_COUNT];
    uint64_t peak_bytes[COH_TIER_COUNT]; /* counted from extents as they are entered and left */
    uint64_t bound_ns; /* no schedule on these resources, in this mode, can be faster */
    /* the lanes that set it; the second COH_LANE_COUNT where the first does so alone */
    coh_lane bound_lane, bound_beside;
} coh_simulation;

/* `service_ns`: what each line takes alone, a link's latency apart. `out_line_ns`: NULL, or
 * 2 * line_count numbers: start and end of each line in the settled run, counted from the earliest
 * start among them.
 * Fails: COH_ERR_MEMORY; COH_ERR_ARGUMENT: it would last for more years than a clock holds. The
 * program must be verified. */
coh_status coh_simulate(const coh_layout *layout, const coh_program *program,
                        const coh_profile *profile, const uint64_t *service_ns,
                        coh_contention contention, coh_simulation *out_simulation,
                        uint64_t *out_line_ns);

/* The same with the pricer's medians, fluid. */
coh_status coh_simulate_priced(const coh_layout *layout, const coh_program *program,
                               const coh_pricer *pricer, coh_simulation *out_simulation);

/* The least time for two lanes with work for x and y alone, that run at a and b of their speed
 * while both are busy. */
double coh_simulate_pair_least(double x, double y, double a, double b);

#endif
