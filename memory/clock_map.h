/* clock_map.h - maps the clock of a device to the host's.
 *
 *   host     |----- h0 ------------- h1 ---------- h2 ---     pairs: the two clocks read together
 *   device   |----- d0 ------------- d1 ---------- d2 ---     (how is the caller's matter)
 *
 * The one idea: the clocks differ by an offset and by a rate that changes slowly. A time between
 * two pairs lies on the line through them, so its error is at most the larger error of the two. A
 * time outside of them lies on a line of the slope from the oldest pair to the newest one. Two
 * pairs that are close together give a wrong slope, so there it is at most COH_CLOCK_DRIFT from 1:
 * clocks of quartz differ by less.
 *
 * Threads: one at a time. Nothing is allocated. */
#ifndef COH_MEMORY_CLOCK_MAP_H
#define COH_MEMORY_CLOCK_MAP_H

#include <stdint.h>

/* Pairs that are kept: the newest ones. */
enum { COH_CLOCK_PAIRS = 64 };

/* Two clocks gain or lose at most this part of the time on each other: 100 ppm. */
#define COH_CLOCK_DRIFT 1e-4

typedef struct coh_clock_pair {
    double device_ns;           /* since any fixed moment */
    uint64_t host_ns, error_ns; /* the host's time is within host_ns +- error_ns */
} coh_clock_pair;

typedef struct coh_clock_map {
    coh_clock_pair pairs[COH_CLOCK_PAIRS]; /* number n is at [n % COH_CLOCK_PAIRS] */
    uint64_t pair_count;                   /* added so far */
} coh_clock_map;

/* Adds a pair. Ignores it if one of its times is not later than in the newest pair. */
void coh_clock_map_add(coh_clock_map *map, const coh_clock_pair *pair);
/* Returns the newest pair; NULL: there is none. */
const coh_clock_pair *coh_clock_map_newest(const coh_clock_map *map);
/* Returns the host's time of a moment of the device. Needs a pair; with one pair only, both clocks
 * count as equally fast. */
uint64_t coh_clock_map_host_ns(const coh_clock_map *map, double device_ns);
/* Returns a bound of the error of coh_clock_map_host_ns at a moment of the device: the largest
 * error of the pairs that are kept; outside of them also twice COH_CLOCK_DRIFT of the time to the
 * nearest one. Needs a pair. */
uint64_t coh_clock_map_error_ns(const coh_clock_map *map, double device_ns);

#endif
