/* measure.h - how every benchmark here measures: A and B in turns within one process, at least
 * seven pairs, the median of the ratios, with the spread. A ratio survives a machine that changes
 * speed between runs; a time does not. */
#ifndef COH_BENCHMARKS_MEASURE_H
#define COH_BENCHMARKS_MEASURE_H

#include <stdint.h>

enum { MEASURE_PAIRS = 9 };

typedef struct measure_result {
    double ours_s, ceiling_s;            /* medians */
    double ratio, ratio_low, ratio_high; /* ceiling / ours: 1 is the ceiling; median, least, most */
} measure_result;

/* Runs ours and ceiling (each does the same work once) in turns, after one unmeasured turn. */
void measure_pairs(void (*ours)(void *), void (*ceiling)(void *), void *argument,
                   measure_result *out_result);

/* One line for people, one JSON object for machines. `work` per run in `unit` (GFLOP, GB). */
void measure_print(const char *name, const char *shape, double work, const char *unit,
                   const measure_result *result);

#endif
