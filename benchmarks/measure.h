/* measure.h - the method of every benchmark here: A and B in turns within one process, at least
 * seven pairs, the median of the ratios, with the spread. A ratio is meaningful on a machine whose
 * speed changes between runs; a time is not.
 *
 *     ours | ceiling | ours | ceiling | ...      ratio i = ceiling i / ours i      their median
 *
 * A turn consists of untimed calls of one side for 20 ms, then timed calls for 30 ms, or one longer
 * call: by then the other side's threads sleep, and its own have found their cores.
 *
 * If a side needs its own process (PyTorch, a run under a budget), the process is a worker: it
 * waits for "run <count>" on standard input and answers with one JSON line, so that workers can
 * take turns (benchmarks/measure.py). */
#ifndef COH_BENCHMARKS_MEASURE_H
#define COH_BENCHMARKS_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/world.h"

enum { MEASURE_PAIRS = 9 };

/* Exit code of a program whose ceiling is missing on this machine. */
enum { MEASURE_ABSENT = 77 };

typedef struct measure_result {
    double ours_s, ceiling_s;            /* medians */
    double ratio, ratio_low, ratio_high; /* ceiling / ours: 1 is the ceiling; median, least, most */
    double ours_turns_s[MEASURE_PAIRS], ceiling_turns_s[MEASURE_PAIRS]; /* in order of time */
} measure_result;

/* Runs ours and ceiling in turns, after one unmeasured call of each; each call must do the same
 * work. Seconds in the result are per call. */
void measure_pairs(void (*ours)(void *), void (*ceiling)(void *), void *argument,
                   measure_result *out_result);

/* One of any number of sides. A turn is untimed calls (0 s: none), then timed ones, each for at
 * least the given seconds. */
typedef struct measure_side {
    void (*run)(void *);
    void *argument;
    double untimed_s, timed_s;
} measure_side;

/* Runs `count` sides in turns, MEASURE_PAIRS times; gives the seconds per call, for every turn.
 * There is no call before, so first-call costs should be paid already. */
void measure_sides(const measure_side sides[], int count, double out_s[][MEASURE_PAIRS]);

/* Compares two of them: times of one call, which must do equal work on both sides. */
void measure_compare(const double ours_s[MEASURE_PAIRS], const double ceiling_s[MEASURE_PAIRS],
                     measure_result *out_result);

/* Prints one line for people and one JSON object for machines, with the seconds of every turn.
 * `work` is per call, in `unit` (GFLOP, GB). */
void measure_print(const char *name, const char *shape, double work, const char *unit,
                   const measure_result *result);

/* Further references of a row; 0: none. */
typedef struct measure_aims {
    double goal; /* for the ratio; the row reports it as missed if at most one pair reaches it */
    double roof; /* work per second, in the row's unit: the row reports its fraction of it */
} measure_aims;
void measure_print_aims(const char *name, const char *shape, double work, const char *unit,
                        const measure_result *result, const measure_aims *aims);

/* Returns the least time of `count` runs after an unmeasured one, in seconds: for a ceiling. */
double measure_best(int count, void (*run)(void *), void *argument);

/* ---- what memory can do ---- */

/* Copies `bytes` (a multiple of 64, both ends 64-byte aligned) with non-temporal stores, the widest
 * that the processor has. These avoid reading each cache line that is written, so the copy is the
 * roof of every pass that writes more than a cache holds. */
void measure_copy_past_caches(void *to, const void *from, size_t bytes);

/* Returns the sum of the words in `bytes` (a multiple of 64): reads at memory speed and does little
 * else. */
uint64_t measure_read(const void *from, size_t bytes);

/* Returns the size of the largest cache of the first core, as the system reports it; 32 MiB if
 * unknown. Memory benchmarks use tensors of a multiple of this size. */
size_t measure_last_cache_bytes(void);

/* ---- workers ---- */

enum { MEASURE_RUNS_MOST = 64 };

/* Calls run(argument, count) for every line "run <count>" of standard input, 1 <= count <=
 * MEASURE_RUNS_MOST, until the input ends. Returns 0, or 1 if run returned 1 or a line is
 * invalid. */
int measure_serve(int (*run)(void *argument, int count), void *argument);

/* As measure_serve, on all ranks of a world together: rank 0 reads the lines, and the others run as
 * often. */
int measure_serve_ranks(coh_world *world, int (*run)(void *argument, int count), void *argument);

#endif
