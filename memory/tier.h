/* tier.h - tiers, where bytes are stored, and lanes, which move or compute them: the names that
 * every layer above uses.
 *
 *   device   what compute reads and writes. On the host device: the RAM budget.
 *   host     pinned memory next to a GPU; with --emulate-host a far tier closed to compute.
 *   disk     the working store. */
#ifndef COH_MEMORY_TIER_H
#define COH_MEMORY_TIER_H

#include <stdint.h>

typedef enum coh_tier { COH_TIER_DEVICE, COH_TIER_HOST, COH_TIER_DISK, COH_TIER_COUNT } coh_tier;

typedef enum coh_lane {
    COH_LANE_COMPUTE,
    COH_LANE_H2D,
    COH_LANE_D2H,
    COH_LANE_READ,
    COH_LANE_WRITE,
    COH_LANE_HOST,
    COH_LANE_COMM0,
    COH_LANE_COMM1,
    COH_LANE_COUNT
} coh_lane;

/* Which lane may access which tier: a property of the machine, in the profile. Bit t of
 * reads[lane]: the lane may read tier t. On the host device disk <-> device is legal; with an
 * emulated (or real) host tier, the disk lanes reach only the host tier. */
typedef struct coh_access_matrix {
    uint8_t reads[COH_LANE_COUNT], writes[COH_LANE_COUNT];
} coh_access_matrix;

/* Return "device", "host", "disk"; "compute", "h2d", ... Never NULL. */
const char *coh_tier_name(coh_tier tier);
const char *coh_lane_name(coh_lane lane);

#endif
