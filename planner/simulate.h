/* simulate.h - walk a program with a clock.
 *
 * Every instruction has a time that it takes alone (price.h). A mover of depth > 1 overlaps
 * latencies and shares its link's rate: it ends at latency + the time at which the link has
 * served all bytes requested up to it, never at bytes / rate per instruction in flight. Lanes
 * retire in order. Busy lanes slow one another as the profile's contention says; the mode
 * selects how. Pure; 64-bit nanoseconds; the same bits on every machine. */
#ifndef COH_PLANNER_SIMULATE_H
#define COH_PLANNER_SIMULATE_H

#include "planner/price.h"
#include "planner/profile.h"
#include "planner/program.h"

typedef enum coh_contention {
    COH_CONTENTION_NONE, /* no lane slows another */
    /* a lane runs at the product of its relative speeds next to the lanes that are busy at that
     * moment */
    COH_CONTENTION_FLUID,
    COH_CONTENTION_ALL /* each lane is always as slow as any other lanes of the program make it */
} coh_contention;

typedef struct coh_simulation {
    uint64_t period_ns; /* body: from one run to the next once settled. Others: the whole run */
    uint64_t first_ns;  /* duration of a first run */
    uint64_t busy_ns[COH_LANE_COUNT]; /* slowdown included */
    /* time in which the compute lane is idle waiting for this lane */
    uint64_t exposed_ns[COH_LANE_COUNT];
    uint64_t link_bytes[COH_LANE_COUNT];
} coh_simulation;

/* Walks a verified program. `service_ns`: the time that each instruction takes alone, without
 * link latency. `out_instruction_ns`: NULL, or 2 * instruction_count numbers: start and end of
 * each instruction in the settled run, relative to the earliest start. Fails: COH_ERR_MEMORY;
 * COH_ERR_ARGUMENT: the time exceeds the clock's range. */
coh_status coh_simulate(const coh_program *program, const coh_profile *profile,
                        const uint64_t *service_ns, coh_contention contention,
                        coh_simulation *out_simulation, uint64_t *out_instruction_ns);

/* As coh_simulate, with the pricer's medians and fluid contention. */
coh_status coh_simulate_priced(const coh_layout *layout, const coh_program *program,
                               const coh_pricer *pricer, coh_simulation *out_simulation,
                               uint64_t *out_instruction_ns);

#endif
