/* Finds the operators that are cheaper to run again than to keep. The idea: what backward reads is
 * known from the graph alone, so one pass down the graph finds what is light, and one pass up finds
 * the backward before which each runs again. Interface: light.h. */
#include "planner/light.h"

#include "base/alloc.h"
#include "planner/pins.h"

/* Most operations for each byte of output. A norm of bf16 has 4; a product over 64 values has 64,
 * an attention many more. */
enum { LIGHT_FLOPS = 32 };

/* Also light at COH_LIGHT_CHEAP: at most a CHEAP_PART of what its block computes for each byte that
 * it keeps. An attention over 2,048 tokens has 2,048 operations for each byte of its output, a
 * block of OPT-30B 8,600. */
enum { CHEAP_PART = 2 };

/* Finds by tensor the last operator of the graph whose backward reads it; -1: none. */
static void find_readers(const coh_graph *graph, const coh_object_map *map, int32_t *last_reader)
{
    for (size_t i = 0; i < graph->tensor_count; i++)
        last_reader[i] = -1;
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        const coh_port_mask reads = coh_graph_backward_reads(graph, op);
        if (!map->runs_backward[i])
            continue;
        for (int32_t port = 0; port < op->kind.input_count; port++)
            if ((reads.inputs >> port) & 1)
                last_reader[op->input[port]] = (int32_t)i;
        for (int32_t port = 0; port < op->kind.output_count; port++)
            if ((reads.outputs >> port) & 1)
                last_reader[op->output[port]] = (int32_t)i;
    }
}

/* Returns the most operations for each byte with which an operator of the block that begins with
 * `first` is light. The average of a block is that of its outputs which backward reads: what
 * recomputing the whole block costs. */
static double most_flops(const coh_graph *graph, const int32_t *last_reader, int level,
                         size_t first)
{
    const int32_t block = graph->ops[first].block;
    double flops = 0, bytes = 0;
    if (level < COH_LIGHT_CHEAP || block < 0)
        return LIGHT_FLOPS;
    for (size_t i = first; i < graph->op_count && graph->ops[i].block == block; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        flops += op->facts.flops[COH_PHASE_FORWARD];
        for (int32_t port = 0; port < op->kind.output_count; port++)
            if (last_reader[op->output[port]] >= 0)
                bytes += (double)coh_shape_bytes(&graph->tensors[op->output[port]].shape);
    }
    const double cheap = bytes > 0 ? flops / bytes / CHEAP_PART : 0;
    return cheap > LIGHT_FLOPS ? cheap : LIGHT_FLOPS;
}

/* Returns 1 if an operator may run again by itself. */
static int may_repeat(const coh_graph *graph, const coh_object_map *map, double flops_most,
                      int32_t index)
{
    const coh_graph_op_entry *op = &graph->ops[index];
    uint64_t bytes = 0;
    if (op->block < 0 || !map->runs_backward[index] || op->kind.state_count > 0 || op->kind.draws ||
        op->kind.is_loss || op->kind.row_split_parameters != 0 || op->kind.column_slices ||
        op->facts.cache_bytes > 0)
        return 0;
    for (int32_t port = 0; port < op->kind.output_count; port++) {
        const coh_graph_tensor *tensor = &graph->tensors[op->output[port]];
        if (tensor->is_output || map->is_read_elsewhere[op->output[port]])
            return 0;
        bytes += coh_shape_bytes(&tensor->shape);
    }
    return op->facts.flops[COH_PHASE_FORWARD] <= flops_most * (double)bytes;
}

/* Marks light operators with their own index in again_at, from the first one on: inputs come
 * before. */
static void mark_light(const coh_graph *graph, const coh_block_set *blocks,
                       const int32_t *last_reader, int level, coh_object_map *map)
{
    double flops_most = 0;
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        if (i == 0 || graph->ops[i - 1].block != op->block)
            flops_most = most_flops(graph, last_reader, level, i);
        int is_light = coh_block_set_has(blocks, op->blocks_before) &&
                       may_repeat(graph, map, flops_most, (int32_t)i);
        int saves = 0;
        for (int32_t port = 0; is_light && port < op->kind.input_count; port++) {
            const int32_t tensor = op->input[port], producer = graph->tensors[tensor].producer;
            is_light = producer < 0 || last_reader[tensor] >= 0 || map->again_at[producer] >= 0;
        }
        for (int32_t port = 0; port < op->kind.output_count; port++)
            saves |= last_reader[op->output[port]] >= 0;
        map->again_at[i] = is_light && saves ? (int32_t)i : -1;
    }
}

/* Finds the first backward that needs each light operator, or a light one that reads it: that of
 * the last such operator of the graph, since backward runs from the last to the first. */
static void find_times(const coh_graph *graph, const int32_t *last_reader, coh_object_map *map)
{
    for (size_t i = graph->op_count; i-- > 0;) {
        const coh_graph_op_entry *op = &graph->ops[i];
        if (map->again_at[i] < 0)
            continue;
        for (int32_t port = 0; port < op->kind.output_count; port++)
            if (last_reader[op->output[port]] > map->again_at[i])
                map->again_at[i] = last_reader[op->output[port]];
        for (int32_t port = 0; port < op->kind.input_count; port++) {
            const int32_t producer = graph->tensors[op->input[port]].producer;
            if (producer >= 0 && map->again_at[producer] >= 0 &&
                map->again_at[producer] < map->again_at[i])
                map->again_at[producer] = map->again_at[i];
        }
    }
}

coh_status coh_light_find(const coh_graph *graph, const coh_plan_options *options, int level,
                          coh_object_map *map)
{
    int32_t *last_reader = NULL;
    coh_block_set blocks = coh_block_set_first(coh_graph_block_count(graph));
    COH_TRY(coh_pins_blocks(graph, options, &blocks));
    COH_TRY(COH_ALLOC(graph->op_count, &map->again_at));
    COH_TRY(COH_ALLOC(graph->tensor_count, &last_reader));
    find_readers(graph, map, last_reader);
    mark_light(graph, &blocks, last_reader, level, map);
    find_times(graph, last_reader, map);
    coh_free(last_reader);
    return COH_OK;
}
