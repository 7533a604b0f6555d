/* How long the planner may search in tests of other things. */
#ifndef COH_TESTS_SEARCH_LENGTH_H
#define COH_TESTS_SEARCH_LENGTH_H

#include "cohobate/plan.h"
#include "tests/length.h"

/* In a short run the first placements are as good as the best: they also stream, recompute, and
 * share memory. */
static inline coh_search test_search(void)
{
    return test_is_short() ? COH_SEARCH_QUICK : COH_SEARCH_USUAL;
}

#endif
