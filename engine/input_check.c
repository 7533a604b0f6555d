/* Checks a step's input against the ranges that the graph's operators declare. The narrowest range
 * of all readers of an input counts. Next: input_check.h. */
#include "engine/input_check.h"

#include <inttypes.h>
#include <math.h>

#include "base/check.h"

static const coh_graph_tensor *tensor_of(const coh_graph *graph, size_t input)
{
    return &graph->tensors[graph->inputs[input]];
}

/* Limits an i32's range so that the difference of two limits fits int64_t. */
static int64_t clamp(int64_t limit)
{
    const int64_t most = (int64_t)INT32_MAX + 1;
    return limit < INT32_MIN ? INT32_MIN : limit > most ? most : limit;
}

static void narrow(coh_input_limit *limit, const coh_index_range *range, int32_t op)
{
    const int64_t least = clamp(range->least), end = clamp(range->end);
    const int is_narrower = limit->op < 0 || end - least < limit->end - limit->least;
    if (range->least == 0 && range->end == 0)
        return;
    if (limit->op < 0 || least > limit->least)
        limit->least = least;
    if (limit->op < 0 || end < limit->end)
        limit->end = end;
    if (is_narrower)
        limit->op = op;
}

void coh_input_limits_find(const coh_graph *graph, coh_input_limit out_limits[COH_PORT_MAX])
{
    for (size_t i = 0; i < COH_PORT_MAX; i++)
        out_limits[i].op = out_limits[i].counter = -1;
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        for (int32_t port = 0; port < op->kind.input_count; port++) {
            const coh_graph_tensor *tensor = &graph->tensors[op->input[port]];
            if (tensor->producer >= 0 || tensor->shape.dtype != COH_DTYPE_I32)
                continue;
            narrow(&out_limits[tensor->port], &op->facts.index_range[port], (int32_t)i);
            if (op->facts.counting_inputs >> port & 1u)
                out_limits[tensor->port].counter = (int32_t)i;
        }
    }
}

static coh_status check_integers(const coh_graph *graph, const coh_input_limit *limit, size_t input,
                                 const coh_step_input *values, uint64_t microbatch_count)
{
    const coh_graph_tensor *tensor = tensor_of(graph, input);
    const int32_t *integers = values->inputs[input];
    const uint64_t count = (uint64_t)coh_shape_elements(&tensor->shape) * microbatch_count;
    for (uint64_t i = 0; i < count; i++)
        if (integers[i] < limit->least || integers[i] >= limit->end)
            return coh_fail(COH_ERR_ARGUMENT,
                            "step %" PRIu64 ": input %s holds %" PRId32 " at place %" PRIu64
                            ", and operator %s takes %" PRId64 " to %" PRId64 ": %s",
                            values->step, tensor->name, integers[i], i, graph->ops[limit->op].name,
                            limit->least, limit->end - 1,
                            limit->least == -1 && integers[i] < 0
                                ? "-1 marks a target that does not count"
                                : "was the data made for another vocabulary?");
    return COH_OK;
}

/* Checks that an input counts the tokens of documents along its last axis. */
static coh_status check_counts(const coh_graph *graph, int32_t counter, size_t input,
                               const coh_step_input *values, uint64_t microbatch_count)
{
    const coh_graph_tensor *tensor = tensor_of(graph, input);
    const int32_t *integers = values->inputs[input];
    const uint64_t row = (uint64_t)tensor->shape.dim[tensor->shape.rank - 1];
    const uint64_t count = (uint64_t)coh_shape_elements(&tensor->shape) * microbatch_count;
    for (uint64_t i = 0; i < count; i++)
        if (integers[i] != 0 && (i % row == 0 || integers[i] != integers[i - 1] + 1))
            return coh_fail(
                COH_ERR_ARGUMENT,
                "step %" PRIu64 ": input %s holds %" PRId32 " at place %" PRIu64
                ", and operator %s takes positions in documents: 0, or one more than the value "
                "before it in its row",
                values->step, tensor->name, integers[i], i, graph->ops[counter].name);
    return COH_OK;
}

static coh_status check_rates(const coh_step_input *input)
{
    const char *const names[] = { "learning rate", "clip", "loss factor" };
    const float values[] = { input->learning_rate, input->clip, input->loss_factor };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (!(values[i] >= 0) || isinf(values[i]))
            return coh_fail(COH_ERR_ARGUMENT,
                            "step %" PRIu64 ": %s %g: 0 or a positive finite number is possible%s",
                            input->step, names[i], (double)values[i],
                            i == 1   ? " (0: off)"
                            : i == 2 ? " (0 counts as 1)"
                                     : "");
    return COH_OK;
}

coh_status coh_input_check(const coh_graph *graph, const coh_input_limit limits[COH_PORT_MAX],
                           const coh_step_input *input, uint64_t microbatch_count)
{
    COH_TRY(check_rates(input));
    for (size_t i = 0; i < graph->input_count; i++)
        if (input->inputs[i] == NULL)
            return coh_fail(COH_ERR_ARGUMENT, "step %" PRIu64 ": graph input %zu (%s) is not given",
                            input->step, i, tensor_of(graph, i)->name);
    for (size_t i = 0; i < graph->input_count; i++) {
        if (limits[i].counter >= 0)
            COH_TRY(check_counts(graph, limits[i].counter, i, input, microbatch_count));
        if (limits[i].op >= 0)
            COH_TRY(check_integers(graph, &limits[i], i, input, microbatch_count));
    }
    return COH_OK;
}
