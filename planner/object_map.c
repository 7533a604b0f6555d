/* Finds in a graph which operators use each tensor and each group of parameters, for the map that
 * lies next to a layout. The idea: one pass over the operators, so that lowering an operator looks
 * at no other. Interface: layout.h. */
#include "planner/layout.h"

#include "base/alloc.h"

static void fill(int32_t *numbers, size_t count, int32_t value)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = value;
}

coh_status coh_object_map_uses(const coh_graph *graph, uint32_t group_count, coh_object_map *map)
{
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->last_backward_of_tensor));
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->is_read_elsewhere));
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->is_read_backward));
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->last_forward_of_tensor));
    COH_TRY(COH_ALLOC(graph->tensor_count, &map->forward_reads));
    COH_TRY(COH_ALLOC(group_count, &map->first_backward_of_group));
    fill(map->last_backward_of_tensor, graph->tensor_count, -1);
    fill(map->last_forward_of_tensor, graph->tensor_count, -1);
    fill(map->first_backward_of_group, group_count, -1);
    for (int32_t i = 0; i < (int32_t)graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        const coh_port_mask reads = coh_graph_backward_reads(graph, op);
        for (int32_t port = 0; map->runs_backward[i] && port < op->kind.output_count; port++)
            map->is_read_backward[op->output[port]] |= reads.outputs >> port & 1;
        for (int32_t port = 0; port < op->kind.input_count; port++) {
            const int32_t tensor = op->input[port], from = graph->tensors[tensor].producer;
            map->last_forward_of_tensor[tensor] = i;
            map->forward_reads[tensor]++;
            if (map->runs_backward[i]) {
                map->last_backward_of_tensor[tensor] = i;
                map->is_read_backward[tensor] |= reads.inputs >> port & 1;
            }
            if (from >= 0 && graph->ops[from].block != op->block)
                map->is_read_elsewhere[tensor] = 1;
        }
        for (int32_t port = 0; map->runs_backward[i] && port < op->kind.parameter_count; port++) {
            if (op->parameter[port] < 0)
                continue;
            int32_t *first =
                &map->first_backward_of_group[map->group_of_parameter[op->parameter[port]]];
            *first = *first < 0 ? i : *first;
        }
    }
    return COH_OK;
}

void coh_object_map_fini(coh_object_map *map)
{
    coh_free(map->activation);
    coh_free(map->gradient);
    coh_free(map->saved);
    coh_free(map->cache);
    coh_free(map->workspace[COH_PHASE_FORWARD]);
    coh_free(map->workspace[COH_PHASE_BACKWARD]);
    coh_free(map->input_scratch);
    coh_free(map->parameter_scratch);
    coh_free(map->kept);
    coh_free(map->group_of_parameter);
    coh_free(map->layout_of_parameter);
    coh_free(map->reaches_loss);
    coh_free(map->runs_backward);
    coh_free(map->last_backward_of_tensor);
    coh_free(map->first_backward_of_group);
    coh_free(map->is_read_elsewhere);
    coh_free(map->is_read_backward);
    coh_free(map->last_forward_of_tensor);
    coh_free(map->forward_reads);
    coh_free(map->row_unit);
    coh_free(map->again_at);
    *map = (coh_object_map){ 0 };
}
