/* toy_plan.h - plans of toy graphs with given decisions: no search chooses anything. */
#ifndef COH_TESTS_PLANNER_TOY_PLAN_H
#define COH_TESTS_PLANNER_TOY_PLAN_H

#include "planner/plan_make.h"

typedef struct toy_tiers {
    int microbatches, deferred;
    coh_sweep_order order;
    int percent; /* of what the plan would need in memory, on the device */
    int disk;    /* 0: the host tier is large; 1: it has half of that, and a drive is behind it */
} toy_tiers;

coh_plan_options toy_plan_options(const coh_graph *graph, const toy_tiers *tiers);

/* Makes and verifies every program. The helper sets device bytes, chunks of 64 KiB, row passes,
 * pattern, patience and horizon; the rest is as in `decisions`. Destroy the plan, after a failure
 * too. */
coh_status toy_plan_make(const coh_graph *graph, const coh_plan_options *options,
                         const coh_decisions *decisions, coh_plan **out_plan);

#endif
