/* lanes.h - kinds of lanes, which several layers ask for. */
#ifndef COH_BASE_LANES_H
#define COH_BASE_LANES_H

#include "cohobate/tier.h"

/* Does the lane carry exchanges between ranks? */
static inline int coh_lane_is_comm(coh_lane lane)
{
    return lane == COH_LANE_COMM0 || lane == COH_LANE_COMM1;
}

#endif
