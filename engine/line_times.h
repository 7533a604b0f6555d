/* line_times.h - the measured times of the body's lines, next to their predicted times.
 *
 *    lane    |--- line 3 ---|     |- line 4 -|          a line's time: from its begin, or the end
 *                |-- line 5 (in flight with 4) --|      of the line before if that is later, to
 *                                 |----- 5 ------|      its own end
 *
 * So the times of a lane's lines add up to the time in which the lane is busy, without waits. The
 * same rule gives the predicted times from a simulation. For each line the times of the last
 * COH_TIMES_KEPT runs are kept: their median is robust against one disturbed run. The first run
 * after a quiet point does not count: memory is cold, and nothing is pending.
 *
 * Threads: each lane writes its own begin, end and samples. They are read at quiet points. */
#ifndef COH_ENGINE_LINE_TIMES_H
#define COH_ENGINE_LINE_TIMES_H

#include "base/check.h"
#include "planner/plan.h"

enum { COH_TIMES_KEPT = 7 };

typedef struct coh_line_samples {
    float seconds[COH_TIMES_KEPT];
    uint32_t count; /* samples taken; the last COH_TIMES_KEPT are kept */
} coh_line_samples;

typedef struct coh_line_times {
    coh_line_samples *samples; /* by line of the body */
    float *predicted_s;        /* of each line, in the steady state */
    uint32_t line_count;
    uint64_t begin_ns[COH_LANE_COUNT]; /* of the current line; 0: not timed */
    uint64_t end_ns[COH_LANE_COUNT];   /* of the line before */
} coh_line_times;

/* Makes tables for the lines of the plan's body; empty if the plan has no body. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_line_times_init(coh_line_times *out_times, const coh_plan *plan);
void coh_line_times_fini(coh_line_times *times); /* accepts a zeroed one */

/* Records the end of the current line on `lane`. */
void coh_line_times_add(coh_line_times *times, coh_lane lane, uint32_t line);
/* Records the end of `count` lines on `lane` that were issued as one. Their total time is divided
 * in proportion to their predicted times. */
void coh_line_times_share(coh_line_times *times, coh_lane lane, const uint32_t *lines,
                          uint32_t count);
#endif
