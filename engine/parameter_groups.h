/* parameter_groups.h - the learning rate factor and weight decay of each trained parameter. Groups
 * are patterns of names (cohobate/engine.h). When an engine is made, they are resolved once into a
 * rule per parameter, which the grains of its chunks carry to the update (kernels/optimizer.h). */
#ifndef COH_ENGINE_PARAMETER_GROUPS_H
#define COH_ENGINE_PARAMETER_GROUPS_H

#include "cohobate/engine.h"
#include "planner/layout.h"

#define COH_WEIGHT_DECAY_DEFAULT 0.1f

typedef struct coh_parameter_rule {
    float rate_factor, decay;
} coh_parameter_rule;

/* Returns the rule of a parameter that is in no group. */
static inline coh_parameter_rule coh_parameter_rule_of(const coh_parameter_layout *parameter,
                                                       float weight_decay)
{
    return (coh_parameter_rule){ 1.0f, parameter->decays ? weight_decay : 0.0f };
}

/* Checks the groups of an engine's options. Fails: COH_ERR_ARGUMENT with the pattern. */
coh_status coh_parameter_groups_check(const coh_graph *graph, const coh_engine_options *options);

/* Checks a list of globs: its length, and that each glob matches a parameter, trained or not.
 * `what` names the list in the text. Fails: COH_ERR_ARGUMENT with the glob. */
coh_status coh_parameter_pattern_check(const coh_graph *graph, const char *what,
                                       const char *pattern);

/* Makes the rules of all parameters of `layout`, in its order; release with coh_free. `options`
 * must have been checked. Fails: COH_ERR_MEMORY. */
coh_status coh_parameter_rules_make(const coh_graph *graph, const coh_layout *layout,
                                    const coh_engine_options *options,
                                    coh_parameter_rule **out_rules);

#endif
