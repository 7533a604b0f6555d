/* Writes the instructions of one call of an operator: forward or backward with its operands, and
 * the ADDs of gradients that a kind cannot add. The idea: an instruction lists its operands, and
 * the pattern of each parameter group decides where its gradient goes and which instructions
 * precede and follow the call. The callers are lower.c and the patterns (pattern.c). */
#include "planner/lower_writer.h"
#include "planner/pattern.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/effort.h"

coh_status coh_lower_instruction(coh_lower_writer *w, coh_opcode opcode)
{
    coh_lowered *lowered = w->lowered;
    COH_TRY(coh_effort_check_count(lowered->instruction_count + 1, COH_UNIT_INSTRUCTIONS));
    COH_TRY(COH_EXTEND(&lowered->instructions, &lowered->instruction_capacity,
                       lowered->instruction_count + 1));
    lowered->instructions[lowered->instruction_count++] =
        (coh_lowered_instruction){ .opcode = opcode,
                                   .lane = COH_LANE_COMPUTE,
                                   .predicate_cell = COH_CELL_NONE,
                                   .operand_begin = (uint32_t)lowered->operand_count,
                                   .call = -1 };
    return COH_OK;
}

coh_status coh_lower_operand(coh_lower_writer *w, int32_t object, uint32_t begin, uint32_t end,
                             int access, coh_role role)
{
    coh_lowered *lowered = w->lowered;
    coh_lowered_instruction *instruction = &lowered->instructions[lowered->instruction_count - 1];
    const coh_object *facts = &w->layout->objects[object];
    COH_TRY(coh_effort_check_count(lowered->operand_count + 1, COH_UNIT_OPERANDS));
    COH_TRY(COH_EXTEND(&lowered->operands, &lowered->operand_capacity, lowered->operand_count + 1));
    lowered->operands[lowered->operand_count++] =
        (coh_lowered_operand){ .object = object,
                               .touch_begin = begin,
                               .touch_end = end,
                               .window_begin = begin,
                               .window_end = end,
                               .access = (uint8_t)access,
                               .role = (uint8_t)role,
                               .is_far = instruction->lane == COH_LANE_HOST };
    instruction->operand_count++;
    for (uint32_t i = begin; i < end; i++)
        instruction->bytes +=
            w->layout->chunks[facts->chunk_begin + i].bytes * (access == COH_ACCESS_BOTH ? 2 : 1);
    return COH_OK;
}

coh_status coh_lower_operand_all(coh_lower_writer *w, int32_t object, int access, coh_role role)
{
    return coh_lower_operand(w, object, 0, w->layout->objects[object].chunk_count, access, role);
}

/* Adds a binding to the newest call. */
static coh_status bind(coh_lower_writer *w, const coh_binding *binding)
{
    coh_lowered *lowered = w->lowered;
    if (w->map->is_for_memory)
        return COH_OK;
    COH_TRY(coh_effort_check_count(lowered->binding_count + 1, COH_UNIT_BINDINGS));
    COH_TRY(COH_EXTEND(&lowered->bindings, &lowered->binding_capacity, lowered->binding_count + 1));
    lowered->bindings[lowered->binding_count++] = *binding;
    lowered->calls[lowered->call_count - 1].binding_count++;
    return COH_OK;
}

/* Returns the index of the newest operand of the newest instruction. */
static int newest_operand(const coh_lowered *lowered)
{
    return (int)lowered->instructions[lowered->instruction_count - 1].operand_count - 1;
}

coh_status coh_lower_bind(coh_lower_writer *w, coh_role role, int port, uint64_t object_offset,
                          const coh_shape *shape)
{
    const coh_binding binding = { .role = (uint8_t)role,
                                  .port = (uint8_t)port,
                                  .operand = (uint16_t)newest_operand(w->lowered),
                                  .object_offset = object_offset,
                                  .shape = *shape };
    return bind(w, &binding);
}

/* ---- one call of an operator ---- */

static coh_status open_call(coh_lower_writer *w, int32_t op, int32_t microbatch, coh_row_range rows)
{
    coh_lowered *lowered = w->lowered;
    COH_TRY(COH_EXTEND(&lowered->calls, &lowered->call_capacity, lowered->call_count + 1));
    lowered->calls[lowered->call_count] =
        (coh_instruction_call){ .operator_index = op,
                                .microbatch = microbatch,
                                .row_begin = rows.begin,
                                .row_end = rows.end,
                                .row_count = rows.count,
                                .column_slices =
                                    rows.count > 0 && w->graph->ops[op].kind.column_slices,
                                .binding_begin = (uint32_t)lowered->binding_count };
    lowered->instructions[lowered->instruction_count - 1].call = (int32_t)lowered->call_count++;
    return COH_OK;
}

static coh_shape byte_shape(uint64_t bytes)
{
    return (coh_shape){ .dtype = COH_DTYPE_F32,
                        .rank = 1,
                        .dim = { (int64_t)((bytes + sizeof(float) - 1) / sizeof(float)) } };
}

/* The first of several ranges is a pure write; later ranges add. */
static int writes_or_adds(coh_row_range rows, int adds)
{
    return adds || rows.begin > 0 ? COH_ACCESS_BOTH : COH_ACCESS_WRITE;
}

/* Returns the index of the newest instruction's operand that is `object`, or -1. */
static int find_operand(const coh_lowered *lowered, int32_t object)
{
    const coh_lowered_instruction *instruction =
        &lowered->instructions[lowered->instruction_count - 1];
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        if (lowered->operands[instruction->operand_begin + i].object == object)
            return (int)i;
    return -1;
}

/* Adds an operand for an activation, or for this micro-batch's part of an input or of the loss. A
 * tensor read through two ports is one operand with two bindings. */
static coh_status tensor_port(coh_lower_writer *w, int32_t tensor, int32_t microbatch, int access,
                              coh_role role, int port)
{
    const coh_graph_tensor *facts = &w->graph->tensors[tensor];
    int32_t object = w->map->activation[coh_tensor_index(w->map, tensor, microbatch)];
    uint64_t offset = 0;
    if (facts->producer < 0) {
        object = w->map->activation[tensor];
        offset = coh_shape_bytes(&facts->shape) * (uint64_t)microbatch;
    }
    if (object < 0) { /* the loss */
        object = w->layout->losses;
        offset = (uint64_t)microbatch * COH_LOSS_STRIDE_BYTES;
        access = COH_ACCESS_BOTH;
    }
    int operand = access == COH_ACCESS_READ ? find_operand(w->lowered, object) : -1;
    if (operand < 0) {
        COH_TRY(coh_lower_operand_all(w, object, access, role));
        operand = newest_operand(w->lowered);
    }
    const coh_binding binding = { .role = (uint8_t)role,
                                  .port = (uint8_t)port,
                                  .operand = (uint16_t)operand,
                                  .object_offset = offset,
                                  .shape = facts->shape };
    return bind(w, &binding);
}

/* Finds the chunks [begin, end) of an object that cover bytes [begin, end) of it. */
static void chunks_of_bytes(const coh_layout *layout, int32_t object, uint64_t begin, uint64_t end,
                            uint32_t *out_begin, uint32_t *out_end)
{
    const coh_object *facts = &layout->objects[object];
    uint32_t first = 0;
    while (layout->chunks[facts->chunk_begin + first].object_offset +
               layout->chunks[facts->chunk_begin + first].bytes <=
           begin)
        first++;
    uint32_t last = first;
    while (last < facts->chunk_count &&
           layout->chunks[facts->chunk_begin + last].object_offset < end)
        last++;
    *out_begin = first;
    *out_end = last;
}

/* Finds the chunks of a parameter's group for a row range; the whole group if rows are not split,
 * since all parameters of a group are read together. */
static void parameter_chunks(const coh_lower_writer *w, int32_t parameter, coh_row_range rows,
                             uint32_t *out_begin, uint32_t *out_end)
{
    const coh_group_layout *group = &w->layout->groups[w->map->group_of_parameter[parameter]];
    const coh_object *object = &w->layout->objects[group->work];
    *out_begin = 0;
    *out_end = object->chunk_count;
    if (rows.count == 0 || w->map->row_unit[parameter] == 0)
        return;
    const coh_shape *shape = &w->graph->parameters[parameter].facts.shape;
    uint64_t row_bytes = coh_shape_bytes(shape) / (uint64_t)shape->dim[0];
    chunks_of_bytes(w->layout, group->work, row_bytes * (uint64_t)rows.begin,
                    row_bytes * (uint64_t)rows.end, out_begin, out_end);
}

/* The shape and offset of a parameter's gradient in its group's GRAD. */
static void gradient_place(const coh_lower_writer *w, int32_t parameter, coh_shape *out_shape,
                           uint64_t *out_offset)
{
    const coh_group_layout *group = &w->layout->groups[w->map->group_of_parameter[parameter]];
    *out_shape = w->graph->parameters[parameter].facts.shape;
    out_shape->dtype = coh_group_grad_dtype(group);
    *out_offset = w->layout->parameters[w->map->layout_of_parameter[parameter]].offset *
                  coh_group_grad_factor(group);
}

/* Adds an operand (once per group) and a binding for the WORK or GRAD of one parameter. */
static coh_status parameter_port(coh_lower_writer *w, int32_t parameter, coh_row_range rows,
                                 int access, int32_t object, coh_role role, int port)
{
    const coh_parameter_layout *layout =
        &w->layout->parameters[w->map->layout_of_parameter[parameter]];
    int operand = find_operand(w->lowered, object);
    if (operand < 0) {
        uint32_t begin = 0, end = 0;
        parameter_chunks(w, parameter, rows, &begin, &end);
        COH_TRY(coh_lower_operand(w, object, begin, end, access, role));
        operand = newest_operand(w->lowered);
    }
    coh_shape shape = w->graph->parameters[parameter].facts.shape;
    uint64_t offset = layout->offset;
    if (role == COH_ROLE_PARAMETER_GRAD)
        gradient_place(w, parameter, &shape, &offset);
    int is_split = rows.count > 0 && w->map->row_unit[parameter] > 0;
    if (is_split) {
        offset += coh_shape_bytes(&shape) / (uint64_t)shape.dim[0] * (uint64_t)rows.begin;
        shape.dim[0] = rows.end - rows.begin;
    }
    const coh_binding binding = { .role = (uint8_t)role,
                                  .port = (uint8_t)port,
                                  .operand = (uint16_t)operand,
                                  .object_offset = offset,
                                  .shape = shape,
                                  .origin = { is_split ? rows.begin : 0 } };
    return bind(w, &binding);
}

static coh_status bytes_port(coh_lower_writer *w, int32_t object, int access, coh_role role,
                             uint64_t bytes)
{
    if (object < 0)
        return COH_OK;
    coh_shape shape = byte_shape(bytes);
    COH_TRY(coh_lower_operand_all(w, object, access, role));
    return coh_lower_bind(w, role, 0, 0, &shape);
}

static coh_status workspace_port(coh_lower_writer *w, int32_t index, coh_phase phase, int access)
{
    const int32_t object = w->map->workspace[phase][index];
    return bytes_port(w, object, access, COH_ROLE_WORKSPACE,
                      object < 0 ? 0 : w->layout->objects[object].bytes);
}

/* Returns 1 if the operator has its cache: not if its block is recomputed, and only if a backward
 * follows. */
static int has_cache(const coh_lower_writer *w, int32_t index)
{
    int is_recomputed = w->graph->ops[index].block >= 0 &&
                        coh_block_set_has(w->recompute, w->graph->ops[index].blocks_before);
    return w->map->cache[index] >= 0 && !is_recomputed && w->lowered->kind == COH_PROGRAM_BODY;
}

static coh_status cache_port(coh_lower_writer *w, int32_t index, int32_t microbatch, int access)
{
    int32_t object = w->map->cache[coh_op_index(w->map, index, microbatch)];
    return bytes_port(w, has_cache(w, index) ? object : -1, access, COH_ROLE_CACHE,
                      w->graph->ops[index].facts.cache_bytes);
}

static int32_t saved_object(const coh_lower_writer *w, int32_t index, int32_t microbatch)
{
    return w->map->saved[coh_op_index(w->map, index, microbatch)];
}

/* Adds the cells that a kind draws random numbers from. Only a training step draws: in other
 * programs the instruction has no such operand, and dropout is off. */
static coh_status random_cell(coh_lower_writer *w, int32_t index)
{
    if (!w->graph->ops[index].kind.draws || w->lowered->kind != COH_PROGRAM_BODY ||
        w->options->mode != COH_PLAN_TRAIN)
        return COH_OK;
    return coh_lower_operand_all(w, w->layout->cells, COH_ACCESS_READ, COH_ROLE_CELLS);
}

/* ---- in place ---- */

/* Lets the newest operand be written in the memory of an operand that is read only, if it fits:
 * both are objects of equal size, so that they have equal chunks. */
static void take_memory(coh_lower_writer *w, int32_t from)
{
    const coh_lowered *lowered = w->lowered;
    coh_lowered_operand *operands =
        &lowered->operands[lowered->instructions[lowered->instruction_count - 1].operand_begin];
    const int newest = newest_operand(lowered), taken = find_operand(lowered, from);
    const coh_object *of = &w->layout->objects[operands[newest].object];
    if (taken < 0 || taken >= newest || operands[taken].access != COH_ACCESS_READ ||
        operands[newest].access != COH_ACCESS_WRITE || w->layout->objects[from].pinned ||
        of->pinned || of->bytes != w->layout->objects[from].bytes)
        return;
    for (int i = 0; i < newest; i++)
        if (operands[i].takes == taken + 1)
            return;
    operands[newest].takes = (uint8_t)(taken + 1);
}

/* Returns 1 if nothing reads a tensor after operator `index` has, in this program. Where backward
 * follows, the operator must be the only one that reads it: it runs again only after what makes the
 * tensor, in the same block, has run again. */
static int dies_in_forward(const coh_lower_writer *w, int32_t tensor, int32_t index)
{
    const coh_graph_tensor *facts = &w->graph->tensors[tensor];
    const int has_backward =
        w->options->mode == COH_PLAN_TRAIN && w->lowered->kind == COH_PROGRAM_BODY;
    int ports = 0;
    for (int32_t port = 0; port < w->graph->ops[index].kind.input_count; port++)
        ports += w->graph->ops[index].input[port] == tensor;
    return facts->producer >= 0 && !facts->is_output && ports == 1 &&
           w->map->last_forward_of_tensor[tensor] == index &&
           (!has_backward ||
            (!w->map->is_read_backward[tensor] && w->map->forward_reads[tensor] == 1 &&
             w->graph->ops[facts->producer].block == w->graph->ops[index].block));
}

/* Lets output `port` of the newest instruction, a forward of all rows, be written in place of an
 * input, where its kind can. */
static void forward_in_place(coh_lower_writer *w, int32_t index, int32_t microbatch, int32_t port)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t i = 0; i < op->kind.in_place_count[COH_PHASE_FORWARD]; i++) {
        const coh_in_place pair = op->kind.forward_in_place[i];
        const int32_t tensor = op->input[pair.from];
        if (pair.to == port && dies_in_forward(w, tensor, index))
            take_memory(w, w->map->activation[coh_tensor_index(w->map, tensor, microbatch)]);
    }
}

static coh_status forward_instruction(coh_lower_writer *w, coh_opcode opcode, int32_t index,
                                      int32_t microbatch, coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    COH_TRY(coh_lower_instruction(w, opcode));
    COH_TRY(open_call(w, index, microbatch, rows));
    for (int32_t port = 0; port < op->kind.input_count; port++)
        COH_TRY(tensor_port(w, op->input[port], microbatch, COH_ACCESS_READ, COH_ROLE_INPUT, port));
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        if (op->parameter[port] < 0)
            continue;
        int32_t group = w->map->group_of_parameter[op->parameter[port]];
        COH_TRY(parameter_port(w, op->parameter[port], rows, COH_ACCESS_READ,
                               w->layout->groups[group].work, COH_ROLE_PARAMETER, port));
    }
    for (int32_t port = 0; port < op->kind.output_count; port++) {
        COH_TRY(tensor_port(w, op->output[port], microbatch, writes_or_adds(rows, 0),
                            COH_ROLE_OUTPUT, port));
        if (rows.count == 0)
            forward_in_place(w, index, microbatch, port);
    }
    for (int32_t port = 0; port < op->kind.state_count; port++) {
        COH_TRY(coh_lower_operand_all(w, w->map->kept[coh_port_index(index, port)], COH_ACCESS_BOTH,
                                      COH_ROLE_STATE));
        COH_TRY(coh_lower_bind(w, COH_ROLE_STATE, port, 0, &op->facts.state[port]));
    }
    COH_TRY(bytes_port(w, saved_object(w, index, microbatch), writes_or_adds(rows, 0),
                       COH_ROLE_SAVED, op->facts.saved_bytes));
    COH_TRY(cache_port(w, index, microbatch, writes_or_adds(rows, 0)));
    COH_TRY(random_cell(w, index));
    return workspace_port(w, index, COH_PHASE_FORWARD, COH_ACCESS_WRITE);
}

static int32_t gradient_object(const coh_lower_writer *w, int32_t tensor, int32_t microbatch)
{
    return w->map->gradient[coh_tensor_index(w->map, tensor, microbatch)];
}

/* Returns 1 if an earlier contribution of this step has written the gradient of input `port`.
 * Contributions come in the order of backward: later operators first, and ports of one operator in
 * rising order. */
static int input_grad_adds(const coh_lower_writer *w, int32_t index, int32_t port)
{
    int32_t tensor = w->graph->ops[index].input[port];
    for (int32_t other = 0; other < port; other++)
        if (w->graph->ops[index].input[other] == tensor)
            return 1;
    return w->map->last_backward_of_tensor[tensor] > index;
}

/* Lets the gradient of input `port` of the newest instruction, a backward of all rows that writes
 * it first, be written in place of the gradient of an output, where its kind can: only the backward
 * of its producer reads a tensor's gradient. */
static void backward_in_place(coh_lower_writer *w, int32_t index, int32_t microbatch, int32_t port)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t i = 0; i < op->kind.in_place_count[COH_PHASE_BACKWARD]; i++) {
        const coh_in_place pair = op->kind.backward_in_place[i];
        const int32_t from = gradient_object(w, op->output[pair.from], microbatch);
        if (pair.to == port && from >= 0)
            take_memory(w, from);
    }
}

static coh_status input_grad_ports(coh_lower_writer *w, int32_t index, int32_t microbatch,
                                   coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.input_count; port++) {
        int32_t tensor = op->input[port];
        const coh_shape *shape = &w->graph->tensors[tensor].shape;
        int32_t scratch = w->map->input_scratch[coh_port_index(index, port)];
        int adds = scratch < 0 && input_grad_adds(w, index, port);
        int32_t object = scratch >= 0 ? scratch : gradient_object(w, tensor, microbatch);
        if (object < 0)
            continue;
        COH_TRY(coh_lower_operand_all(w, object, writes_or_adds(rows, adds), COH_ROLE_INPUT_GRAD));
        COH_TRY(coh_lower_bind(w, COH_ROLE_INPUT_GRAD, port, 0, shape));
        if (rows.count == 0 && scratch < 0)
            backward_in_place(w, index, microbatch, port);
        if (adds)
            w->lowered->calls[w->lowered->call_count - 1].input_grad_adds |= 1u << port;
    }
    return COH_OK;
}

static const coh_pattern *pattern_of_parameter(const coh_lower_writer *w, int32_t parameter)
{
    return coh_pattern_of_group(w->layout, w->map->group_of_parameter[parameter]);
}

static coh_status parameter_grad_ports(coh_lower_writer *w, int32_t index, coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        int32_t parameter = op->parameter[port];
        if (parameter < 0 ||
            (op->kind.column_slices && rows.begin > 0 && w->map->row_unit[parameter] == 0))
            continue;
        int32_t scratch = w->map->parameter_scratch[coh_port_index(index, port)];
        if (scratch >= 0) {
            COH_TRY(coh_lower_operand_all(w, scratch, writes_or_adds(rows, 0),
                                          COH_ROLE_PARAMETER_GRAD));
            COH_TRY(coh_lower_bind(w, COH_ROLE_PARAMETER_GRAD, port, 0,
                                   &w->graph->parameters[parameter].facts.shape));
            continue;
        }
        uint32_t begin = 0, end = 0;
        parameter_chunks(w, parameter, rows, &begin, &end);
        const coh_contribution to =
            pattern_of_parameter(w, parameter)->contribute(w, parameter, begin, end);
        if (to.object < 0)
            continue;
        COH_TRY(parameter_port(w, parameter, rows, to.access, to.object, COH_ROLE_PARAMETER_GRAD,
                               port));
        if (to.adds)
            w->lowered->calls[w->lowered->call_count - 1].parameter_grad_adds |= 1u << port;
    }
    return COH_OK;
}

static coh_status backward_reads(coh_lower_writer *w, int32_t index, int32_t microbatch,
                                 coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    const coh_port_mask reads = coh_graph_backward_reads(w->graph, op);
    for (int32_t port = 0; port < op->kind.input_count; port++)
        if ((reads.inputs >> port) & 1)
            COH_TRY(
                tensor_port(w, op->input[port], microbatch, COH_ACCESS_READ, COH_ROLE_INPUT, port));
    for (int32_t port = 0; port < op->kind.output_count; port++)
        if ((reads.outputs >> port) & 1)
            COH_TRY(tensor_port(w, op->output[port], microbatch, COH_ACCESS_READ, COH_ROLE_OUTPUT,
                                port));
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        if (op->parameter[port] < 0 || !((reads.parameters >> port) & 1))
            continue;
        int32_t group = w->map->group_of_parameter[op->parameter[port]];
        COH_TRY(parameter_port(w, op->parameter[port], rows, COH_ACCESS_READ,
                               w->layout->groups[group].work, COH_ROLE_PARAMETER, port));
    }
    for (int32_t port = 0; port < op->kind.output_count; port++) {
        int32_t gradient = gradient_object(w, op->output[port], microbatch);
        const uint32_t bit = op->kind.overwrites_output_grads & 1u << port;
        if (gradient < 0)
            continue;
        COH_TRY(coh_lower_operand_all(w, gradient,
                                      bit && rows.begin == 0 ? COH_ACCESS_BOTH : COH_ACCESS_READ,
                                      COH_ROLE_OUTPUT_GRAD));
        w->lowered->calls[w->lowered->call_count - 1].overwritten_grads |= bit;
        COH_TRY(coh_lower_bind(w, COH_ROLE_OUTPUT_GRAD, port, 0, &op->facts.output[port]));
    }
    return COH_OK;
}

static coh_status backward_instruction(coh_lower_writer *w, int32_t index, int32_t microbatch,
                                       coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    COH_TRY(coh_lower_instruction(w, COH_OP_BACKWARD));
    COH_TRY(open_call(w, index, microbatch, rows));
    COH_TRY(backward_reads(w, index, microbatch, rows));
    /* Sums over row ranges continue from call to call. */
    int goes_on = rows.count > 0 && !op->kind.column_slices;
    int saved_access = goes_on ? COH_ACCESS_BOTH : COH_ACCESS_READ;
    COH_TRY(bytes_port(w, saved_object(w, index, microbatch), saved_access, COH_ROLE_SAVED,
                       op->facts.saved_bytes));
    COH_TRY(cache_port(w, index, microbatch, COH_ACCESS_BOTH));
    COH_TRY(random_cell(w, index));
    COH_TRY(input_grad_ports(w, index, microbatch, rows));
    COH_TRY(parameter_grad_ports(w, index, rows));
    return workspace_port(w, index, COH_PHASE_BACKWARD,
                          op->kind.column_slices ? writes_or_adds(rows, 0) : COH_ACCESS_WRITE);
}

/* Writes one ADD instruction: the part of `object` at `offset` (= or +=) scratch. `access`: to
 * the whole object. */
static coh_status add_instruction(coh_lower_writer *w, int32_t microbatch, int32_t scratch,
                                  const coh_shape *from, int32_t object, uint64_t offset,
                                  int access, int adds, const coh_shape *shape)
{
    COH_TRY(coh_lower_instruction(w, COH_OP_ADD));
    COH_TRY(open_call(w, -1, microbatch, (coh_row_range){ 0 }));
    COH_TRY(coh_lower_operand_all(w, scratch, COH_ACCESS_READ, COH_ROLE_FROM));
    COH_TRY(coh_lower_bind(w, COH_ROLE_FROM, 0, 0, from));
    COH_TRY(coh_lower_operand_all(w, object, access, COH_ROLE_TO));
    COH_TRY(coh_lower_bind(w, COH_ROLE_TO, 0, offset, shape));
    w->lowered->calls[w->lowered->call_count - 1].input_grad_adds = (uint32_t)adds;
    return COH_OK;
}

coh_status coh_lower_fold(coh_lower_writer *w, int32_t from, int32_t to, uint32_t chunk)
{
    const coh_object *object = &w->layout->objects[from];
    const coh_chunk *facts = &w->layout->chunks[object->chunk_begin + chunk];
    const coh_shape shape = byte_shape(facts->bytes);
    COH_TRY(coh_lower_instruction(w, COH_OP_ADD));
    COH_TRY(open_call(w, -1, w->microbatch, (coh_row_range){ 0 }));
    COH_TRY(coh_lower_operand(w, from, chunk, chunk + 1, COH_ACCESS_READ, COH_ROLE_FROM));
    COH_TRY(coh_lower_bind(w, COH_ROLE_FROM, 0, facts->object_offset, &shape));
    COH_TRY(coh_lower_operand(w, to, chunk, chunk + 1, COH_ACCESS_BOTH, COH_ROLE_TO));
    COH_TRY(coh_lower_bind(w, COH_ROLE_TO, 0, facts->object_offset, &shape));
    w->lowered->calls[w->lowered->call_count - 1].input_grad_adds = 1;
    return COH_OK;
}

/* Writes the ADDs of gradients in scratch (because the kind cannot add) to their gradients. */
static coh_status add_instructions(coh_lower_writer *w, int32_t index, int32_t microbatch)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.input_count; port++) {
        int32_t scratch = w->map->input_scratch[coh_port_index(index, port)];
        int32_t gradient = gradient_object(w, op->input[port], microbatch);
        if (scratch < 0 || gradient < 0)
            continue;
        int adds = input_grad_adds(w, index, port);
        const coh_shape *shape = &w->graph->tensors[op->input[port]].shape;
        COH_TRY(add_instruction(w, microbatch, scratch, shape, gradient, 0,
                                adds ? COH_ACCESS_BOTH : COH_ACCESS_WRITE, adds, shape));
    }
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        int32_t scratch = w->map->parameter_scratch[coh_port_index(index, port)];
        int32_t parameter = op->parameter[port];
        if (scratch < 0 || parameter < 0 || w->graph->parameters[parameter].frozen)
            continue;
        uint32_t begin = 0, end = 0;
        coh_shape shape;
        uint64_t offset;
        gradient_place(w, parameter, &shape, &offset);
        parameter_chunks(w, parameter, (coh_row_range){ 0 }, &begin, &end);
        const coh_contribution to =
            pattern_of_parameter(w, parameter)->contribute(w, parameter, begin, end);
        COH_TRY(add_instruction(w, microbatch, scratch,
                                &w->graph->parameters[parameter].facts.shape, to.object, offset,
                                to.access, to.adds, &shape));
    }
    return COH_OK;
}

/* Writes what follows the last contribution of a replica, for the groups that it finishes. */
static coh_status finish_gradients(coh_lower_writer *w, int32_t index, coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        if (op->parameter[port] < 0)
            continue;
        int32_t group = w->map->group_of_parameter[op->parameter[port]];
        int is_done = 0; /* with an earlier parameter of the same group */
        for (int32_t other = 0; other < port; other++)
            is_done |= op->parameter[other] >= 0 &&
                       w->map->group_of_parameter[op->parameter[other]] == group;
        if (is_done || w->layout->groups[group].grad < 0 ||
            w->map->first_backward_of_group[group] != index)
            continue;
        uint32_t begin = 0, end = 0;
        parameter_chunks(w, op->parameter[port], rows, &begin, &end);
        int is_split = w->map->row_unit[op->parameter[port]] > 0 && rows.count > 0;
        if (!is_split && rows.end < rows.count)
            continue; /* finished by the operator's last range */
        COH_TRY(coh_pattern_of_group(w->layout, group)->finish(w, group, begin, end));
    }
    return COH_OK;
}

/* Writes what must precede a call that reads these rows of the parameters at `ports`. */
static coh_status gather_groups(coh_lower_writer *w, coh_opcode opcode, int32_t index,
                                coh_row_range rows, uint32_t ports)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        uint32_t begin = 0, end = 0;
        if (op->parameter[port] < 0 || !((ports >> port) & 1))
            continue;
        const int32_t group = w->map->group_of_parameter[op->parameter[port]];
        int is_done = 0; /* all parameters of a group are read as one */
        for (int32_t other = 0; other < port; other++)
            is_done |= op->parameter[other] >= 0 && ((ports >> other) & 1) &&
                       w->map->group_of_parameter[op->parameter[other]] == group;
        if (is_done)
            continue;
        parameter_chunks(w, op->parameter[port], rows, &begin, &end);
        COH_TRY(coh_pattern_of_group(w->layout, group)->gather(w, opcode, group, begin, end));
    }
    return COH_OK;
}

/* Writes what must precede the first forward of a step that reads these rows. */
static coh_status prepare_groups(coh_lower_writer *w, int32_t index, coh_row_range rows)
{
    const coh_graph_op_entry *op = &w->graph->ops[index];
    for (int32_t port = 0; port < op->kind.parameter_count; port++) {
        uint32_t begin = 0, end = 0;
        if (op->parameter[port] < 0)
            continue;
        parameter_chunks(w, op->parameter[port], rows, &begin, &end);
        COH_TRY(pattern_of_parameter(w, op->parameter[port])
                    ->prepare(w, w->map->group_of_parameter[op->parameter[port]], begin, end));
    }
    return COH_OK;
}

/* Sets the cost of the newest instruction, a call on these rows, for the simulator. */
static void price_call(coh_lower_writer *w, int32_t op, coh_phase phase, coh_row_range rows)
{
    const coh_op_facts *facts = &w->graph->ops[op].facts;
    double share = rows.count > 0 ? (double)(rows.end - rows.begin) / (double)rows.count : 1.0;
    coh_lowered_instruction *instruction =
        &w->lowered->instructions[w->lowered->instruction_count - 1];
    instruction->flops = facts->flops[phase] * share;
    if (has_cache(w, op) && phase == COH_PHASE_BACKWARD)
        instruction->flops -= facts->cache_saves_flops * share;
    if (facts->bytes[phase] > 0) /* with or without a cache: workspace traffic is the same */
        instruction->bytes = (uint64_t)(facts->bytes[phase] * share);
}

coh_status coh_lower_range(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                           int final, coh_row_range rows)
{
    coh_phase phase = opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
    if (opcode == COH_OP_FORWARD && microbatch == 0 && w->lowered->kind == COH_PROGRAM_BODY)
        COH_TRY(prepare_groups(w, op, rows));
    COH_TRY(gather_groups(
        w, opcode, op, rows,
        phase == COH_PHASE_BACKWARD
            ? (uint32_t)coh_graph_backward_reads(w->graph, &w->graph->ops[op]).parameters
            : UINT32_MAX));
    COH_TRY(phase == COH_PHASE_BACKWARD ? backward_instruction(w, op, microbatch, rows)
                                        : forward_instruction(w, opcode, op, microbatch, rows));
    price_call(w, op, phase, rows);
    if (phase == COH_PHASE_FORWARD)
        return COH_OK;
    if (rows.end == rows.count)
        COH_TRY(add_instructions(w, op, microbatch));
    return final ? finish_gradients(w, op, rows) : COH_OK;
}

coh_status coh_lower_call(coh_lower_writer *w, coh_opcode opcode, int32_t op, int32_t microbatch,
                          int final)
{
    const coh_pattern_scene scene = { w->graph, w->layout, w->map };
    w->microbatch = microbatch;
    w->replica = microbatch / coh_replica_microbatches(w->options);
    return coh_pattern_of(&scene, op)->expand(w, opcode, op, microbatch, final);
}
