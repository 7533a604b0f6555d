/* tier.h - tiers, where bytes are stored, lanes, which compute or move them, and levels, the kinds
 * of links between ranks: the indices of every array by tier, lane or level in plans and results.
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
    COH_LANE_COMM0,   /* between ranks of a node */
    COH_LANE_COMM1,   /* between nodes */
    COH_LANE_COUNT
} coh_lane;

/* The links between two ranks, innermost first. A level also names the block of ranks that such
 * links connect: the ranks of a pair, of a node, of the world. */
typedef enum coh_link_level {
    COH_LEVEL_SELF,  /* within one rank: no link */
    COH_LEVEL_PAIR,  /* between two dies of a package, or GPUs that share the fastest link */
    COH_LEVEL_NODE,  /* between the pairs of a machine */
    COH_LEVEL_WORLD, /* between machines */
    COH_LEVEL_COUNT
} coh_link_level;

/* Returns "device", "host" or "disk"; "unknown" for any other number. Never NULL. */
COH_API const char *coh_tier_name(coh_tier tier);
/* Returns "compute", "h2d", "d2h", "read", ...; "unknown" for any other number. Never NULL. */
COH_API const char *coh_lane_name(coh_lane lane);
/* Returns "self", "pair", "node" or "world"; "unknown" for any other number. Never NULL. */
COH_API const char *coh_link_level_name(coh_link_level level);

#ifdef __cplusplus
}
#endif
#endif
