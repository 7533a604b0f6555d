/* Resolves patterns of parameter names into one rule per parameter. Groups are applied in order, so
 * the last one that matches wins. Next: parameter_groups.h, base/name_pattern.h. */
#include "engine/parameter_groups.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name_pattern.h"
#include "planner/graph.h"

/* ---- checks ---- */

#define GROUP "parameter group" /* in messages */

static coh_status refuse_pattern(const coh_graph *graph, const char *what, const char *pattern,
                                 int is_frozen)
{
    const char *example = "";
    for (size_t i = 0; i < graph->parameter_count && !example[0]; i++)
        if (!graph->parameters[i].frozen)
            example = graph->parameters[i].name;
    return coh_fail(COH_ERR_ARGUMENT, "%s '%s' matches %s: parameters have names like %s", what,
                    pattern, is_frozen ? "only parameters that are not trained" : "no parameter",
                    example);
}

/* A glob that matches nothing is an error, even if other globs of its list match. */
coh_status coh_parameter_pattern_check(const coh_graph *graph, const char *what,
                                       const char *pattern)
{
    char glob[COH_PATTERN_BYTES];
    if (strlen(pattern) >= COH_PATTERN_BYTES)
        return coh_fail(COH_ERR_ARGUMENT, "%s: its pattern has %zu bytes: at most %d, so use \"*\"",
                        what, strlen(pattern), COH_PATTERN_BYTES - 1);
    while (coh_pattern_next(&pattern, glob)) {
        int is_used = 0;
        for (size_t i = 0; i < graph->parameter_count && !is_used; i++)
            is_used = coh_graph_parameter_matches(graph, glob, &graph->parameters[i]);
        if (!is_used)
            return refuse_pattern(graph, what, glob, 0);
    }
    return COH_OK;
}

coh_status coh_parameter_group_count(const coh_graph *graph, const char *pattern,
                                     uint32_t *out_parameter_count, uint64_t *out_element_count)
{
    uint32_t count = 0, frozen_count = 0;
    uint64_t elements = 0;
    if (graph == NULL || pattern == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a parameter group needs a graph and a pattern");
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_graph_parameter *parameter = &graph->parameters[i];
        if (!coh_graph_parameter_matches(graph, pattern, parameter))
            continue;
        count += !parameter->frozen;
        frozen_count += parameter->frozen != 0;
        if (!parameter->frozen)
            elements += (uint64_t)coh_shape_elements(&parameter->facts.shape);
    }
    if (out_parameter_count != NULL)
        *out_parameter_count = count;
    if (out_element_count != NULL)
        *out_element_count = elements;
    COH_TRY(coh_parameter_pattern_check(graph, GROUP, pattern));
    return count > 0 ? COH_OK : refuse_pattern(graph, GROUP, pattern, frozen_count > 0);
}

static coh_status check_group(const coh_graph *graph, const coh_parameter_group *group)
{
    const uint32_t known = COH_GROUP_SETS_RATE | COH_GROUP_SETS_DECAY;
    COH_TRY(coh_parameter_group_count(graph, group->pattern, NULL, NULL));
    if (group->sets == 0 || (group->sets & ~known) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "parameter group '%s' sets %u: give COH_GROUP_SETS_RATE, "
                        "COH_GROUP_SETS_DECAY or both",
                        group->pattern, group->sets);
    if ((group->sets & COH_GROUP_SETS_RATE) != 0 &&
        !(group->rate_factor >= 0 && isfinite(group->rate_factor)))
        return coh_fail(COH_ERR_ARGUMENT,
                        "parameter group '%s' has the rate factor %g: give a number from 0 on",
                        group->pattern, (double)group->rate_factor);
    if ((group->sets & COH_GROUP_SETS_DECAY) != 0 &&
        !(group->weight_decay >= 0 && isfinite(group->weight_decay)))
        return coh_fail(COH_ERR_ARGUMENT,
                        "parameter group '%s' has the weight decay %g: give a number from 0 on",
                        group->pattern, (double)group->weight_decay);
    return COH_OK;
}

coh_status coh_parameter_groups_check(const coh_graph *graph, const coh_engine_options *options)
{
    if (options->group_count > 0 && options->groups == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%u parameter groups at NULL: give their array",
                        options->group_count);
    for (uint32_t i = 0; i < options->group_count; i++)
        COH_TRY(check_group(graph, &options->groups[i]));
    return COH_OK;
}

/* ---- rules ---- */

coh_status coh_parameter_rules_make(const coh_graph *graph, const coh_layout *layout,
                                    const coh_engine_options *options,
                                    coh_parameter_rule **out_rules)
{
    coh_parameter_rule *rules;
    COH_TRY(COH_ALLOC(layout->parameter_count, &rules));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        rules[i] = coh_parameter_rule_of(parameter, options->weight_decay);
        for (uint32_t g = 0; g < options->group_count; g++) {
            const coh_parameter_group *group = &options->groups[g];
            if (!coh_graph_parameter_matches(graph, group->pattern,
                                             &graph->parameters[parameter->parameter]))
                continue;
            if ((group->sets & COH_GROUP_SETS_RATE) != 0)
                rules[i].rate_factor = group->rate_factor;
            if ((group->sets & COH_GROUP_SETS_DECAY) != 0)
                rules[i].decay = group->weight_decay;
        }
    }
    *out_rules = rules;
    return COH_OK;
}
