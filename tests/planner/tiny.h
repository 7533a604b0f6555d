/* tiny.h - seeded instances small enough to try every schedule: as plain numbers for the oracle,
 * and as a graph, options and a profile for the planner.
 *
 * A unit is 64 KiB, a time unit is a microsecond. Items are parameters that several instructions
 * read (tied), and states that one instruction reads and changes; each is one chunk. */
#ifndef COH_TESTS_PLANNER_TINY_H
#define COH_TESTS_PLANNER_TINY_H

#include "cohobate/plan.h"
#include "planner/profile.h"
#include "tests/planner/oracle.h"

typedef enum tiny_family {
    TINY_PALINDROME, /* equal items, in the order 1..N N..1 */
    TINY_TWICE,      /* a palindrome in two micro-batches */
    TINY_UNEQUAL,    /* a palindrome of items of 1 to 3 units */
    TINY_SWEEP,      /* 1..N, repeated */
    TINY_RANDOM,     /* equal items in any order */
    TINY_CHANGED,    /* a palindrome; some instructions change a state */
    TINY_FAMILY_COUNT
} tiny_family;

const char *tiny_family_name(tiny_family family);

/* Deterministic in seed. */
void tiny_draw(tiny_family family, uint64_t seed, oracle_instance *out_instance);

/* Makes the graph of an instance, and its profile. The caller destroys the graph. */
coh_status tiny_graph(const oracle_instance *instance, coh_graph **out_graph);
void tiny_profile(const oracle_instance *instance, coh_profile *out_profile);
/* Fails: COH_ERR_MEMORY. `profile` is borrowed. */
coh_status tiny_options(const oracle_instance *instance, const coh_graph *graph,
                        const coh_profile *profile, coh_plan_options *out_options);

#endif
