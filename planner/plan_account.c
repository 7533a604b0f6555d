/* Sums a plan's memory per tier by purpose: parameters, gradients, states, activations, workspaces.
 * The numbers come from coh_forecast_fullest (forecast.h). */
#include <string.h>

#include "planner/plan.h"

static coh_plan_purpose purpose_of(coh_stream stream)
{
    switch (stream) {
    case COH_STREAM_WORK:
        return COH_PLAN_PARAMETERS;
    case COH_STREAM_GRAD:
        return COH_PLAN_GRADIENTS;
    case COH_STREAM_STATE:
        return COH_PLAN_STATES;
    case COH_STREAM_ACTIVATION:
    case COH_STREAM_ACTIVATION_GRAD:
    case COH_STREAM_SAVED:
    case COH_STREAM_CACHE:
    case COH_STREAM_KEPT:
        return COH_PLAN_ACTIVATIONS;
    case COH_STREAM_SCRATCH:
    case COH_STREAM_CELLS:
    case COH_STREAM_PARTIALS:
    case COH_STREAM_INPUT:
    case COH_STREAM_LOSS:
    case COH_STREAM_OUTPUT:
    case COH_STREAM_COUNT:
        break;
    }
    return COH_PLAN_WORKSPACES;
}

coh_status coh_plan_memory(const coh_plan *plan,
                           uint64_t out_bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES])
{
    COH_NEED(plan);
    COH_NEED(out_bytes);
    uint64_t streams[COH_TIER_COUNT][COH_STREAM_COUNT];
    COH_TRY(coh_forecast_fullest(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                                 streams));
    memset(out_bytes, 0, COH_TIER_COUNT * sizeof(out_bytes[0]));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
            out_bytes[tier][purpose_of((coh_stream)stream)] += streams[tier][stream];
    return COH_OK;
}
