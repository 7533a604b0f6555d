/* nap.h - pauses between two looks at what cannot wake the thread: a GPU's counter, a message of
 * MPI, a call of NCCL. Any thread. */
#ifndef COH_BASE_NAP_H
#define COH_BASE_NAP_H

#include "base/clock.h"

/* The longest pause. */
#define COH_NAP_MOST_NS 1000000u

/* The share of the time waited so far by which a wait may end late: 1 / COH_NAP_PART. */
#define COH_NAP_PART 16

/* Sleeps for a part of the time since begin_ns: at least least_ns, at most COH_NAP_MOST_NS. Short
 * waits so end in time, and long ones leave their core to others. */
static inline void coh_nap(uint64_t begin_ns, uint64_t least_ns)
{
    uint64_t ns = (coh_clock_ns() - begin_ns) / COH_NAP_PART;
    ns = ns < least_ns ? least_ns : ns > COH_NAP_MOST_NS ? COH_NAP_MOST_NS : ns;
    (void)nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL);
}

#endif
