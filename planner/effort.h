/* effort.h - how large the step's program of a set of decisions becomes, estimated before anything
 * is built; and how large the planner lets it become.
 *
 * The estimate takes time in proportion to the operators of the graph, however many micro-batches,
 * ranges of rows and chunks there are. It leaves out what residency.h adds (movers). */
#ifndef COH_PLANNER_EFFORT_H
#define COH_PLANNER_EFFORT_H

#include "planner/plan.h"

/* UINT64_MAX stands for all larger numbers, too. */
typedef struct coh_effort {
    uint64_t lines;   /* of the step's program */
    uint64_t touches; /* chunks that they touch, line after line */
    uint64_t chunks;  /* of the layout */
} coh_effort;

/* What the planner builds: the schedule of such a program takes about 400 MB and a few seconds. */
enum { COH_LINES_MOST = 250000, COH_TOUCHES_MOST = 2000000, COH_CHUNKS_MOST = 500000 };

/* In coh_effort_sum: a search ends after so much, a quick one after so much; a program of so little
 * is built without asking first whether it can fit; and programs of so much are built at the same
 * time. */
enum {
    COH_SEARCH_EFFORT_MOST = 10000000,
    COH_QUICK_EFFORT_MOST = 1500000,
    COH_SHORT_EFFORT = 100000,
    COH_TOGETHER_EFFORT = 3000000
};

/* Tables of a plan are numbered by uint32_t, some by int32_t. Fails: COH_ERR_FULL where `count` is
 * more than those hold; `what`: a plural. */
coh_status coh_effort_check_count(uint64_t count, const char *what);

/* Fails: COH_ERR_MEMORY, and as coh_layout_build. */
coh_status coh_effort_of(const coh_graph *graph, const coh_plan_options *options,
                         const coh_decisions *decisions, coh_effort *out_effort);

/* Doubles decisions->chunk_bytes, up to `most_bytes`, for as long as there are too many touches or
 * chunks and larger chunks make them fewer. Fails: as coh_effort_of. */
coh_status coh_effort_raise_chunk(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t most_bytes, coh_decisions *decisions);

/* Within the numbers above? */
int coh_effort_is_bearable(const coh_effort *effort);

/* One number for how long a schedule takes to build and to simulate: touches, and lines as a few
 * of them. */
uint64_t coh_effort_sum(const coh_effort *effort);

/* Fails with COH_ERR_ARGUMENT where an effort is not bearable, with the number that is too large
 * and the flag that lowers it. */
coh_status coh_effort_refuse(const coh_effort *effort, const coh_plan_options *options);

#endif
