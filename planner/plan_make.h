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

/* Builds the programs of plan->decisions, unless they are built, and simulates the step. Fails:
 * COH_ERR_FULL, COH_ERR_MEMORY. */
coh_status coh_plan_price(coh_plan *plan);

/* Builds the programs of plan->decisions, unless they are built, then verifies and prices them. On
 * failure the plan can only be destroyed. Fails: COH_ERR_FULL, COH_ERR_MEMORY; COH_ERR_CORRUPT: the
 * verifier refuses a program. */
coh_status coh_plan_finish(coh_plan *plan);

/* Frees the programs, the layout and the notes of a plan that may not be needed again; its
 * simulations and decisions stay. coh_plan_finish then makes the same plan again, in a fraction of
 * the time of its search. */
void coh_plan_drop_programs(coh_plan *plan);

/* Returns 1 if the plan has its programs. */
static inline int coh_plan_is_built(const coh_plan *plan)
{
    return plan->layout.object_count > 0;
}

/* Takes a caller's options, of any size that struct_bytes allows. Fails: COH_ERR_ARGUMENT. */
coh_status coh_plan_options_read(const coh_plan_options *options, coh_plan_options *out_known);

/* As coh_plan_create, for checked options, but without disk_write_bytes_per_day. */
coh_status coh_plan_create_unbounded(const coh_graph *graph, const coh_plan_options *options,
                                     coh_plan **out_plan);

/* Returns the order to plan in: one of the two, or AUTO for the faster. */
coh_sweep_order coh_plan_order(const coh_graph *graph, const coh_plan_options *options);

/* As coh_plan_create_unbounded, for a plan to compare: only its step is simulated, and nothing is
 * verified. coh_plan_complete makes the rest, if that is not done. */
coh_status coh_plan_create_priced(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan **out_plan);
coh_status coh_plan_complete(coh_plan *plan);

/* As coh_plan_least_ns, for options that coh_plan_options_read has taken, but ends with the first
 * bound below `enough_ns`. */
coh_status coh_plan_least_below(const coh_graph *graph, const coh_plan_options *options,
                                uint64_t enough_ns, uint64_t *out_ns);

/* Of decisions that fit: the disk bytes that they take, and the length of the step. */
typedef struct coh_plan_fit {
    uint64_t disk_bytes;
    uint32_t instruction_count;
} coh_plan_fit;

/* Fails as coh_plan_create_unbounded, but makes no plan: takes the first set of decisions that
 * fits, and verifies and prices no program of it. */
coh_status coh_plan_check_fit(const coh_graph *graph, const coh_plan_options *options,
                              coh_plan_fit *out_fit);

/* Returns the disk bytes that a day of uninterrupted steps writes. */
double coh_plan_written_per_day(const coh_plan *plan);

/* Replaces a plan that writes more than options->disk_write_bytes_per_day by one that does not; on
 * failure *plan is NULL. Fails: COH_ERR_FULL: none was found. */
coh_status coh_plan_bound_writes(const coh_graph *graph, const coh_plan_options *options,
                                 coh_plan **plan);

/* Checks every number and array of the options. Fails: COH_ERR_ARGUMENT. */
coh_status coh_plan_check_options(const coh_plan_options *options);

#endif
