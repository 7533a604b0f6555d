/* The process's fault plan, and the random choice of a fault from seed and operation number. Read
 * fault.h first; store_threads.c injects the faults. */
#include "offload/fault.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/rng.h"

/* The plan for stores opened later. A test sets it before it opens one, so no lock is needed. */
static coh_fault_plan installed_plan;
static int plan_is_installed;
/* For the store opened last: lane threads add, the test reads. */
static _Atomic uint64_t operation_count;
static _Atomic int fault_was_hit;

static const coh_fault_plan no_faults = {
    .fail_at = -1, .short_at = -1, .flip_at = -1, .late_at = -1
};

void coh_store_fault_plan(const coh_fault_plan *plan)
{
    plan_is_installed = plan != NULL;
    installed_plan = plan != NULL ? *plan : no_faults;
    atomic_store(&operation_count, 0);
    atomic_store(&fault_was_hit, 0);
}

uint64_t coh_store_fault_operations(void)
{
    return atomic_load(&operation_count);
}

int coh_store_fault_was_hit(void)
{
    return atomic_load(&fault_was_hit);
}

int coh_fault_planned(void)
{
    return plan_is_installed;
}

void coh_fault_begin(coh_fault_plan *out_plan)
{
    *out_plan = plan_is_installed ? installed_plan : no_faults;
    atomic_store(&operation_count, 0);
    atomic_store(&fault_was_hit, 0);
}

void coh_fault_hit(void)
{
    atomic_store(&fault_was_hit, 1);
}

coh_fault coh_fault_take(const coh_fault_plan *plan)
{
    uint64_t number = atomic_fetch_add(&operation_count, 1);
    int64_t n = (int64_t)number;
    coh_fault fault = { 0 };
    if (n == plan->fail_at)
        fault.fail_errno = plan->fail_errno != 0 ? plan->fail_errno : EIO;
    fault.cut_short = n == plan->short_at;
    fault.flips = n == plan->flip_at;
    fault.late = n == plan->late_at;
    fault.flip_random = coh_rng_u64(plan->seed, 0, number);
    if (plan->delay_most_us > 0)
        fault.delay_us =
            (uint32_t)coh_rng_below(plan->seed, 1, number, (uint64_t)plan->delay_most_us + 1);
    fault.order = plan->reorder ? coh_rng_u64(plan->seed, 2, number) : number;
    return fault;
}
