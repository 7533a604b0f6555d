/* fold.h - evaluate a long step by a short one.
 *
 *     G micro-batches   F B | F B | F B | ... | F B U
 *     4                 F B | F B | F B | F B U
 *                             |---------|             grows with G
 *
 * If micro-batches of one replica run one after another, all between the first and the last have
 * the same instructions. So the numbers of the step (its time, its bytes) grow by about the same
 * amount for each of them. The search builds steps of 4 micro-batches, long ones of 3, and
 * continues their numbers; the plan is then built whole. */
#ifndef COH_PLANNER_FOLD_H
#define COH_PLANNER_FOLD_H

#include "planner/effort.h"

/* Micro-batches of a folded step, with two between the first and the last; of one whose
 * micro-batches are long, with one. */
enum { COH_FOLDED = 4, COH_FOLDED_LONG = 3 };

/* Steps of more compute instructions are folded; micro-batches of more are long. */
enum { COH_FOLD_INSTRUCTIONS = 4096, COH_FOLD_LONG_INSTRUCTIONS = 1400 };

/* Returns the micro-batches by which a step whose shortest program takes `shortest` is evaluated;
 * 0: all. */
int32_t coh_fold_count(const coh_plan *plan, const coh_effort *shortest);

/* Returns the plan's options with so many micro-batches. */
static inline coh_plan_options coh_fold_options(const coh_plan *plan, int32_t microbatches)
{
    coh_plan_options options = plan->options;
    options.microbatch_count = microbatches;
    return options;
}

/* Computes the effort of the program by which the search evaluates a set of decisions, and whether
 * the whole step is bearable. Fails: as coh_effort_of. */
coh_status coh_fold_effort(const coh_plan *plan, const coh_decisions *decisions,
                           coh_effort *out_effort, int *out_is_bearable);

/* Continues period and bytes of a simulated body of `folded` micro-batches to `count` of them.
 * `instruction_ns`: as from coh_simulate. */
void coh_fold_continue(const coh_program *body, const uint64_t *instruction_ns, int32_t folded,
                       int32_t count, coh_simulation *simulation);

#endif
