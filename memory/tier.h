/* tier.h - the places where bytes can stand and the lanes that move or compute them: names used by
 * every layer above.
 *
 *   device   what compute reads and writes. On the host device: the RAM budget.
 *   host     pinned memory beside a GPU; with --emulate-host a far tier that compute may not touch.
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

/* Which lane may touch which tier: a fact of the machine, in the profile. Bit t of reads[lane]:
 * lane may read tier t. On the host device disk <-> device is legal; with an emulated (or real)
 * host tier the disk lanes reach only the host tier. */
typedef struct coh_access_matrix {
    uint8_t reads[COH_LANE_COUNT], writes[COH_LANE_COUNT];
} coh_access_matrix;

/* "device", "host", "disk"; "compute", "h2d", ... Never NULL. */
const char *coh_tier_name(coh_tier tier);
const char *coh_lane_name(coh_lane lane);

#endif
