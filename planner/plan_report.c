/* Reports a plan: sums over its tables, memory by purpose, how it treats each operator, and its
 * programs as text. Nothing here decides anything. Public interface: cohobate/plan.h; the numbers
 * over time come from forecast.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/struct_bytes.h"
#include "planner/comm_parts.h"
#include "planner/fingerprint.h"
#include "planner/layout.h"
#include "planner/plan_make.h"

/* ---- sums ---- */

static void count_parameters(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_layout *layout = &plan->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        out->parameter_count += parameter->elements;
        out->parameter_bytes +=
            coh_dtype_array_bytes(layout->groups[parameter->group].dtype, parameter->elements);
    }
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        if (object->stream == COH_STREAM_CONTRIBUTION || object->stream == COH_STREAM_WORK_COPY ||
            !coh_stream_is_of_group(object->stream))
            continue;
        const coh_group_layout *group = &layout->groups[object->owner];
        const int is_replaced = (group->work == (int32_t)i && group->work_part >= 0) ||
                                (group->grad == (int32_t)i && group->grad_part >= 0);
        if (!is_replaced) /* by what the rank keeps of it */
            out->stream_bytes += object->bytes;
    }
}

/* Counts the bytes over the outermost link of a body by their stream. */
static void count_link_bytes(const coh_plan *plan, const coh_instruction *instruction,
                             coh_plan_summary *out)
{
    const int with_disk = plan->layout.file_bytes > 0;
    if (instruction->opcode != (with_disk ? COH_OP_READ : COH_OP_LOAD) &&
        instruction->opcode != (with_disk ? COH_OP_WRITE : COH_OP_STORE))
        return;
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const int32_t object = body->operands[instruction->operand_begin].object;
    const uint8_t stream = plan->layout.objects[object].stream;
    const int is_work = stream == COH_STREAM_WORK || stream == COH_STREAM_WORK_PART ||
                        stream == COH_STREAM_WORK_COPY;
    uint64_t *bytes = is_work                          ? &out->work_link_bytes
                      : coh_stream_is_gradient(stream) ? &out->grad_link_bytes
                      : stream == COH_STREAM_STATE     ? &out->state_link_bytes
                                                       : &out->other_link_bytes;
    *bytes += instruction->bytes;
    if (instruction->opcode == COH_OP_WRITE)
        out->disk_bytes_written += (double)instruction->bytes;
}

/* `passes`: the number of FORWARD instructions in a row of operator `op`, so far. */
static void count_forward(const coh_program *body, const coh_instruction *instruction, int32_t *op,
                          int32_t *passes, coh_plan_summary *out)
{
    const coh_instruction_call *call = &body->calls[instruction->call];
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        out->caches += body->operands[instruction->operand_begin + o].role == COH_ROLE_CACHE &&
                       call->microbatch == 0 && call->row_begin == 0;
    *passes = call->operator_index == *op ? *passes + 1 : 1;
    *op = call->operator_index;
    if (*passes > out->row_passes)
        out->row_passes = *passes;
}

static void count_body(const coh_plan *plan, coh_plan_summary *out)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    double ns[COH_OP_COUNT] = { 0 }; /* each instruction alone, as in the compute bound */
    int32_t op = -1, passes = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        ns[instruction->opcode] +=
            coh_price_instruction(&plan->pricer, &plan->layout, body, instruction).p50;
        count_link_bytes(plan, instruction, out);
        if (instruction->opcode == COH_OP_UPDATE && instruction->lane == COH_LANE_HOST)
            out->host_update_bytes += body->operands[instruction->operand_begin].bytes;
        if (instruction->opcode == COH_OP_FORWARD)
            count_forward(body, instruction, &op, &passes, out);
    }
    out->forward_ns = coh_whole_ns(ns[COH_OP_FORWARD]);
    out->recompute_ns = coh_whole_ns(ns[COH_OP_RECOMPUTE]);
}

static uint64_t count_kept(const coh_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++)
        if (coh_chunk_keeps_old(layout, chunk))
            bytes += layout->chunks[chunk].bytes;
    return bytes;
}

static void count_unmeasured(const coh_plan *plan, coh_plan_summary *out)
{
    for (size_t op = 0; op < plan->graph->op_count; op++)
        if (!coh_pricer_is_measured(&plan->pricer, op)) {
            if (out->unmeasured_operators++ == 0)
                out->unmeasured_kind = plan->graph->ops[op].kind.name;
        }
}

/* Returns over how many ranks the streams of a group are divided. */
static coh_rank_parts parts_of(const coh_layout *layout, const coh_group_layout *group)
{
    const coh_mesh *mesh = &layout->mesh;
    return (coh_rank_parts){ coh_mesh_group_size(mesh, coh_inner_axes(group->axes.work)),
                             coh_mesh_group_size(mesh, coh_inner_axes(group->axes.grad)),
                             coh_mesh_group_size(mesh, coh_inner_axes(group->axes.state)) };
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static coh_rank_parts most_parts(const coh_layout *layout)
{
    coh_rank_parts most = { 1, 1, 1 };
    for (uint32_t i = 0; i < layout->group_count; i++) {
        const coh_rank_parts parts = parts_of(layout, &layout->groups[i]);
        most = (coh_rank_parts){ larger(most.work, parts.work), larger(most.grad, parts.grad),
                                 larger(most.state, parts.state) };
    }
    return most;
}

coh_status coh_plan_summarize(const coh_plan *plan, coh_plan_summary *out_summary)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_plan_summary, out_summary);
    const coh_simulation *body = &plan->simulations[COH_PROGRAM_BODY];
    coh_plan_summary s = { .smallest_device_bytes = plan->smallest_device_bytes,
                           .smallest_is_proven = plan->smallest_is_proven,
                           .step_ns = body->period_ns,
                           .bound_ns =
                               plan->least.ns > 0 ? plan->least.light_ns : plan->bounds.most_ns,
                           .binding = plan->bounds.binding,
                           .runner_up = plan->bounds.runner_up,
                           .step_alone_ns = plan->forecast.alone_ns,
                           .step_contended_ns = plan->forecast.contended_ns,
                           .step_p10_ns = plan->forecast.p10_ns,
                           .step_p50_ns = plan->forecast.p50_ns,
                           .step_p90_ns = plan->forecast.p90_ns,
                           .drain_ns = plan->simulations[COH_PROGRAM_DRAIN].first_ns,
                           .save_ns = plan->simulations[COH_PROGRAM_SAVE].first_ns,
                           .evaluate_ns = plan->simulations[COH_PROGRAM_EVALUATE].first_ns,
                           .instruction_count = plan->programs[COH_PROGRAM_BODY].instruction_count,
                           .numeric_fingerprint = plan->numeric_fingerprint,
                           .program_hash = plan->program_hash,
                           .sweep_order = plan->options.sweep_order,
                           .order_keeps_bits = !coh_order_changes_bits(plan->graph),
                           .disk_limit_bytes = plan->options.disk_bytes,
                           .kept_bytes = count_kept(&plan->layout),
                           .rank_parts = most_parts(&plan->layout),
                           .recomputes = coh_block_set_count(&plan->decisions.recompute),
                           .chunk_bytes = plan->decisions.chunk_bytes };
    memcpy(s.rank_pattern, plan->options.rank_pattern, sizeof(s.rank_pattern));
    count_unmeasured(plan, &s);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        s.peak_bytes[tier] = plan->layout.arena_bytes[tier];
        s.step_peak_bytes[tier] = plan->programs[COH_PROGRAM_BODY].peak_bytes[tier];
    }
    for (int bound = 0; bound < COH_PLAN_BOUND_COUNT; bound++)
        s.bounds_ns[bound] = plan->bounds.ns[bound];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        s.least_link_bytes[lane] = plan->bounds.least_bytes[lane];
        s.busy_ns[lane] = body->busy_ns[lane];
        s.exposed_ns[lane] = body->exposed_ns[lane];
        s.link_bytes[lane] = body->link_bytes[lane];
    }
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        s.program_count += plan->programs[kind].instruction_count > 0;
        s.verified_instructions += (int32_t)plan->programs[kind].instruction_count;
    }
    count_parameters(plan, &s);
    count_body(plan, &s);
    COH_STRUCT_FILL(s, out_summary);
    return COH_OK;
}

const coh_profile *coh_plan_profile(const coh_plan *plan)
{
    return plan != NULL ? &plan->profile : NULL;
}

/* ---- memory ---- */

coh_status coh_plan_memory_curve(const coh_plan *plan, int32_t count, uint64_t *out_bytes)
{
    COH_NEED(plan);
    COH_NEED(out_bytes);
    if (count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "a memory curve of %d points: it has at least one",
                        count);
    return coh_forecast_memory(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                               (uint32_t)count, out_bytes);
}

static const coh_plan_purpose purposes[COH_STREAM_COUNT] = {
    [COH_STREAM_WORK] = COH_PLAN_PARAMETERS,
    [COH_STREAM_GRAD] = COH_PLAN_GRADIENTS,
    [COH_STREAM_STATE] = COH_PLAN_STATES,
    [COH_STREAM_ACTIVATION] = COH_PLAN_ACTIVATIONS,
    [COH_STREAM_ACTIVATION_GRAD] = COH_PLAN_ACTIVATIONS,
    [COH_STREAM_SAVED] = COH_PLAN_ACTIVATIONS,
    [COH_STREAM_CACHE] = COH_PLAN_ACTIVATIONS,
    [COH_STREAM_KEPT] = COH_PLAN_ACTIVATIONS,
    [COH_STREAM_SCRATCH] = COH_PLAN_WORKSPACES,
    [COH_STREAM_CELLS] = COH_PLAN_WORKSPACES,
    [COH_STREAM_PARTIALS] = COH_PLAN_WORKSPACES,
    [COH_STREAM_INPUT] = COH_PLAN_WORKSPACES,
    [COH_STREAM_LOSS] = COH_PLAN_WORKSPACES,
    [COH_STREAM_OUTPUT] = COH_PLAN_WORKSPACES,
    [COH_STREAM_CONTRIBUTION] = COH_PLAN_GRADIENTS,
    [COH_STREAM_WIRE] = COH_PLAN_WORKSPACES,
    [COH_STREAM_GATHERED] = COH_PLAN_WORKSPACES,
    [COH_STREAM_WORK_PART] = COH_PLAN_PARAMETERS,
    [COH_STREAM_WORK_COPY] = COH_PLAN_PARAMETERS,
    [COH_STREAM_GRAD_PART] = COH_PLAN_GRADIENTS,
};

coh_status coh_plan_memory(const coh_plan *plan,
                           uint64_t out_bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES])
{
    COH_NEED(plan);
    COH_NEED(out_bytes);
    uint64_t streams[COH_TIER_COUNT][COH_STREAM_COUNT];
    COH_TRY(coh_forecast_fullest(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                                 streams));
    memset(out_bytes, 0, COH_TIER_COUNT * sizeof(out_bytes[0]));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
            out_bytes[tier][purposes[stream]] += streams[tier][stream];
    return COH_OK;
}

/* ---- operators ---- */

/* Returns the operator whose output, saved object or cache this object is; -1: none. */
static int32_t maker_of(const coh_plan *plan, const coh_object *object)
{
    if (object->stream == COH_STREAM_ACTIVATION)
        return plan->graph->tensors[object->owner].producer;
    return object->stream == COH_STREAM_SAVED || object->stream == COH_STREAM_CACHE ? object->owner
                                                                                    : -1;
}

static void note_call(coh_plan *plan, const coh_instruction *instruction)
{
    const coh_instruction_call *call = &plan->programs[COH_PROGRAM_BODY].calls[instruction->call];
    coh_operator_note *note = &plan->operator_notes[call->operator_index];
    note->part_count += instruction->opcode == COH_OP_FORWARD && call->microbatch == 0;
    note->is_recomputed |= instruction->opcode == COH_OP_RECOMPUTE;
}

static void note_instruction(coh_plan *plan, const coh_instruction *instruction)
{
    if (instruction->opcode == COH_OP_FORWARD || instruction->opcode == COH_OP_RECOMPUTE)
        note_call(plan, instruction);
    if (instruction->operand_count == 0)
        return;
    const int32_t object =
        plan->programs[COH_PROGRAM_BODY].operands[instruction->operand_begin].object;
    if (instruction->opcode == COH_OP_UPDATE &&
        plan->object_notes[object].update_lane == COH_LANE_COUNT)
        plan->object_notes[object].update_lane = instruction->lane;
    const int32_t maker = maker_of(plan, &plan->layout.objects[object]);
    if (instruction->lane != COH_LANE_COMPUTE && maker >= 0)
        plan->operator_notes[maker].is_moved = 1;
}

static void name_pattern(coh_operator_note *note)
{
    snprintf(note->pattern, sizeof(note->pattern), note->part_count > 1 ? "slice x%d" : "replicate",
             note->part_count);
}

/* Names the ranks that the streams of a parameter are divided over in the note of its operator. */
static void name_parts(coh_plan *plan, const coh_parameter_layout *parameter)
{
    const coh_group_layout *group = &plan->layout.groups[parameter->group];
    const coh_rank_parts parts = parts_of(&plan->layout, group);
    const int32_t copy =
        group->axes.copy > 0
            ? coh_mesh_group_size(&plan->layout.mesh, coh_inner_axes(group->axes.copy))
            : 0;
    coh_operator_note *note =
        &plan->operator_notes[plan->graph->parameters[parameter->parameter].op];
    if (parts.state == 1)
        return;
    int length = snprintf(note->pattern, sizeof(note->pattern), "%d/%d/%d", parts.work, parts.grad,
                          parts.state);
    if (copy > 0)
        length +=
            snprintf(note->pattern + length, sizeof(note->pattern) - (size_t)length, "/%d", copy);
    if (note->part_count > 1)
        snprintf(note->pattern + length, sizeof(note->pattern) - (size_t)length, " x%d",
                 note->part_count);
}

coh_status coh_plan_note_operators(coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const coh_layout *layout = &plan->layout;
    assert(plan->operator_notes == NULL);
    COH_TRY(COH_ALLOC(plan->graph->op_count, &plan->operator_notes));
    COH_TRY(COH_ALLOC(layout->object_count, &plan->object_notes));
    for (uint32_t i = 0; i < layout->object_count; i++)
        plan->object_notes[i].update_lane = COH_LANE_COUNT;
    for (uint32_t i = 0; i < body->instruction_count; i++)
        note_instruction(plan, &body->instructions[i]);
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        const coh_resident *resident = &layout->residents[i];
        plan->object_notes[layout->chunks[resident->chunk].object].resident_count[resident->tier]++;
    }
    for (size_t op = 0; op < plan->graph->op_count; op++)
        name_pattern(&plan->operator_notes[op]);
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        name_parts(plan, &layout->parameters[i]);
    return COH_OK;
}

int32_t coh_plan_operator_count(const coh_plan *plan)
{
    return plan != NULL ? (int32_t)plan->graph->op_count : 0;
}

/* "device", "host", "disk", or several of them: where an object lies between steps. */
static const char *place_name(const coh_plan *plan, int32_t object)
{
    if (object < 0)
        return "-";
    const uint32_t chunks = plan->layout.objects[object].chunk_count;
    const uint32_t on_device = plan->object_notes[object].resident_count[COH_TIER_DEVICE];
    const uint32_t on_host = plan->object_notes[object].resident_count[COH_TIER_HOST];
    if (on_device == chunks)
        return "device";
    if (on_host == chunks)
        return "host";
    if (plan->layout.file_bytes == 0)
        return "device+host";
    if (on_device > 0 && on_host > 0)
        return "device+host+disk";
    return on_device > 0 ? "device+disk" : on_host > 0 ? "host+disk" : "disk";
}

/* The lane on which the body updates a work object. */
static const char *update_name(const coh_plan *plan, int32_t work)
{
    const uint8_t lane = work >= 0 ? plan->object_notes[work].update_lane : COH_LANE_COUNT;
    if (lane == COH_LANE_COUNT)
        return "-";
    return lane == COH_LANE_HOST ? "host" : "device";
}

/* How the operator's outputs reach backward: "again" is of light operators (light.h). */
static const char *activations_name(const coh_plan *plan, const coh_graph_op_entry *op,
                                    const coh_operator_note *note)
{
    if (note->is_recomputed)
        return coh_block_set_has(&plan->decisions.recompute, op->blocks_before) ? "recompute"
                                                                                : "again";
    return note->is_moved ? "move" : "keep";
}

coh_status coh_plan_operator_at(const coh_plan *plan, int32_t index,
                                coh_plan_operator *out_operator)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_plan_operator, out_operator);
    if (index < 0 || index >= coh_plan_operator_count(plan))
        return coh_fail(COH_ERR_ARGUMENT, "operator %d is not one of %d", index,
                        coh_plan_operator_count(plan));
    const coh_graph_op_entry *op = &plan->graph->ops[index];
    assert(plan->operator_notes != NULL);
    const coh_operator_note *note = &plan->operator_notes[index];
    coh_plan_operator o = { .name = op->name,
                            .kind = op->kind.name,
                            .block = op->block,
                            .saved_bytes = op->facts.saved_bytes,
                            .activations = activations_name(plan, op, note),
                            .parameters = "-",
                            .states = "-",
                            .updates = "-",
                            .pattern = note->pattern };
    for (int32_t port = 0; port < op->kind.output_count; port++)
        o.activation_bytes += coh_shape_bytes(&op->facts.output[port]);
    for (int32_t port = 0; port < op->kind.parameter_count; port++)
        if (op->parameter[port] >= 0)
            o.parameter_bytes += coh_shape_bytes(&op->facts.parameter[port].shape);
    for (uint32_t i = 0; i < plan->layout.parameter_count; i++) {
        const coh_parameter_layout *parameter = &plan->layout.parameters[i];
        for (int32_t port = 0; port < op->kind.parameter_count; port++)
            if (op->parameter[port] == parameter->parameter) {
                o.parameters =
                    place_name(plan, coh_group_kept_work(&plan->layout.groups[parameter->group]));
                o.states = place_name(plan, plan->layout.groups[parameter->group].state);
                o.updates =
                    update_name(plan, coh_group_kept_work(&plan->layout.groups[parameter->group]));
            }
    }
    COH_STRUCT_FILL(o, out_operator);
    return COH_OK;
}

int coh_plan_leaves_unused(const coh_plan *plan, const coh_parameter_layout *parameter)
{
    return plan->options.mode == COH_PLAN_TRAIN &&
           !plan->graph->parameters[parameter->parameter].frozen &&
           plan->layout.groups[parameter->group].optimizer < 0;
}

coh_status coh_plan_parameter_at(const coh_plan *plan, int32_t index,
                                 coh_plan_parameter *out_parameter)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_plan_parameter, out_parameter);
    const coh_layout *layout = &plan->layout;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        if (layout->parameters[i].parameter != index)
            continue;
        const coh_graph_parameter *of = &plan->graph->parameters[index];
        const int32_t optimizer = layout->groups[layout->parameters[i].group].optimizer;
        const coh_plan_parameter parameter = {
            .name = of->name,
            .optimizer = optimizer >= 0 ? layout->optimizers[optimizer]->name : NULL,
            .is_unused = coh_plan_leaves_unused(plan, &layout->parameters[i])
        };
        COH_STRUCT_FILL(parameter, out_parameter);
        return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT, "parameter %d is not one of %u", index,
                    layout->parameter_count);
}

/* ---- programs as text ---- */

/* Adds " over data0,data1 in parts of 4096 f32 as int8": the group as its axes. */
static coh_status add_comm(const coh_mesh *mesh, const coh_comm_call *comm, coh_text *text)
{
    const char *before = " over ";
    for (int axis = 0; axis < mesh->axis_count; axis++) {
        if (!(comm->axes >> axis & 1))
            continue;
        COH_TRY(coh_text_add(text, "%s%s", before, mesh->axes[axis].name));
        before = ",";
    }
    COH_TRY(coh_text_add(text, " in parts of %" PRIu64 " %s", comm->part_bytes,
                         comm->dtype == COH_DTYPE_F32 ? "f32" : "bf16"));
    return comm->wire == COH_WIRE_STORED ? COH_OK
                                         : coh_text_add(text, " as %s", coh_wire_name(comm->wire));
}

static coh_status add_instruction(const coh_plan *plan, const coh_program *p,
                                  const coh_instruction *instruction, coh_text *text)
{
    const coh_instruction_call *call = instruction->call >= 0 ? &p->calls[instruction->call] : NULL;
    COH_TRY(coh_text_add(text, "%7s %-6u at %-6u %-9s", coh_lane_name((coh_lane)instruction->lane),
                         instruction->ordinal, instruction->position,
                         coh_opcode_name((coh_opcode)instruction->opcode)));
    if (call != NULL && call->operator_index >= 0)
        COH_TRY(coh_text_add(text, " %s/%d", plan->graph->ops[call->operator_index].name,
                             call->microbatch));
    if (instruction->comm > 0)
        COH_TRY(add_comm(&plan->layout.mesh, &p->comms[instruction->comm - 1], text));
    for (uint32_t k = 0; k < instruction->operand_count; k++) {
        const coh_operand *operand = &p->operands[instruction->operand_begin + k];
        COH_TRY(coh_text_add(
            text, " %c%s:%d+%" PRIu64 "@%s+%" PRIu64 ":%" PRIu64 " v%d", "-rwb"[operand->access],
            coh_stream_name((coh_stream)plan->layout.objects[operand->object].stream),
            operand -> object, operand -> object_offset, coh_tier_name((coh_tier)operand->tier),
            operand -> offset, operand -> bytes, p -> touches[operand->touch_begin].version));
    }
    for (uint32_t k = 0; k < instruction->wait_count; k++) {
        const coh_wait *wait = &p->waits[instruction->wait_begin + k];
        COH_TRY(coh_text_add(text, " wait:%s>=%u%s", coh_lane_name((coh_lane)wait->lane),
                             wait->ordinal, wait->carry ? "'" : ""));
    }
    return coh_text_add(text, "\n");
}

static coh_status add_programs(const coh_plan *plan, coh_text *text)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *p = &plan->programs[kind];
        if (p->instruction_count > 0)
            COH_TRY(coh_text_add(text, "program %s: %u instructions\n",
                                 coh_program_kind_name((coh_program_kind)kind),
                                 p->instruction_count));
        for (uint32_t i = 0; i < p->instruction_count; i++)
            COH_TRY(add_instruction(plan, p, &p->instructions[i], text));
    }
    return COH_OK;
}

coh_status coh_plan_write_program(const coh_plan *plan, const char *path)
{
    COH_NEED(plan);
    COH_NEED_PATH(path);
    coh_text text = { 0 };
    COH_TRY(coh_file_check_own(path, "program ", NULL, "program listing"));
    coh_status status = add_programs(plan, &text);
    if (status == COH_OK)
        status = coh_file_write_whole(path, text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}
