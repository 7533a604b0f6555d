/* Lines through pairs of times of two clocks. Next: clock_map.h; device_cuda_times.c makes the
 * pairs for a GPU. */
#include "memory/clock_map.h"

#include <stddef.h>

static const coh_clock_pair *pair_at(const coh_clock_map *map, uint64_t number)
{
    return &map->pairs[number % COH_CLOCK_PAIRS];
}

static uint64_t oldest_number(const coh_clock_map *map)
{
    return map->pair_count > COH_CLOCK_PAIRS ? map->pair_count - COH_CLOCK_PAIRS : 0;
}

void coh_clock_map_add(coh_clock_map *map, const coh_clock_pair *pair)
{
    const coh_clock_pair *newest = coh_clock_map_newest(map);
    if (newest != NULL &&
        (!(pair->device_ns > newest->device_ns) || pair->host_ns <= newest->host_ns))
        return;
    map->pairs[map->pair_count++ % COH_CLOCK_PAIRS] = *pair;
}

const coh_clock_pair *coh_clock_map_newest(const coh_clock_map *map)
{
    return map->pair_count > 0 ? pair_at(map, map->pair_count - 1) : NULL;
}

/* Returns the host's nanoseconds per nanosecond of the device between two pairs. */
static double slope(const coh_clock_pair *from, const coh_clock_pair *to)
{
    return from == to ? 1.0
                      : (double)(to->host_ns - from->host_ns) / (to->device_ns - from->device_ns);
}

/* Returns the rate outside of the pairs. */
static double outer_slope(const coh_clock_map *map)
{
    const double rate = slope(pair_at(map, oldest_number(map)), pair_at(map, map->pair_count - 1));
    return rate < 1 - COH_CLOCK_DRIFT   ? 1 - COH_CLOCK_DRIFT
           : rate > 1 + COH_CLOCK_DRIFT ? 1 + COH_CLOCK_DRIFT
                                        : rate;
}

uint64_t coh_clock_map_host_ns(const coh_clock_map *map, double device_ns)
{
    const uint64_t oldest = oldest_number(map), newest = map->pair_count - 1;
    uint64_t before = newest;
    while (before > oldest && device_ns < pair_at(map, before)->device_ns)
        before--;
    const coh_clock_pair *from = pair_at(map, before);
    const int is_between = before < newest && device_ns >= from->device_ns;
    const double rate = is_between ? slope(from, pair_at(map, before + 1)) : outer_slope(map);
    const double since_ns = (device_ns - from->device_ns) * rate;
    return since_ns < -(double)from->host_ns ? 0 : from->host_ns + (uint64_t)(int64_t)since_ns;
}

uint64_t coh_clock_map_error_ns(const coh_clock_map *map, double device_ns)
{
    const uint64_t oldest = oldest_number(map), newest = map->pair_count - 1;
    const double before_ns = pair_at(map, oldest)->device_ns - device_ns;
    const double after_ns = device_ns - pair_at(map, newest)->device_ns;
    const double outside_ns = before_ns > 0 ? before_ns : after_ns > 0 ? after_ns : 0;
    uint64_t error_ns = 0;
    for (uint64_t i = oldest; i <= newest; i++)
        if (pair_at(map, i)->error_ns > error_ns)
            error_ns = pair_at(map, i)->error_ns;
    return error_ns + (uint64_t)(2 * COH_CLOCK_DRIFT * outside_ns);
}
