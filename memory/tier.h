/* tier.h - which lanes may access which tiers. The tiers and the lanes themselves, and their names,
 * are public (cohobate/tier.h). */
#ifndef COH_MEMORY_TIER_H
#define COH_MEMORY_TIER_H

#include <stdint.h>

#include "cohobate/tier.h"

/* The tiers that each lane may access: a property of the machine, in the profile. Bit t of
 * reads[lane]: the lane may read tier t. On the host device disk <-> device is legal; with an
 * emulated (or real) host tier, the disk lanes reach only the host tier. */
typedef struct coh_access_matrix {
    uint8_t reads[COH_LANE_COUNT], writes[COH_LANE_COUNT];
} coh_access_matrix;

#endif
