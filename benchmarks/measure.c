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

/* Returns the seconds per call over calls that take `least_s` in total; at least one call. */
static double timed(void (*run)(void *), void *argument, double least_s)
{
    const uint64_t begin = coh_clock_ns();
    double seconds;
    int64_t count = 0;
    do {
        run(argument);
        count++;
        seconds = (double)(coh_clock_ns() - begin) * 1e-9;
    } while (seconds < least_s);
    return seconds / (double)count;
}

double measure_best(int count, void (*run)(void *), void *argument)
{
    double best = timed(run, argument, 0.0);
    for (int i = 0; i < count; i++) {
        double seconds = timed(run, argument, 0.0);
        best = i == 0 || seconds < best ? seconds : best;
    }
    return best;
}

/* A library's threads spin for some milliseconds after its turn (libgomp's for about 10^5
 * iterations, OpenBLAS's as well), on a core that the next turn needs. A pause would let them
 * sleep, but then the next side's second thread is woken on the first one's core. So a side's calls
 * first run for WARM_S untimed, and then TURN_S is timed. For calls of LONG_S those milliseconds
 * are negligible, and untimed calls would only waste time. */
#define WARM_S 0.02
#define TURN_S 0.03
#define LONG_S 0.4

static double turn(const measure_side *side)
{
    if (side->untimed_s > 0.0)
        timed(side->run, side->argument, side->untimed_s);
    return timed(side->run, side->argument, side->timed_s);
}

void measure_sides(const measure_side sides[], int count, double out_s[][MEASURE_PAIRS])
{
    for (int i = 0; i < MEASURE_PAIRS; i++)
        for (int k = 0; k < count; k++) {
            const int at = (i / 2 + k) % count, side = i % 2 == 0 ? at : count - 1 - at;
            out_s[side][i] = turn(&sides[side]);
        }
}

void measure_compare(const double ours_s[MEASURE_PAIRS], const double ceiling_s[MEASURE_PAIRS],
                     measure_result *out_result)
{
    double a[MEASURE_PAIRS], b[MEASURE_PAIRS], ratios[MEASURE_PAIRS];
    *out_result = (measure_result){ 0 };
    for (int i = 0; i < MEASURE_PAIRS; i++) {
        out_result->ours_turns_s[i] = a[i] = ours_s[i];
        out_result->ceiling_turns_s[i] = b[i] = ceiling_s[i];
        ratios[i] = b[i] / a[i];
    }
    qsort(a, MEASURE_PAIRS, sizeof(*a), compare);
    qsort(b, MEASURE_PAIRS, sizeof(*b), compare);
    qsort(ratios, MEASURE_PAIRS, sizeof(*ratios), compare);
    out_result->ours_s = a[MEASURE_PAIRS / 2];
    out_result->ceiling_s = b[MEASURE_PAIRS / 2];
    out_result->ratio = ratios[MEASURE_PAIRS / 2];
    out_result->ratio_low = ratios[0];
    out_result->ratio_high = ratios[MEASURE_PAIRS - 1];
}

void measure_pairs(void (*ours)(void *), void (*ceiling)(void *), void *argument,
                   measure_result *out_result)
{
    double seconds[2][MEASURE_PAIRS];
    const double first_s = timed(ours, argument, 0.0);
    const int is_long = timed(ceiling, argument, 0.0) > LONG_S && first_s > LONG_S;
    const double untimed_s = is_long ? 0.0 : WARM_S;
    const measure_side sides[] = { { ours, argument, untimed_s, TURN_S },
                                   { ceiling, argument, untimed_s, TURN_S } };
    measure_sides(sides, 2, seconds);
    measure_compare(seconds[0], seconds[1], out_result);
}

/* Returns 1 if all pairs except at most one are below the goal. Code exactly as fast as its goal
 * has half of the pairs below, and that many of nine only one time in fifty. */
static int is_below(const measure_result *result, double goal)
{
    int below = 0;
    for (int i = 0; i < MEASURE_PAIRS; i++)
        below += !(result->ceiling_turns_s[i] >= goal * result->ours_turns_s[i]);
    return below >= MEASURE_PAIRS - 1;
}

static void print_turns(const char *name, const double seconds[MEASURE_PAIRS])
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < MEASURE_PAIRS; i++)
        printf("%s%.5g", i > 0 ? ", " : "", seconds[i]);
    printf("]");
}

void measure_print(const char *name, const char *shape, double work, const char *unit,
                   const measure_result *result)
{
    measure_print_aims(name, shape, work, unit, result, &(measure_aims){ 0 });
}

void measure_print_aims(const char *name, const char *shape, double work, const char *unit,
                        const measure_result *result, const measure_aims *aims)
{
    const double rate = work / result->ours_s, ceiling = work / result->ceiling_s;
    const int misses = aims->goal > 0.0 && is_below(result, aims->goal);
    fprintf(stderr, "%-10s %-22s %8.1f %s/s, ceiling %8.1f, ratio %.2f (%.2f..%.2f, %d pairs)",
            name, shape, rate, unit, ceiling, result->ratio, result->ratio_low, result->ratio_high,
            MEASURE_PAIRS);
    if (aims->roof > 0.0)
        fprintf(stderr, ", %.2f of the roof", rate / aims->roof);
    if (misses)
        fprintf(stderr, ", BELOW its goal of %.2f", aims->goal);
    fprintf(stderr, "\n");
    printf("{\"benchmark\": \"%s\", \"shape\": \"%s\", \"unit\": \"%s/s\", \"median\": %.4g, "
           "\"ceiling\": "
           "%.4g, \"ratio\": %.3f, \"ratio_low\": %.3f, \"ratio_high\": %.3f, \"pairs\": %d",
           name, shape, unit, rate, ceiling, result->ratio, result->ratio_low, result->ratio_high,
           MEASURE_PAIRS);
    if (aims->roof > 0.0)
        printf(", \"roof\": %.4g, \"of_roof\": %.3f", aims->roof, rate / aims->roof);
    if (aims->goal > 0.0)
        printf(", \"goal\": %.3g, \"is_below_goal\": %s", aims->goal, misses ? "true" : "false");
    print_turns("ours_turns_s", result->ours_turns_s);
    print_turns("ceiling_turns_s", result->ceiling_turns_s);
    printf("}\n");
    fflush(stdout); /* an interrupted run keeps these rows */
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

size_t measure_last_cache_bytes(void)
{
    size_t most = 0;
    for (int index = 0; index < 8; index++) {
        char path[64];
        unsigned long size = 0;
        char unit = 'B';
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            break;
        if (fscanf(file, "%lu%c", &size, &unit) >= 1)
            size <<= unit == 'K' ? 10 : unit == 'M' ? 20 : 0;
        fclose(file);
        most = size > most ? size : most;
    }
    return most > 0 ? most : (size_t)32 << 20;
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

typedef struct ranks {
    coh_world *world;
    int (*run)(void *argument, int count);
    void *argument;
} ranks;

/* Rank 0: gives the others the number, and runs. */
static int run_together(void *argument, int count)
{
    const ranks *r = argument;
    const char *shared;
    char text[16];
    snprintf(text, sizeof(text), "%d", count);
    if (coh_world_share_text(r->world, text, &shared) != COH_OK)
        return 1;
    return r->run(r->argument, count);
}

int measure_serve_ranks(coh_world *world, int (*run)(void *argument, int count), void *argument)
{
    ranks r = { world, run, argument };
    const char *shared;
    if (coh_world_rank(world) == 0) {
        const int status = measure_serve(run_together, &r);
        return status || coh_world_share_text(world, "", &shared) != COH_OK ||
               coh_world_barrier(world) != COH_OK;
    }
    for (;;) {
        if (coh_world_share_text(world, "", &shared) != COH_OK)
            return 1;
        if (*shared == '\0')
            return coh_world_barrier(world) != COH_OK;
        if (run(argument, atoi(shared)) != 0)
            return 1;
    }
}
