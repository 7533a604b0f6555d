/* Reports how a plan treats each operator, read from its body's instructions and its boundary
 * map. */
#include <assert.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "planner/layout.h"
#include "planner/plan.h"
#include "planner/plan_make.h"

/* ---- notes ---- */

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
    for (size_t op = 0; op < plan->graph->op_count; op++) {
        coh_operator_note *note = &plan->operator_notes[op];
        snprintf(note->pattern, sizeof(note->pattern),
                 note->part_count > 1 ? "slice x%d" : "replicate", note->part_count);
    }
    return COH_OK;
}

/* ---- public ---- */

int32_t coh_plan_operator_count(const coh_plan *plan)
{
    if (plan == NULL)
        return 0;
    return (int32_t)plan->graph->op_count;
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
                            .activations = note->is_recomputed ? "recompute"
                                           : note->is_moved    ? "move"
                                                               : "keep",
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
                o.parameters = place_name(plan, plan->layout.groups[parameter->group].work);
                o.states = place_name(plan, plan->layout.groups[parameter->group].state);
                o.updates = update_name(plan, plan->layout.groups[parameter->group].work);
            }
    }
    COH_STRUCT_FILL(o, out_operator);
    return COH_OK;
}
