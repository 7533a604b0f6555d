/* candidates.h - evaluate sets of decisions: build each, simulate it and compare it with the best
 * so far.
 *
 *     coh_candidates c = { .plan = plan, .evaluations_most = 48 };
 *     coh_candidates_try(&c, list, count);      several at once, on the plan's threads
 *     c.best                                the fastest of all tried so far
 *
 * The sets tried and their order never depend on the number of threads or on time: every machine
 * gets the same plan. */
#ifndef COH_PLANNER_CANDIDATES_H
#define COH_PLANNER_CANDIDATES_H

#include "base/pool.h"
#include "planner/plan.h"

/* The evaluation of one set of decisions. */
typedef struct coh_candidate {
    coh_decisions decisions;
    uint64_t step_ns, link_bytes, device_bytes;
    uint32_t instruction_count;
    int32_t valid;   /* it fits */
    uint64_t effort; /* coh_effort_sum */
    /* Not built: the bytes that exist at once exceed the capacity (device_bytes is then a lower
     * bound), or the program is too long. */
    int32_t is_refused;
    /* Not valid because the outermost tier is too small: the bytes that would do, else 0. */
    uint64_t far_bytes;
    /* Not valid because a step writes more to disk than allowed: the bytes written, else 0. */
    uint64_t worn_bytes;
    int32_t has_only_map; /* as of its layout */
    size_t number;        /* in the order in which candidates were made */
} coh_candidate;

typedef struct coh_candidates {
    const coh_plan *plan;
    coh_pool *pool; /* NULL: only the calling thread */
    coh_candidate best;
    coh_candidate *all; /* all candidates made, in order: no set is tried twice */
    size_t count, capacity;
    uint64_t least_worn_bytes; /* of candidates that fail only by wear; 0: there are none */
    uint32_t evaluations, evaluations_most;
    int32_t is_brief; /* sets take so long that only variations that gain most are tried */
    uint64_t effort;  /* of all candidates: the search ends at effort_most */
    uint64_t effort_most;
} coh_candidates;

/* Builds and simulates the body of one set, and builds all other programs if the plan counts them.
 * A set that does not fit is not an error: its candidate is not valid. A set that takes long to
 * build is not built if its bytes or its length already rule it out. Fails: COH_ERR_MEMORY,
 * COH_ERR_ARGUMENT (a graph that cannot be trained). */
coh_status coh_candidate_make(const coh_plan *plan, const coh_decisions *decisions,
                              coh_candidate *out_candidate);

/* As coh_candidate_make, but keeps what was built, and the body's simulation: the caller releases
 * layout and programs; nothing was built if the layout has no objects. `all`: programs other than
 * the body are built, too, and decide whether the set fits. */
coh_status coh_candidate_build(const coh_plan *plan, const coh_decisions *decisions, int all,
                               coh_candidate *out_candidate, coh_layout *out_layout,
                               coh_program *out_programs, coh_simulation *out_simulation);

/* Returns 1 if two sets differ in nothing but the kind of boundary map. */
int coh_decisions_same_but_map(const coh_decisions *a, const coh_decisions *b);

/* Returns 1 if `a` is faster, or as fast with fewer bytes over the links. */
int coh_candidate_is_better(const coh_candidate *a, const coh_candidate *b);

/* Starts the threads. Fails: COH_ERR_MEMORY. */
coh_status coh_candidates_open(coh_candidates *candidates, const coh_plan *plan,
                               uint32_t evaluations_most);
void coh_candidates_close(coh_candidates *candidates);

/* Returns 1 if the set was tried before. */
int coh_candidates_was_tried(const coh_candidates *candidates, const coh_decisions *decisions);

/* Tries the sets of list[0 .. count) that were not tried before, in order, until the evaluations
 * are used up. Of equal sets the first stays the best. Fails: as coh_candidate_make. */
coh_status coh_candidates_try(coh_candidates *candidates, const coh_decisions *list, int count);

#endif
