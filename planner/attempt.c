/* Keeps how an attempt to make a plan ended. Next: plan.c, rank_choice.c. */
#include "planner/attempt.h"

#include "base/check.h"
#include "base/refusal.h"

void coh_attempt_end(coh_attempt *attempt, coh_status status)
{
    attempt->status = status;
    attempt->refusal = (coh_refusal){ 0 };
    if (status == COH_OK)
        return;
    coh_error_save(attempt->sentence);
    attempt->refusal.struct_bytes = sizeof(attempt->refusal);
    if (!coh_last_refusal(&attempt->refusal))
        attempt->refusal.struct_bytes = 0;
}

int coh_attempt_is_fault(const coh_attempt *attempt)
{
    return attempt->status != COH_OK && attempt->status != COH_ERR_FULL &&
           attempt->status != COH_ERR_ARGUMENT;
}

coh_status coh_attempt_fail(const coh_attempt *attempt)
{
    if (attempt->refusal.struct_bytes > 0)
        (void)coh_refuse(&attempt->refusal);
    else
        (void)coh_fail(attempt->status, "%s", attempt->sentence);
    return attempt->status;
}

uint64_t coh_refusal_worn_bytes(const coh_refusal *refusal)
{
    const int is_worn = refusal->struct_bytes > 0 && refusal->reason == COH_REFUSAL_SEARCH;
    return is_worn ? refusal->needed_bytes : 0;
}

uint64_t coh_plan_period_ns(const coh_plan *plan)
{
    return plan != NULL ? plan->simulations[COH_PROGRAM_BODY].period_ns : UINT64_MAX;
}
