/* measure.h - how every benchmark here measures: A and B in turns within one process, at least
 * seven pairs, the median of the ratios, with the spread. A ratio survives a machine that changes
 * speed between runs; a time does not.
 *
 *     ours | ceiling | ours | ceiling | ...      ratio i = ceiling i / ours i      their median
 *
 * A turn is calls of one side for 20 ms that are not timed, then calls for 30 ms that are, or one
 * that takes longer: by then the other side's threads sleep, and its own have found their cores.
 *
 * What needs a whole process a side (PyTorch, a run under a budget) is a worker: it waits for
 * "run <count>" on standard input and answers with one JSON line, so that workers can take turns
 * (benchmarks/measure.py). */
#ifndef COH_BENCHMARKS_MEASURE_H
#define COH_BENCHMARKS_MEASURE_H

#include <stddef.h>
#include <stdint.h>

enum { MEASURE_PAIRS = 9 };

/* Exit code of a program whose ceiling is not on this machine. */
enum { MEASURE_ABSENT = 77 };

typedef struct measure_result {
    double ours_s, ceiling_s;            /* medians */
    double ratio, ratio_low, ratio_high; /* ceiling / ours: 1 is the ceiling; median, least, most */
    double ours_turns_s[MEASURE_PAIRS], ceiling_turns_s[MEASURE_PAIRS]; /* in their order */
} measure_result;

/* Runs ours and ceiling (each does the same work once a call, however often it is called) in turns,
 * after one unmeasured call of each. Seconds in the result are those of one call. */
void measure_pairs(void (*ours)(void *), void (*ceiling)(void *), void *argument,
                   measure_result *out_result);

/* The same of any sides. A turn is calls that are not timed (0 s: none), then calls that are, of at
 * least so many seconds each. */
typedef struct measure_side {
    void (*run)(void *);
    void *argument;
    double untimed_s, timed_s;
} measure_side;

/* Runs `count` sides in turns, MEASURE_PAIRS times; seconds of one call, of every turn. Nothing is
 * called before, so what a first call makes should be there. */
void measure_sides(const measure_side sides[], int count, double out_s[][MEASURE_PAIRS]);

/* What two of them make: of one call's work, which must be as much for both. */
void measure_compare(const double ours_s[MEASURE_PAIRS], const double ceiling_s[MEASURE_PAIRS],
                     measure_result *out_result);

/* One line for people, one JSON object for machines, with the seconds of every turn. `work` per run
 * in `unit` (GFLOP, GB). */
void measure_print(const char *name, const char *shape, double work, const char *unit,
                   const measure_result *result);

/* What a row is held against besides; 0: nothing. */
typedef struct measure_aims {
    double
        goal; /* of the ratio; the row says where it is below it: all pairs are but one at most */
    double roof; /* work a second, in the row's unit: the row says its part of it */
} measure_aims;
void measure_print_aims(const char *name, const char *shape, double work, const char *unit,
                        const measure_result *result, const measure_aims *aims);

/* The least time of `count` runs after an unmeasured one, in seconds: for a ceiling. */
double measure_best(int count, void (*run)(void *), void *argument);

/* ---- what memory can do ---- */

/* Copies `bytes` (a multiple of 64, both ends 64-byte aligned) past the caches: non-temporal stores
 * spare the read of each line that is written, so this is the roof of every pass that writes more
 * than a cache holds. The widest stores that the processor has. */
void measure_copy_past_caches(void *to, const void *from, size_t bytes);

/* The sum of the words of `bytes` (a multiple of 64): reads at memory speed, does little else. */
uint64_t measure_read(const void *from, size_t bytes);

/* The largest cache that the first core sees, as the system has it; 32 MiB where it does not say. A
 * benchmark of memory takes tensors that are a multiple of it. */
size_t measure_last_cache_bytes(void);

/* ---- workers ---- */

enum { MEASURE_RUNS_MOST = 64 };

/* Calls run(argument, count) for every line "run <count>" of standard input, 1 <= count <=
 * MEASURE_RUNS_MOST, until it ends. Returns 0, or 1 when run did or a line is something else. */
int measure_serve(int (*run)(void *argument, int count), void *argument);

#endif
