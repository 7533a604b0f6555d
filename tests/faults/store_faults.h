/* store_faults.h - the posix and the mem store with faults: seeded, by operation number, so that a
 * loop over n finds every path of the code that uses the store.
 *
 * Each is a table (offload/store.h) that opens the real store, puts another transfer function under
 * that store's threads (a failure, a short transfer, a flipped bit, a delay), and hands completions
 * out in an order that the plan chooses. One such store is open at a time. */
#ifndef COH_TESTS_FAULTS_STORE_FAULTS_H
#define COH_TESTS_FAULTS_STORE_FAULTS_H

#include "offload/store.h"

/* Operations count reads and writes together, from 0. */
typedef struct store_fault_plan {
    uint64_t seed;
    int64_t fail_at;  /* -1: never. The operation fails with `fail_errno` (0: EIO) */
    int64_t short_at; /* -1: never. Its first transfer is cut short and must be continued */
    int64_t flip_at;  /* -1: never. One transferred bit is flipped */
    int64_t late_at;  /* -1: never. It completes after all others in flight */
    int fail_errno;
    uint32_t delay_most_us; /* each operation is delayed by a random time up to this */
    int reorder;            /* 1: complete in random order within the depth */
} store_fault_plan;

extern const coh_store_ops store_faulty_mem, store_faulty_posix;

/* Sets the plan of the store opened next (NULL: no faults); returns the number of operations of the
 * store opened last, and whether the fault was injected. */
void store_fault_plan_set(const store_fault_plan *plan);
uint64_t store_fault_operations(void);
int store_fault_was_hit(void);

#endif
