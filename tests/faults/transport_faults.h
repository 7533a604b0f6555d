/* transport_faults.h - a transport with delays and failures, so that a loop over n finds
 * every path of the code that uses a transport.
 *
 * Puts another table under the transports of a world; each of its functions waits, fails, or calls
 * the real one. Calls of all ranks are counted together, from 0: those of ranks that are threads in
 * the order in which they come; of N processes, process p has the numbers p, p + N, p + 2N, ... The
 * scheduler decides which call of threads has a number, so a test demands the same of every
 * number. */
#ifndef COH_TESTS_FAULTS_TRANSPORT_FAULTS_H
#define COH_TESTS_FAULTS_TRANSPORT_FAULTS_H

#include "comm/transport.h"

typedef struct transport_fault_plan {
    uint64_t seed;
    int64_t fail_at;        /* -1: never. The call fails with COH_ERR_IO and does nothing */
    uint32_t delay_most_us; /* each call is delayed by a random time up to this */
    int leaves_behind;      /* 1: unbind says that a rank has not come */
} transport_fault_plan;

/* Sets the plan (NULL: no faults), before the ranks call, and puts the table under a transport. */
void transport_fault_plan_set(const transport_fault_plan *plan);
void transport_faults_put(coh_transport *transport);

/* Numbers the calls of one of several processes; without this call there is one. */
void transport_faults_number(int32_t process, int32_t process_count);

/* Returns whether the call that fails was made in this process. */
int transport_fault_was_hit(void);

#endif
