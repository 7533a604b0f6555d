/* fluid.h - a clock on which the lanes of a program serve their work.
 *
 * The one idea: between two events the set of busy lanes, and so every lane's speed, is constant.
 * A lane is busy while it computes or moves bytes, not during a link's latency:
 *
 *   issue    work enters the lane; at most `depth` pieces are in it
 *   start    the lane serves its oldest piece, at its speed next to the lanes busy at that moment
 *   served   the link is free for the next piece
 *   retired  `latency` later, in order
 *
 * The caller decides what is issued and when: the simulator by the waits of a program (simulate.c),
 * a rehearsal by the executor's commands (engine/phantom.c). Pure. */
#ifndef COH_PLANNER_FLUID_H
#define COH_PLANNER_FLUID_H

#include "planner/profile.h"
#include "planner/program.h"

enum { COH_LANE_SETS = 1 << COH_LANE_COUNT };

typedef struct coh_fluid_work {
    double service_ns; /* alone, without the latency */
    double latency_ns; /* of the link; 0: none */
    /* by which it slows the compute lane (coh_link_interference_ns) */
    double interference_ns;
    double served_ns; /* when it was served */
} coh_fluid_work;

typedef struct coh_fluid_lane {
    uint64_t depth;
    uint64_t issued, served, retired; /* pieces of work */
    double remaining_ns, began_ns;    /* of the piece in service */
    coh_fluid_work *work;             /* by number modulo depth */
} coh_fluid_lane;

typedef struct coh_fluid {
    coh_fluid_lane lanes[COH_LANE_COUNT];
    double speed[COH_LANE_SETS][COH_LANE_COUNT]; /* by set of busy lanes */
    unsigned busy;                               /* set of lanes in service */
    unsigned under_way; /* set of lanes with work that was started and is not retired */
    int slows;          /* lanes slow one another */
    double now_ns;
} coh_fluid;

/* Prepares zeroed lanes for a program. `slows`: lanes slow one another. Fails: COH_ERR_MEMORY;
 * *fluid can then be released. */
coh_status coh_fluid_init(coh_fluid *fluid, const coh_program *program, const coh_profile *profile,
                          int slows);
void coh_fluid_fini(coh_fluid *fluid); /* accepts a zeroed struct */

static inline int coh_fluid_has_room(const coh_fluid *fluid, int lane)
{
    return fluid->lanes[lane].issued - fluid->lanes[lane].retired < fluid->lanes[lane].depth;
}

/* Adds work to a lane that has room: `bytes` over `link`; NULL: none. A lane retires its work in
 * order, so links of other latencies may follow one another only on a lane of depth 1, as those of
 * exchanges are. */
void coh_fluid_issue(coh_fluid *fluid, int lane, double service_ns, const coh_link_profile *link,
                     uint64_t bytes);
/* Starts the lane's oldest waiting work unless the lane is busy. Lanes are started in their
 * order, after everything that can be issued now was. */
void coh_fluid_start(coh_fluid *fluid, int lane);

typedef struct coh_fluid_event {
    double when_ns;
    int lane; /* -1: nothing is under way */
    /* 1: the lane has served a piece of work, and without latency retired it. 0: it has retired
     * one */
    int is_service;
} coh_fluid_event;

coh_fluid_event coh_fluid_next(const coh_fluid *fluid);
/* Moves the clock to the event, which coh_fluid_next returned. */
void coh_fluid_happen(coh_fluid *fluid, const coh_fluid_event *next);

#endif
