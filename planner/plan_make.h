/* plan_make.h - the first and the last stage of making a plan, shared by the search and by the
 * replay of a plan file. */
#ifndef COH_PLANNER_PLAN_MAKE_H
#define COH_PLANNER_PLAN_MAKE_H

#include "planner/plan.h"

/* Checks the options and creates a plan without decisions. */
coh_status coh_plan_open(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan);

/* Fills the plan's notes on operators and objects from its body. Fails: COH_ERR_MEMORY. */
coh_status coh_plan_note_operators(coh_plan *plan);

/* Builds, verifies and prices all programs of plan->decisions. On failure the plan can only be
 * destroyed. Fails: COH_ERR_FULL, COH_ERR_MEMORY; COH_ERR_CORRUPT: the verifier refuses a
 * program. */
coh_status coh_plan_finish(coh_plan *plan);

/* Takes a caller's options, of any size that struct_bytes allows. Fails: COH_ERR_ARGUMENT. */
coh_status coh_plan_options_read(const coh_plan_options *options, coh_plan_options *out_known);
/* Checks every number and array of the options. Fails: COH_ERR_ARGUMENT. */
coh_status coh_plan_check_options(const coh_plan_options *options);

#endif
