/* instruction_times.h - the measured times of the body's instructions, next to their predicted
 * times.
 *
 *    lane    |--- 3 ---|     |--- 4 ---|        an instruction's time: from its begin, or the end
 *                              |--- 5 (in flight with 4) ---|   of the one before if that is
 *                                      |-------- 5 ---------|   later, to its own end
 *
 * So the times of a lane's instructions add up to the time in which the lane is busy, without
 * waits. This rule gives the predicted times from a simulation, too. For each instruction the times
 * of the last COH_TIMES_KEPT runs are kept: their median is robust against one disturbed run. The
 * first run after a quiet point does not count: memory is cold, and nothing is pending.
 *
 * Threads: each lane writes its own begin, end and samples; for a GPU's lanes with events, the
 * thread that takes their times. They are read at quiet points. */
#ifndef COH_ENGINE_INSTRUCTION_TIMES_H
#define COH_ENGINE_INSTRUCTION_TIMES_H

#include "base/check.h"
#include "planner/plan.h"

enum { COH_TIMES_KEPT = 7 };

typedef struct coh_instruction_samples {
    float seconds[COH_TIMES_KEPT];
    uint32_t count; /* samples taken; the last COH_TIMES_KEPT are kept */
} coh_instruction_samples;

typedef struct coh_instruction_times {
    coh_instruction_samples *samples; /* by instruction of the body */
    float *predicted_s;               /* of each instruction, in the steady state */
    uint32_t instruction_count;
    uint64_t begin_ns[COH_LANE_COUNT]; /* of the current instruction; 0: not timed */
    uint64_t end_ns[COH_LANE_COUNT];   /* of the instruction before */
} coh_instruction_times;

/* Makes tables for the instructions of the plan's body; empty if the plan has no body. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_instruction_times_init(coh_instruction_times *out_times, const coh_plan *plan);
void coh_instruction_times_fini(coh_instruction_times *times); /* accepts a zeroed one */

/* Records the end of the current instruction on `lane`. */
void coh_instruction_times_add(coh_instruction_times *times, coh_lane lane, uint32_t instruction,
                               uint64_t end_ns);
/* Records the end of `count` instructions on `lane` that were issued as one. Their total time is
 * divided in proportion to their predicted times. */
void coh_instruction_times_share(coh_instruction_times *times, coh_lane lane,
                                 const uint32_t *instructions, uint32_t count, uint64_t end_ns);
#endif
