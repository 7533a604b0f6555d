#include "benchmarks/measure.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double timed(void (*run)(void *), void *argument)
{
    uint64_t begin = coh_clock_ns();
    run(argument);
    return (double)(coh_clock_ns() - begin) * 1e-9;
}

void measure_pairs(void (*ours)(void *), void (*ceiling)(void *), void *argument,
                   measure_result *out_result)
{
    double a[MEASURE_PAIRS], b[MEASURE_PAIRS], ratios[MEASURE_PAIRS];
    ours(argument);
    ceiling(argument);
    for (int i = 0; i < MEASURE_PAIRS; i++) {
        a[i] = timed(ours, argument);
        b[i] = timed(ceiling, argument);
        ratios[i] = b[i] / a[i];
    }
    qsort(a, MEASURE_PAIRS, sizeof(*a), compare);
    qsort(b, MEASURE_PAIRS, sizeof(*b), compare);
    qsort(ratios, MEASURE_PAIRS, sizeof(*ratios), compare);
    *out_result = (measure_result){ .ours_s = a[MEASURE_PAIRS / 2],
                                    .ceiling_s = b[MEASURE_PAIRS / 2],
                                    .ratio = ratios[MEASURE_PAIRS / 2],
                                    .ratio_low = ratios[0],
                                    .ratio_high = ratios[MEASURE_PAIRS - 1] };
}

void measure_print(const char *name, const char *shape, double work, const char *unit,
                   const measure_result *result)
{
    fprintf(stderr, "%-10s %-22s %8.1f %s/s, ceiling %8.1f, ratio %.2f (%.2f..%.2f, %d pairs)\n",
            name, shape, work / result->ours_s, unit, work / result->ceiling_s, result->ratio,
            result->ratio_low, result->ratio_high, MEASURE_PAIRS);
    printf("{\"benchmark\": \"%s\", \"shape\": \"%s\", \"unit\": \"%s/s\", \"median\": %.4g, "
           "\"ceiling\": "
           "%.4g, \"ratio\": %.3f, \"ratio_low\": %.3f, \"ratio_high\": %.3f, \"pairs\": %d}\n",
           name, shape, unit, work / result->ours_s, work / result->ceiling_s, result->ratio,
           result->ratio_low, result->ratio_high, MEASURE_PAIRS);
}
