/* tier.h - tiers, where bytes are stored, and lanes, which compute or move them: the indices of
 * every array by tier or by lane in plans and results.
 *
 * Threads: any. */
#ifndef COHOBATE_TIER_H
#define COHOBATE_TIER_H

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where bytes are stored. */
typedef enum coh_tier {
    COH_TIER_DEVICE, /* what compute reads and writes; on the host device: the RAM budget */
    COH_TIER_HOST,   /* pinned memory next to a GPU; on the host device: an emulated far tier */
    COH_TIER_DISK,   /* the working store */
    COH_TIER_COUNT
} coh_tier;

/* Lanes work in parallel; each executes its instructions one after the other. */
typedef enum coh_lane {
    COH_LANE_COMPUTE, /* forward, backward, updates on the device */
    COH_LANE_H2D,     /* host tier to device; the first of the lanes that move bytes */
    COH_LANE_D2H,     /* device to the host tier */
    COH_LANE_READ,    /* disk to the next tier */
    COH_LANE_WRITE,   /* the next tier to disk */
    COH_LANE_HOST,    /* updates in host memory */
    COH_LANE_COMM0,   /* between devices of a node; not used yet */
    COH_LANE_COMM1,   /* between nodes; not used yet */
    COH_LANE_COUNT
} coh_lane;

/* Returns "device", "host" or "disk"; "unknown" for any other number. Never NULL. */
COH_API const char *coh_tier_name(coh_tier tier);
/* Returns "compute", "h2d", "d2h", "read", ...; "unknown" for any other number. Never NULL. */
COH_API const char *coh_lane_name(coh_lane lane);

#ifdef __cplusplus
}
#endif
#endif
