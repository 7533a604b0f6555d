/* optimizer_numbers.h - the hyperparameters of a plan's optimizers in one run, and the places of
 * their scalars in the cells. */
#ifndef COH_ENGINE_OPTIMIZER_NUMBERS_H
#define COH_ENGINE_OPTIMIZER_NUMBERS_H

#include "cohobate/engine.h"
#include "kernels/optimizer.h"
#include "planner/program.h"

typedef struct coh_optimizer_numbers {
    float values[COH_OPTIMIZER_NUMBERS]; /* in the optimizer's order */
    int32_t scalar_begin;                /* its first one in coh_cells.update_scalars */
} coh_optimizer_numbers;

/* Sets the numbers of each optimizer of `layout` to its defaults, then to the options' values, and
 * lists the scalars of all of them.
 * Fails: COH_ERR_ARGUMENT: a value outside its range, or one that no optimizer of the plan has. */
coh_status coh_optimizer_numbers_make(const coh_layout *layout, const coh_engine_options *options,
                                      coh_optimizer_numbers out_numbers[COH_PLAN_OPTIMIZERS],
                                      coh_update_scalars *out_scalars);

/* Sets the defaults of one optimizer. */
void coh_optimizer_numbers_default(const coh_optimizer *optimizer,
                                   coh_optimizer_numbers *out_numbers);

#endif
