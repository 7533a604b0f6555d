/* optimizers.h - which optimizer trains which parameter, and the streams that it keeps.
 *
 *   options    "adamw"  +  "*.bias=lion"  ->  an optimizer per parameter
 *   optimizer  its table of streams       ->  the rows of a group (program.h) */
#ifndef COH_PLANNER_OPTIMIZERS_H
#define COH_PLANNER_OPTIMIZERS_H

#include "planner/graph.h"
#include "planner/program.h"

struct coh_plan_options;

/* Checks the choice of optimizers in `options`.
 * Fails: COH_ERR_ARGUMENT: an optimizer that nobody registered, a pattern that matches no trained
 * parameter, two optimizers for one parameter, streams of one name and two forms, an optimizer
 * without a kernel for the profile's GPU. */
coh_status coh_optimizers_check(const coh_graph *graph, const struct coh_plan_options *options);

/* Lists the optimizers of the trained parameters in `layout`, in the order in which parameters
 * first name them, and gives each graph parameter its index there (-1: not trained). Fails as
 * coh_optimizers_check. */
coh_status coh_optimizers_of(const coh_graph *graph, const struct coh_plan_options *options,
                             const uint8_t *is_trained, coh_layout *layout,
                             int32_t *out_of_parameter);

/* Returns 1 if the optimizer has a kernel for this kind of device. */
static inline int coh_optimizer_runs_on(const coh_optimizer *optimizer, coh_device_kind kind)
{
    return kind == COH_DEVICE_HOST || optimizer->cuda_kernel != NULL;
}

/* Returns the optimizer that the options name for a graph parameter; NULL: it is not registered. */
const coh_optimizer *coh_optimizer_of(const coh_graph *graph,
                                      const struct coh_plan_options *options, size_t parameter);

/* Writes the rows of a group whose dtype and f32_gradients are set; `optimizer` NULL: not trained.
 * With `deferred`, gradients survive until the update of the next step. */
void coh_group_streams_make(coh_group_layout *group, const coh_optimizer *optimizer, int deferred);

/* Computes the most bytes of work, gradient and states of one chunk of `chunk_bytes` (of f32 work)
 * over all parameters. */
coh_status coh_optimizers_most_bytes(const coh_graph *graph, const struct coh_plan_options *options,
                                     uint64_t chunk_bytes, uint64_t *out_bytes);

#endif
