/* plan_make.h - the two ends of making a plan, shared by the search and by the replay of a plan
 * file. */
#ifndef COH_PLANNER_PLAN_MAKE_H
#define COH_PLANNER_PLAN_MAKE_H

#include "planner/plan.h"

/* Checks the options; a plan without decisions. */
coh_status coh_plan_open(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan);

/* Fills plan->pattern_names from the body. Fails: COH_ERR_MEMORY. */
coh_status coh_plan_name_patterns(coh_plan *plan);

/* Builds, verifies and prices all programs of plan->decisions. On failure the plan may only be
 * destroyed. */
coh_status coh_plan_finish(coh_plan *plan);

/* Is this the text of a plan file? `text` ends with a NUL beyond `bytes`. Fails: COH_ERR_CORRUPT,
 * COH_ERR_MEMORY. */
coh_status coh_plan_check_text(const char *text, size_t bytes);

#endif
