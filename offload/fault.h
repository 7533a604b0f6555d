/* fault.h - the implementation of coh_store_fault_plan: decides which operation of a store gets
 * which fault.
 *
 * A store copies the plan when it opens, and asks once per submitted request. All fields depend
 * only on (seed, operation number). */
#ifndef COH_OFFLOAD_FAULT_H
#define COH_OFFLOAD_FAULT_H

#include <stdint.h>

#include "offload/store.h"

/* Fault of one operation; all zero: none. */
typedef struct coh_fault {
    int fail_errno;    /* the operation fails with this and transfers nothing */
    int cut_short;     /* its first transfer stops half-way */
    int flips;         /* one bit is flipped, chosen by `flip_random` */
    int late;          /* completes after all others in flight */
    uint32_t delay_us; /* before its first transfer */
    uint64_t flip_random;
    uint64_t order; /* with reorder: smaller completes first */
} coh_fault;

/* Call it when a store opens: returns the plan for it (all faults off if none is installed) and
 * resets the counters to 0. */
void coh_fault_begin(coh_fault_plan *out_plan);
/* Returns 1 if a plan is installed. */
int coh_fault_planned(void);
/* Numbers one operation and returns its fault. Any thread. */
coh_fault coh_fault_take(const coh_fault_plan *plan);
/* Reports that the one-off fault was injected. */
void coh_fault_hit(void);

#endif
