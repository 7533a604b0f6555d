/* attempt.h - a plan that was made, or why there is none: of several the best is kept, or the
 * failure that says most. Threads: one at a time. */
#ifndef COH_PLANNER_ATTEMPT_H
#define COH_PLANNER_ATTEMPT_H

#include "cohobate/refusal.h"
#include "planner/plan.h"

typedef struct coh_attempt {
    coh_plan *plan;
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
    coh_refusal refusal; /* struct_bytes 0: the failure is none */
} coh_attempt;

/* Records `status`, and of a failure the thread's last sentence. */
void coh_attempt_end(coh_attempt *attempt, coh_status status);

/* Returns 1 if it failed for another reason than the size of the plan. */
int coh_attempt_is_fault(const coh_attempt *attempt);

/* Fails as the attempt did. */
coh_status coh_attempt_fail(const coh_attempt *attempt);

/* Returns the fewest bytes that a step was found to write to the drive, if the refusal is that
 * wear_bytes is less; else 0. */
uint64_t coh_refusal_worn_bytes(const coh_refusal *refusal);

/* Returns the predicted time of a step; UINT64_MAX without a plan. */
uint64_t coh_plan_period_ns(const coh_plan *plan);

#endif
