/* How long a test of something else than the search lets the planner search. */
#ifndef COH_TESTS_SEARCH_LENGTH_H
#define COH_TESTS_SEARCH_LENGTH_H

#include "cohobate/plan.h"
#include "tests/length.h"

/* In a short run the first placements serve as well as the best: they stream, recompute, and share
 * memory as much. */
static inline coh_search test_search(void)
{
    return test_is_short() ? COH_SEARCH_QUICK : COH_SEARCH_USUAL;
}

#endif
