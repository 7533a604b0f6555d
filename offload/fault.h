/* fault.h - the inside of coh_store_fault_plan: which operation of a store gets which fault.
 *
 * A store copies the plan when it opens and asks once per submitted request. Fields are decided
 * from (seed, operation number) alone. */
#ifndef COH_OFFLOAD_FAULT_H
#define COH_OFFLOAD_FAULT_H

#include <stdint.h>

#include "offload/store.h"

/* What happens to one operation; all zero: nothing. */
typedef struct coh_fault {
    int fail_errno;    /* it fails with this and transfers nothing */
    int cut_short;     /* its first transfer stops half-way */
    int flips;         /* one bit, `flip_random` picks it */
    int late;          /* completes after all others in flight */
    uint32_t delay_us; /* before its first transfer */
    uint64_t flip_random;
    uint64_t order; /* with reorder: smaller completes first */
} coh_fault;

/* At a store's open: the plan for it (all faults off if none is installed), and the counters start
 * again from 0. */
void coh_fault_begin(coh_fault_plan *out_plan);
/* Is any plan installed? */
int coh_fault_planned(void);
/* Numbers one operation and says what happens to it. Any thread. */
coh_fault coh_fault_take(const coh_fault_plan *plan);
/* The one-off fault was carried out. */
void coh_fault_hit(void);

#endif
