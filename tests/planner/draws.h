/* draws.h - numbers drawn one after the other, the same ones whenever a test is run. */
#ifndef COH_TESTS_PLANNER_DRAWS_H
#define COH_TESTS_PLANNER_DRAWS_H

#include "base/rng.h"

/* Each test has a stream of its own, each case of it a seed. */
typedef struct draws {
    uint64_t stream, seed, n;
} draws;

/* From `least` to `most`, both included. */
static inline int draw(draws *d, int least, int most)
{
    return least + (int)coh_rng_below(d->stream, d->seed, d->n++, (uint64_t)(most - least + 1));
}

#endif
