/* Serves the work of lanes from event to event. The idea: a lane's remaining work falls at the
 * speed that the set of busy lanes gives it, and this set changes only at events. Read fluid.h
 * first. */
#include "planner/fluid.h"

#include <math.h>

#include "base/alloc.h"
#include "planner/price.h"

/* Computes each lane's relative speed for every set of lanes that may be busy together. */
static void set_speeds(coh_fluid *fluid, const coh_program *program, const coh_profile *profile,
                       int slows)
{
    unsigned used = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        used |= (unsigned)(program->lane_length[lane] > 0) << lane;
    for (unsigned set = used;; set = (set - 1) & used) {
        if (slows)
            coh_profile_speeds(profile, set, fluid->speed[set]);
        for (int lane = 0; !slows && lane < COH_LANE_COUNT; lane++)
            fluid->speed[set][lane] = 1;
        if (set == 0)
            break;
    }
}

coh_status coh_fluid_init(coh_fluid *fluid, const coh_program *program, const coh_profile *profile,
                          int slows)
{
    fluid->slows = slows;
    for (int number = 0; number < COH_LANE_COUNT; number++) {
        coh_fluid_lane *lane = &fluid->lanes[number];
        lane->depth = 1;
        if (coh_profile_is_link(profile, (coh_lane)number) && program->lane_depth[number] > 0)
            lane->depth = program->lane_depth[number];
        COH_TRY(COH_ALLOC(lane->depth, &lane->work));
    }
    set_speeds(fluid, program, profile, slows);
    return COH_OK;
}

void coh_fluid_fini(coh_fluid *fluid)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(fluid->lanes[lane].work);
}

void coh_fluid_issue(coh_fluid *fluid, int number, double service_ns, const coh_link_profile *link,
                     uint64_t bytes)
{
    coh_fluid_lane *lane = &fluid->lanes[number];
    coh_fluid_work work = { .service_ns = service_ns };
    if (link != NULL)
        work.latency_ns = (double)coh_whole_ns(link->latency_ns.p50);
    if (link != NULL && fluid->slows)
        work.interference_ns = coh_link_interference_ns(link, bytes);
    lane->work[lane->issued++ % lane->depth] = work;
}

void coh_fluid_start(coh_fluid *fluid, int number)
{
    coh_fluid_lane *lane = &fluid->lanes[number];
    if ((fluid->busy >> number & 1) || lane->served == lane->issued)
        return;
    const coh_fluid_work *work = &lane->work[lane->served % lane->depth];
    lane->remaining_ns = work->service_ns;
    lane->began_ns = fluid->now_ns;
    fluid->busy |= 1u << number;
    fluid->under_way |= 1u << number;
    if (fluid->busy & 1u << COH_LANE_COMPUTE)
        fluid->lanes[COH_LANE_COMPUTE].remaining_ns += work->interference_ns;
}

coh_fluid_event coh_fluid_next(const coh_fluid *fluid)
{
    coh_fluid_event next = { .when_ns = INFINITY, .lane = -1 };
    for (unsigned left = fluid->under_way; left != 0; left &= left - 1) {
        const int number = __builtin_ctz(left);
        const coh_fluid_lane *lane = &fluid->lanes[number];
        if (fluid->busy >> number & 1) {
            double when = fluid->now_ns + lane->remaining_ns / fluid->speed[fluid->busy][number];
            if (when < next.when_ns)
                next = (coh_fluid_event){ .when_ns = when, .lane = number, .is_service = 1 };
        }
        if (lane->retired < lane->served) {
            const coh_fluid_work *work = &lane->work[lane->retired % lane->depth];
            double when = work->served_ns + work->latency_ns;
            if (when < next.when_ns)
                next = (coh_fluid_event){ .when_ns = when, .lane = number };
        }
    }
    return next;
}

void coh_fluid_happen(coh_fluid *fluid, const coh_fluid_event *next)
{
    const double passed_ns = next->when_ns - fluid->now_ns;
    for (unsigned left = fluid->busy; left != 0; left &= left - 1) {
        const int number = __builtin_ctz(left);
        coh_fluid_lane *lane = &fluid->lanes[number];
        lane->remaining_ns -= passed_ns * fluid->speed[fluid->busy][number];
        lane->remaining_ns = lane->remaining_ns > 0 ? lane->remaining_ns : 0;
    }
    fluid->now_ns = next->when_ns;
    coh_fluid_lane *lane = &fluid->lanes[next->lane];
    coh_fluid_work *work =
        &lane->work[(next->is_service ? lane->served : lane->retired) % lane->depth];
    if (next->is_service) {
        fluid->busy &= ~(1u << next->lane);
        lane->served++;
        work->served_ns = fluid->now_ns;
    }
    if (!next->is_service || work->latency_ns == 0)
        lane->retired++;
    if (lane->retired == lane->served && !(fluid->busy >> next->lane & 1))
        fluid->under_way &= ~(1u << next->lane);
}
