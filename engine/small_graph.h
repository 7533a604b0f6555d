/* small_graph.h - checks a second graph whose shapes the plan's program may run with
 * (coh_engine_options.small_graph). Next: bind.c, coh_bound_init_small. */
#ifndef COH_ENGINE_SMALL_GRAPH_H
#define COH_ENGINE_SMALL_GRAPH_H

#include "planner/plan.h"

/* Checks that every call of the plan's program has room for the same operator of `small`, which may
 * be NULL. Fails: COH_ERR_ARGUMENT, with the first difference. */
coh_status coh_small_graph_check(const coh_plan *plan, const coh_graph *small);

#endif
