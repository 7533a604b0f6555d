/* draws.h - a deterministic sequence of random numbers: the same in every run of a test. */
#ifndef COH_TESTS_PLANNER_DRAWS_H
#define COH_TESTS_PLANNER_DRAWS_H

#include "base/rng.h"

/* Each test has its own stream, each case of the test its own seed. */
typedef struct draws {
    uint64_t stream, seed, n;
} draws;

/* From `least` to `most`, both included. */
static inline int draw(draws *d, int least, int most)
{
    return least + (int)coh_rng_below(d->stream, d->seed, d->n++, (uint64_t)(most - least + 1));
}

#endif
