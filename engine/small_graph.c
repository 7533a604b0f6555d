/* Checks that a small graph fits a plan. The one idea: an operator finds its tensors where the plan
 * put them, so the graphs may differ in shapes and attributes only, and nothing may be larger.
 * Next: small_graph.h. */
#include "engine/small_graph.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "planner/graph.h"

static coh_status refuse(const char *what, const char *name, const char *why)
{
    return coh_fail(COH_ERR_ARGUMENT,
                    "the small graph's %s '%s' %s: build both graphs by the same calls, with "
                    "smaller inputs",
                    what, name, why);
}

static coh_status check_counts(const coh_graph *large, const coh_graph *small)
{
    if (large->op_count == small->op_count && large->tensor_count == small->tensor_count &&
        large->parameter_count == small->parameter_count &&
        large->input_count == small->input_count && large->loss == small->loss)
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "the small graph has %zu inputs, %zu operators, %zu tensors, %zu parameters and "
        "%s loss, the plan's has %zu, %zu, %zu, %zu and %s: build both graphs by the "
        "same calls, with smaller inputs",
        small->input_count, small->op_count, small->tensor_count, small->parameter_count,
        small->loss < 0 ? "no" : "a", large->input_count, large->op_count, large->tensor_count,
        large->parameter_count, large->loss < 0 ? "none" : "one");
}

static coh_status check_tensor(const coh_graph_tensor *large, const coh_graph_tensor *small)
{
    if (large->producer != small->producer || large->port != small->port ||
        large->is_output != small->is_output || large->shape.dtype != small->shape.dtype)
        return refuse("tensor", small->name, "is not the plan's");
    if (coh_shape_elements(&small->shape) > coh_shape_elements(&large->shape))
        return refuse("tensor", small->name, "is larger than the plan's");
    return COH_OK;
}

static coh_status check_parameter(const coh_graph_parameter *large,
                                  const coh_graph_parameter *small)
{
    if (strcmp(large->name, small->name) != 0 || large->op != small->op ||
        memcmp(&large->facts.shape, &small->facts.shape, sizeof(coh_shape)) != 0)
        return refuse("parameter", small->name, "is not the plan's");
    return COH_OK;
}

static int has_same_ports(const coh_graph_op_entry *large, const coh_graph_op_entry *small)
{
    return memcmp(large->input, small->input, sizeof(large->input)) == 0 &&
           memcmp(large->output, small->output, sizeof(large->output)) == 0 &&
           memcmp(large->parameter, small->parameter, sizeof(large->parameter)) == 0;
}

static int has_same_facts(const coh_graph_op_entry *large, const coh_graph_op_entry *small)
{
    return memcmp(large->facts.state, small->facts.state, sizeof(large->facts.state)) == 0 &&
           memcmp(large->facts.index_range, small->facts.index_range,
                  sizeof(large->facts.index_range)) == 0 &&
           large->facts.counting_inputs == small->facts.counting_inputs;
}

static coh_status check_op(const coh_plan *plan, const coh_graph_op_entry *large,
                           const coh_graph_op_entry *small)
{
    const int device = plan->profile.device_kind;
    if (strcmp(large->kind.name, small->kind.name) != 0 ||
        large->kind.revision != small->kind.revision ||
        large->kind.devices[device].forward != small->kind.devices[device].forward ||
        !has_same_ports(large, small))
        return refuse("operator", small->name, "is not the plan's");
    if (!has_same_facts(large, small))
        return refuse("operator", small->name, "has other states or ids than the plan's");
    if (small->facts.saved_bytes > large->facts.saved_bytes ||
        small->workspace_bytes[device][COH_PHASE_FORWARD] >
            large->workspace_bytes[device][COH_PHASE_FORWARD])
        return refuse("operator", small->name, "needs more scratch than the plan's");
    return COH_OK;
}

coh_status coh_small_graph_check(const coh_plan *plan, const coh_graph *small)
{
    const coh_graph *large = plan->graph;
    if (small == NULL)
        return COH_OK;
    if (plan->options.mode != COH_PLAN_INFER || coh_layout_rank_count(&plan->layout) > 1)
        return coh_fail(COH_ERR_ARGUMENT, "a small graph is for plans of COH_PLAN_INFER on one "
                                          "rank: leave it NULL");
    COH_TRY(check_counts(large, small));
    for (size_t i = 0; i < small->input_count; i++)
        if (small->inputs[i] != large->inputs[i])
            return refuse("input", small->tensors[small->inputs[i]].name, "is not the plan's");
    for (size_t i = 0; i < small->tensor_count; i++)
        COH_TRY(check_tensor(&large->tensors[i], &small->tensors[i]));
    for (size_t i = 0; i < small->parameter_count; i++)
        COH_TRY(check_parameter(&large->parameters[i], &small->parameters[i]));
    for (size_t i = 0; i < small->op_count; i++)
        COH_TRY(check_op(plan, &large->ops[i], &small->ops[i]));
    return COH_OK;
}
