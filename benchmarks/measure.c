#include "benchmarks/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

double measure_best(int count, void (*run)(void *), void *argument)
{
    double best = timed(run, argument);
    for (int i = 0; i < count; i++) {
        double seconds = timed(run, argument);
        best = i == 0 || seconds < best ? seconds : best;
    }
    return best;
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

/* ---- what memory can do ---- */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void copy_wide(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(to + i), _mm512_load_si512((const __m512i *)(from + i)));
    _mm_sfence();
}

static void copy_narrow(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
    _mm_sfence();
}

void measure_copy_past_caches(void *to, const void *from, size_t bytes)
{
    if (__builtin_cpu_supports("avx512f"))
        copy_wide(to, from, bytes);
    else
        copy_narrow(to, from, bytes);
}
#else
void measure_copy_past_caches(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

uint64_t measure_read(const void *from, size_t bytes)
{
    const uint64_t *words = from;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < bytes / sizeof(*words); i += 8)
        for (size_t lane = 0; lane < 8; lane++)
            sum[lane] += words[i + lane];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* ---- workers ---- */

int measure_serve(int (*run)(void *argument, int count), void *argument)
{
    char line[64];
    int count;
    while (fgets(line, sizeof(line), stdin) != NULL)
        if (sscanf(line, "run %d", &count) != 1 || count < 1 || count > MEASURE_RUNS_MOST ||
            run(argument, count) != 0 || fflush(stdout) != 0)
            return 1;
    return 0;
}
