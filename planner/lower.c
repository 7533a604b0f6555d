/* Decides the order of the compute instructions of every kind of program: sweeps over operators
 * and micro-batches, recomputed blocks, drains and visits. The idea: lowered instructions name
 * objects and chunks only, so no instruction depends on memory sizes. Instructions of one
 * operator call are written in lower_call.c, those that belong to a parameter group by its
 * pattern (pattern.h); the interface is lower.h. */
#include "planner/lower.h"

#include <string.h>

#include "base/alloc.h"
#include "planner/pattern.h"

void coh_lowered_fini(coh_lowered *lowered)
{
    coh_free(lowered->instructions);
    coh_free(lowered->operands);
    coh_free(lowered->calls);
    coh_free(lowered->bindings);
    coh_free(lowered->comms);
    *lowered = (coh_lowered){ 0 };
}

coh_status coh_lowered_reorder(const uint32_t *order, coh_lowered *lowered)
{
    coh_lowered_instruction *instructions = NULL;
    coh_lowered_operand *operands = NULL;
    coh_comm_call *comms = NULL;
    coh_status status = COH_OK;
    uint32_t operand_count = 0, comm_count = 0;
    COH_TRY_GOTO(status, COH_ALLOC(lowered->instruction_count, &instructions), done);
    COH_TRY_GOTO(status, COH_ALLOC(lowered->operand_count, &operands), done);
    COH_TRY_GOTO(status, COH_ALLOC(lowered->comm_count, &comms), done);
    for (size_t i = 0; i < lowered->instruction_count; i++) {
        coh_lowered_instruction *to = &instructions[i];
        *to = lowered->instructions[order[i]];
        memcpy(operands + operand_count, lowered->operands + to->operand_begin,
               to->operand_count * sizeof(*operands));
        to->operand_begin = operand_count;
        operand_count += to->operand_count;
        if (to->comm == 0)
            continue;
        comms[comm_count] = lowered->comms[to->comm - 1];
        to->comm = ++comm_count;
    }
    memcpy(lowered->instructions, instructions, lowered->instruction_count * sizeof(*instructions));
    memcpy(lowered->operands, operands, operand_count * sizeof(*operands));
    if (comm_count > 0) /* else both are NULL */
        memcpy(lowered->comms, comms, comm_count * sizeof(*comms));
done:
    coh_free(instructions);
    coh_free(operands);
    coh_free(comms);
    return status;
}

/* ---- whole objects ---- */

/* Returns 1 for a chunk of work or states of which HASH and SAVE gather something. */
static int is_parted(const coh_layout *layout, int32_t object, uint32_t chunk)
{
    const coh_object *facts = &layout->objects[object];
    return layout->chunks[facts->chunk_begin + chunk].is_divided &&
           (facts->stream == COH_STREAM_WORK || facts->stream == COH_STREAM_WORK_PART ||
            facts->stream == COH_STREAM_STATE);
}

/* Writes the HASH or SAVE of a chunk of work, whole, with the gathered states; of a chunk of states
 * nothing. */
static coh_status visit_parted(coh_lower_writer *w, coh_opcode opcode, int32_t object,
                               uint32_t chunk)
{
    const coh_object *facts = &w->layout->objects[object];
    const coh_group_layout *group = &w->layout->groups[facts->owner];
    if (facts->stream == COH_STREAM_STATE)
        return COH_OK;
    COH_TRY(coh_lower_gather_work(w, facts->owner, chunk));
    if (group->state >= 0)
        COH_TRY(coh_lower_gather_states(w, facts->owner, chunk));
    COH_TRY(coh_lower_instruction(w, opcode));
    COH_TRY(coh_lower_operand(w, group->work, chunk, chunk + 1, COH_ACCESS_READ, COH_ROLE_WORK));
    if (group->state < 0)
        return COH_OK;
    return coh_lower_operand_all(w, w->layout->gathered, COH_ACCESS_READ, COH_ROLE_OPTIMIZER_STATE);
}

coh_status coh_lower_visit(coh_lower_writer *w, coh_opcode opcode, int32_t object, coh_role role,
                           int32_t states)
{
    const int writes = opcode != COH_OP_HASH && opcode != COH_OP_SAVE;
    const int access = opcode == COH_OP_EDIT ? COH_ACCESS_BOTH
                       : writes              ? COH_ACCESS_WRITE
                                             : COH_ACCESS_READ;
    if (object < 0)
        return COH_OK;
    const coh_chunk *chunks = &w->layout->chunks[w->layout->objects[object].chunk_begin];
    for (uint32_t chunk = 0; chunk < w->layout->objects[object].chunk_count; chunk++) {
        if (!writes && chunks[chunk].owner_rank != w->layout->rank)
            continue;
        if (!writes && is_parted(w->layout, object, chunk)) {
            COH_TRY(visit_parted(w, opcode, object, chunk));
            continue;
        }
        COH_TRY(coh_lower_instruction(w, opcode));
        COH_TRY(coh_lower_operand(w, object, chunk, chunk + 1, access, role));
        if (states >= 0)
            COH_TRY(
                coh_lower_operand(w, states, chunk, chunk + 1, access, COH_ROLE_OPTIMIZER_STATE));
    }
    return COH_OK;
}

static coh_status feed(coh_lower_writer *w)
{
    COH_TRY(coh_lower_instruction(w, COH_OP_FEED));
    COH_TRY(coh_lower_operand_all(w, w->layout->cells, COH_ACCESS_BOTH, COH_ROLE_CELLS));
    for (uint32_t i = 0; i < w->layout->input_count; i++)
        COH_TRY(coh_lower_operand_all(w, w->layout->input_objects[i], COH_ACCESS_WRITE,
                                      COH_ROLE_INPUT));
    return COH_OK;
}

/* Writes the forward of operators [begin, end). */
static coh_status forward(coh_lower_writer *w, int32_t begin, int32_t end, int32_t microbatch)
{
    for (int32_t op = begin; op < end; op++)
        COH_TRY(coh_lower_call(w, COH_OP_FORWARD, op, microbatch, 0));
    return COH_OK;
}

/* ---- recomputation ---- */

static int is_inner(const coh_lower_writer *w, int32_t tensor, int32_t block)
{
    const coh_graph_tensor *facts = &w->graph->tensors[tensor];
    if (facts->producer < 0 || facts->is_output || w->graph->ops[facts->producer].block != block)
        return 0;
    return !w->map->is_read_elsewhere[tensor];
}

/* Marks the block's operators that must run again so that its backward finds the data it reads.
 * From the last operator back, an operator is marked if it saves data that backward needs, or if
 * backward or another marked operator reads one of its inner outputs. */
static void mark_recomputed(const coh_lower_writer *w, int32_t first, int32_t last, uint8_t *wanted,
                            uint8_t *tensor_wanted)
{
    for (int32_t i = first; i <= last; i++) {
        const coh_graph_op_entry *op = &w->graph->ops[i];
        if (!w->map->runs_backward[i])
            continue;
        const coh_port_mask reads = coh_graph_backward_reads(w->graph, op);
        for (int32_t port = 0; port < op->kind.input_count; port++)
            if ((reads.inputs >> port) & 1)
                tensor_wanted[op->input[port]] = 1;
        for (int32_t port = 0; port < op->kind.output_count; port++)
            if ((reads.outputs >> port) & 1)
                tensor_wanted[op->output[port]] = 1;
    }
    for (int32_t i = last; i >= first; i--) {
        const coh_graph_op_entry *op = &w->graph->ops[i];
        wanted[i] = w->map->saved[i] >= 0 && w->map->runs_backward[i];
        for (int32_t port = 0; port < op->kind.output_count; port++)
            if (tensor_wanted[op->output[port]] && is_inner(w, op->output[port], op->block))
                wanted[i] = 1;
        for (int32_t port = 0; wanted[i] && port < op->kind.input_count; port++)
            tensor_wanted[op->input[port]] = 1;
    }
}

static coh_status recompute_block(coh_lower_writer *w, int32_t last, int32_t microbatch)
{
    int32_t first = last;
    while (first > 0 && w->graph->ops[first - 1].block == w->graph->ops[last].block)
        first--;
    uint8_t *wanted = NULL, *tensor_wanted = NULL;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(w->graph->op_count, &wanted), done);
    COH_TRY_GOTO(status, COH_ALLOC(w->graph->tensor_count, &tensor_wanted), done);
    mark_recomputed(w, first, last, wanted, tensor_wanted);
    for (int32_t i = first; i <= last; i++)
        if (wanted[i])
            COH_TRY_GOTO(status, coh_lower_call(w, COH_OP_RECOMPUTE, i, microbatch, 0), done);
done:
    coh_free(wanted);
    coh_free(tensor_wanted);
    return status;
}

/* Writes the light operators that run again before the backward of operator `op`, of a block that
 * is not recomputed. */
static coh_status run_light_again(coh_lower_writer *w, int32_t op, int32_t microbatch)
{
    const int32_t block = w->graph->ops[op].block;
    int32_t first = op;
    if (w->map->again_at == NULL || block < 0 ||
        coh_block_set_has(w->recompute, w->graph->ops[op].blocks_before))
        return COH_OK;
    while (first > 0 && w->graph->ops[first - 1].block == block)
        first--;
    for (; first <= op; first++)
        if (w->map->again_at[first] == op)
            COH_TRY(coh_lower_call(w, COH_OP_RECOMPUTE, first, microbatch, 0));
    return COH_OK;
}

/* Writes the backward of operators [begin, end), whole blocks, from the last to the first. */
static coh_status backward(coh_lower_writer *w, int32_t begin, int32_t end, int32_t microbatch)
{
    int final = (microbatch + 1) % coh_replica_microbatches(w->options) == 0;
    int32_t open_block = -1;
    for (int32_t op = end - 1; op >= begin; op--) {
        int32_t block = w->graph->ops[op].block;
        if (block >= 0 && block != open_block &&
            coh_block_set_has(w->recompute, w->graph->ops[op].blocks_before))
            COH_TRY(recompute_block(w, op, microbatch));
        open_block = block;
        COH_TRY(run_light_again(w, op, microbatch));
        if (w->map->runs_backward[op])
            COH_TRY(coh_lower_call(w, COH_OP_BACKWARD, op, microbatch, final));
    }
    return COH_OK;
}

/* ---- sweeps ---- */

static coh_status sweep_microbatches(coh_lower_writer *w)
{
    int32_t end = (int32_t)w->graph->op_count;
    for (int32_t microbatch = 0; microbatch < w->options->microbatch_count; microbatch++) {
        COH_TRY(forward(w, 0, end, microbatch));
        COH_TRY(backward(w, 0, end, microbatch));
    }
    return COH_OK;
}

/* Returns the end of the layer that begins with operator `begin`: a block, or all operators between
 * two blocks. */
static int32_t layer_end(const coh_graph *graph, int32_t begin)
{
    int32_t end = begin;
    while (end < (int32_t)graph->op_count && graph->ops[end].block == graph->ops[begin].block)
        end++;
    return end;
}

static int32_t layer_begin(const coh_graph *graph, int32_t end)
{
    int32_t begin = end;
    while (begin > 0 && graph->ops[begin - 1].block == graph->ops[end - 1].block)
        begin--;
    return begin;
}

/* Runs the micro-batches [from, to), those of one replica, through each layer, forward and then
 * backward. The last layer runs backward directly after each forward: the data that the loss saves
 * for its backward is the largest. */
static coh_status sweep_replica(coh_lower_writer *w, int32_t from, int32_t to)
{
    int32_t op_count = (int32_t)w->graph->op_count, last = layer_begin(w->graph, op_count);
    for (int32_t begin = 0; begin < last; begin = layer_end(w->graph, begin))
        for (int32_t microbatch = from; microbatch < to; microbatch++)
            COH_TRY(forward(w, begin, layer_end(w->graph, begin), microbatch));
    for (int32_t microbatch = from; microbatch < to; microbatch++) {
        COH_TRY(forward(w, last, op_count, microbatch));
        COH_TRY(backward(w, last, op_count, microbatch));
    }
    for (int32_t end = last; end > 0; end = layer_begin(w->graph, end))
        for (int32_t microbatch = from; microbatch < to; microbatch++)
            COH_TRY(backward(w, layer_begin(w->graph, end), end, microbatch));
    return COH_OK;
}

/* Sweeps the replicas one after the other, each as a rank alone would. */
static coh_status sweep_layers(coh_lower_writer *w)
{
    const int32_t count = coh_replica_microbatches(w->options);
    for (int32_t from = 0; from < w->options->microbatch_count; from += count)
        COH_TRY(sweep_replica(w, from, from + count));
    return COH_OK;
}

/* ---- whole programs ---- */

static coh_status lower_body(coh_lower_writer *w)
{
    COH_TRY(feed(w));
    if (w->options->mode == COH_PLAN_INFER)
        return forward(w, 0, (int32_t)w->graph->op_count, 0);
    COH_TRY(w->options->sweep_order == COH_SWEEP_LAYER ? sweep_layers(w) : sweep_microbatches(w));
    if (coh_lower_has_world(w))
        COH_TRY(coh_lower_gather_losses(w));
    COH_TRY(coh_pattern_settle(w));
    if (coh_lower_has_world(w))
        COH_TRY(coh_lower_gather_partials(w));
    COH_TRY(coh_lower_instruction(w, COH_OP_CLIP));
    COH_TRY(coh_lower_operand_all(w, w->layout->partials, COH_ACCESS_READ, COH_ROLE_PARTIALS));
    COH_TRY(coh_lower_operand_all(w, w->layout->losses, COH_ACCESS_READ, COH_ROLE_LOSS));
    return coh_lower_operand_all(w, w->layout->cells, COH_ACCESS_BOTH, COH_ROLE_CELLS);
}

/* Writes the deferred updates, in the order in which the next forward needs them. */
static coh_status lower_drain(coh_lower_writer *w)
{
    for (size_t i = 0; i < w->graph->op_count; i++) {
        const coh_graph_op_entry *op = &w->graph->ops[i];
        for (int32_t port = 0; port < op->kind.parameter_count; port++) {
            if (op->parameter[port] < 0)
                continue;
            int32_t group = w->map->group_of_parameter[op->parameter[port]];
            COH_TRY(coh_pattern_of_group(w->layout, group)->drain(w, group));
        }
    }
    COH_TRY(coh_lower_instruction(w, COH_OP_SETTLE));
    return coh_lower_operand_all(w, w->layout->cells, COH_ACCESS_BOTH, COH_ROLE_CELLS);
}

/* Writes INIT, IMPORT, HASH, SAVE or EDIT: visits the surviving chunks, group by group. */
static coh_status lower_visit(coh_lower_writer *w, coh_opcode opcode)
{
    const int writes = opcode == COH_OP_INIT || opcode == COH_OP_IMPORT;
    for (int32_t group = 0; group < (int32_t)w->layout->group_count; group++)
        COH_TRY(coh_pattern_of_group(w->layout, group)->visit(w, opcode, group));
    for (size_t i = 0; writes && i < w->graph->op_count; i++)
        for (int32_t port = 0; port < w->graph->ops[i].kind.state_count; port++)
            COH_TRY(coh_lower_visit(w, opcode, w->map->kept[coh_port_index((int32_t)i, port)],
                                    COH_ROLE_STATE, -1));
    return COH_OK;
}

/* ---- which lane updates ---- */

/* Operators before the first block are needed first in the next step and finished last in this one:
 * they are on the host only if all others are. */
int coh_lower_is_on_host(const coh_graph *graph, size_t op, int32_t host_updates)
{
    const int32_t blocks = coh_graph_block_count(graph), before = graph->ops[op].blocks_before;
    if (host_updates == 0 || host_updates > blocks)
        return host_updates > 0;
    return before >= blocks - host_updates && (before > 0 || graph->ops[op].block >= 0);
}

/* Assigns each group the lane of the first operator that uses one of its parameters. */
static void choose_lanes(coh_lower_writer *w, int32_t host_updates)
{
    for (size_t i = w->graph->op_count; i-- > 0;)
        for (int32_t port = 0; port < w->graph->ops[i].kind.parameter_count; port++) {
            int32_t parameter = w->graph->ops[i].parameter[port];
            if (parameter >= 0)
                w->group_on_host[w->map->group_of_parameter[parameter]] =
                    (uint8_t)coh_lower_is_on_host(w->graph, i, host_updates);
        }
}

static coh_status lower_kind(coh_lower_writer *w)
{
    int trains = w->options->mode == COH_PLAN_TRAIN;
    switch (w->lowered->kind) {
    case COH_PROGRAM_INIT:
        return lower_visit(w, COH_OP_INIT);
    case COH_PROGRAM_BODY:
        return lower_body(w);
    case COH_PROGRAM_DRAIN:
        return trains && coh_plan_defers(w->options) ? lower_drain(w) : COH_OK;
    case COH_PROGRAM_EVALUATE:
        if (!trains)
            return COH_OK;
        COH_TRY(feed(w));
        return forward(w, 0, (int32_t)w->graph->op_count, 0);
    case COH_PROGRAM_SAVE:
        return trains ? lower_visit(w, COH_OP_SAVE) : COH_OK;
    case COH_PROGRAM_HASH:
        return lower_visit(w, COH_OP_HASH);
    case COH_PROGRAM_IMPORT:
        return lower_visit(w, COH_OP_IMPORT);
    case COH_PROGRAM_EDIT:
        return lower_visit(w, COH_OP_EDIT);
    case COH_PROGRAM_KIND_COUNT:
        break;
    }
    return coh_fail(COH_ERR_INTERNAL, "no program of kind %d", (int)w->lowered->kind);
}

coh_status coh_lower(const coh_graph *graph, const coh_plan_options *options,
                     const coh_layout *layout, const coh_object_map *map,
                     const coh_block_set *recompute, int32_t host_updates, coh_program_kind kind,
                     coh_lowered *out_lowered)
{
    *out_lowered = (coh_lowered){ .kind = kind };
    coh_lower_writer w = { .graph = graph,
                           .options = options,
                           .layout = layout,
                           .map = map,
                           .recompute = recompute,
                           .lowered = out_lowered,
                           .summed_group = -1 };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &w.chunk_touched), done);
    COH_TRY_GOTO(status, COH_ALLOC(layout->chunk_count, &w.chunk_updated), done);
    COH_TRY_GOTO(status, COH_ALLOC(graph->parameter_count, &w.parameter_written), done);
    COH_TRY_GOTO(status, COH_ALLOC(layout->group_count, &w.group_on_host), done);
    choose_lanes(&w, host_updates);
    status = lower_kind(&w);
done:
    coh_free(w.group_on_host);
    coh_free(w.parameter_written);
    coh_free(w.chunk_touched);
    coh_free(w.chunk_updated);
    if (status != COH_OK)
        coh_lowered_fini(out_lowered);
    return status;
}
