/* effort.h - estimate how large the step's program of a set of decisions becomes, before anything
 * is built, and limit it.
 *
 * The estimate takes time proportional to the operators of the graph, regardless of the number of
 * micro-batches, row ranges and chunks. It leaves out the movers that residency.h adds. */
#ifndef COH_PLANNER_EFFORT_H
#define COH_PLANNER_EFFORT_H

#include "base/refusal.h"
#include "planner/plan.h"

/* UINT64_MAX also represents every larger number. */
typedef struct coh_effort {
    uint64_t instructions; /* of the step's program */
    uint64_t touches;      /* chunks touched, summed over all instructions */
    uint64_t chunks;       /* of the layout */
} coh_effort;

/* Limits of what the planner builds: the schedule of a program at these limits takes about 400 MB
 * and a few seconds. */
enum { COH_INSTRUCTIONS_MOST = 250000, COH_TOUCHES_MOST = 2000000, COH_CHUNKS_MOST = 500000 };

/* In units of coh_effort_sum. The limits of a whole search, of one to compare and of a quick one.
 * COH_REFINE_EFFORT: the last part of a whole search, which tries what the others leave out, may
 * spend this even if they spent all; COH_PERTURB_EFFORT: likewise, random changes after it, and ten
 * times as much those of a thorough search.
 * COH_RESIZE_EFFORT: the least with which a search with chunks of another size finds anything.
 * COH_SHORT_EFFORT: up to this effort a program is built without first checking that it can fit.
 * COH_LAST_EFFORT: the set of the least device memory is tried first with chunks so large that it
 * takes no more than this. COH_TOGETHER_EFFORT: programs are built at the same time up to about
 * this sum. */
enum {
    COH_SEARCH_EFFORT_MOST = 10000000,
    COH_COMPARE_EFFORT_MOST = 3000000,
    COH_REFINE_EFFORT = 5000000,
    COH_RESIZE_EFFORT = 4000000,
    COH_PERTURB_EFFORT = 8000000,
    COH_QUICK_EFFORT_MOST = 1500000,
    COH_SHORT_EFFORT = 100000,
    COH_LAST_EFFORT = 300000,
    COH_TOGETHER_EFFORT = 3000000
};

/* Plan tables are indexed by uint32_t, some by int32_t. Fails: COH_ERR_FULL if `count` exceeds
 * these. */
coh_status coh_effort_check_count(uint64_t count, coh_refusal_unit unit);

/* Fails: COH_ERR_MEMORY, and as coh_layout_build. */
coh_status coh_effort_of(const coh_graph *graph, const coh_plan_options *options,
                         const coh_decisions *decisions, coh_effort *out_effort);

/* Doubles decisions->chunk_bytes, up to `most_bytes`, as long as there are too many touches or
 * chunks and larger chunks reduce them. Fails: as coh_effort_of. */
coh_status coh_effort_raise_chunk(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t most_bytes, coh_decisions *decisions);

/* Returns 1 if the effort is within the limits above. */
int coh_effort_is_bearable(const coh_effort *effort);

/* One number for the time to build and simulate a schedule: the touches plus a few per
 * instruction. */
uint64_t coh_effort_sum(const coh_effort *effort);

/* Fails with COH_ERR_ARGUMENT if an effort exceeds the limits; the message has the number that is
 * too large and what lowers it. */
coh_status coh_effort_refuse(const coh_effort *effort, const coh_plan_options *options);

#endif
