/* Names of tiers, lanes and levels, as printed everywhere. cohobate/tier.h describes them. */
#include "cohobate/tier.h"

const char *coh_tier_name(coh_tier tier)
{
    static const char *const names[COH_TIER_COUNT] = { "device", "host", "disk" };
    return (unsigned)tier < COH_TIER_COUNT ? names[tier] : "unknown";
}

const char *coh_lane_name(coh_lane lane)
{
    static const char *const names[COH_LANE_COUNT] = { "compute", "h2d",  "d2h",   "read",
                                                       "write",   "host", "comm0", "comm1" };
    return (unsigned)lane < COH_LANE_COUNT ? names[lane] : "unknown";
}

const char *coh_link_level_name(coh_link_level level)
{
    static const char *const names[COH_LEVEL_COUNT] = { "self", "pair", "node", "world" };
    return (unsigned)level < COH_LEVEL_COUNT ? names[level] : "unknown";
}
