/* line_times.h - what the lines of the body take, beside what was predicted for them.
 *
 *     lane    |--- line 3 ---|     |- line 4 -|          a line's time: from its begin, or the end
 *                 |-- line 5 (in flight with 4) --|      of the line before if that is later, to
 *                                  |----- 5 ------|      its own end
 *
 * So the times of a lane's lines add up to the time in which the lane is busy, waits left out, and
 * the same rule gives the predicted ones from a simulation. Of each line the times in the last
 * COH_TIMES_KEPT runs are kept: the median of the runs survives one that something else disturbed.
 * The first run after a quiet point does not count: memory is cold, and nothing is pending.
 *
 * Threads: each lane writes its own lines' samples. They are read at quiet points. */
#ifndef COH_ENGINE_LINE_TIMES_H
#define COH_ENGINE_LINE_TIMES_H

#include "base/check.h"
#include "planner/plan.h"

enum { COH_TIMES_KEPT = 7 };

typedef struct coh_line_samples {
    float seconds[COH_TIMES_KEPT];
    uint32_t count; /* that were taken; the last COH_TIMES_KEPT are there */
} coh_line_samples;

typedef struct coh_line_times {
    coh_line_samples *samples; /* by line of the body */
    float *predicted_s;        /* of each line, in the settled run */
    uint32_t line_count;
    uint64_t begin_ns[COH_LANE_COUNT]; /* of the line at work; 0: it does not count. The lane's */
    uint64_t end_ns[COH_LANE_COUNT];   /* of the line before. The lane's own */
} coh_line_times;

/* Of the plan's body; a plan without one gets none. Fails: COH_ERR_MEMORY. */
coh_status coh_line_times_init(coh_line_times *out_times, const coh_plan *plan);
void coh_line_times_fini(coh_line_times *times); /* accepts a zeroed one */

/* The line at work on `lane` is done. */
void coh_line_times_add(coh_line_times *times, coh_lane lane, uint32_t line);
/* `count` lines at work on `lane` are done, which went out as one: what they took is shared out as
 * it was predicted. */
void coh_line_times_share(coh_line_times *times, coh_lane lane, const uint32_t *lines,
                          uint32_t count);
#endif
