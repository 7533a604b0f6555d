/* Checks for each parameter and each activation gradient that the first contribution of a step
 * overwrites and later ones add (rule EXACTLY_ONCE). Missing contributions are found by
 * verify_shares.c; the list of files is in verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* A chunk of gradients may hold several parameters, so its version does not tell whether a
 * parameter was written in this step. Here each parameter is tracked separately: its first
 * contribution of a replica overwrites, later ones add. A parameter alone in its group (this
 * includes all that are taken in row ranges) is tracked chunk by chunk. The gradient of an
 * activation is tracked micro-batch by micro-batch, up to the call that overwrites it. */
typedef struct region_table {
    /* 0: not yet written, or overwritten; 1 + replica, for an activation: 1 + micro-batch */
    uint32_t *by_parameter, *by_chunk;
} region_table;

/* `mark` is the value of a written region. */
static coh_status check_region(coh_verifier *v, uint32_t instruction, uint32_t chunk,
                               uint32_t *region, uint32_t mark, int adds)
{
    int was_written = *region == mark;
    *region = mark;
    if (was_written == adds)
        return COH_OK;
    return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                             adds ? "the first contribution adds to what an earlier step left"
                                  : "a contribution overwrites an earlier one of the same step");
}

/* Checks that a call that overwrites an output's gradient finds it summed. Afterwards it is none,
 * so that no contribution may add to it. */
static coh_status check_spent(coh_verifier *v, uint32_t instruction, uint32_t chunk,
                              uint32_t *region, uint32_t mark)
{
    const int is_there = *region == mark;
    *region = 0;
    return is_there ? COH_OK
                    : coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                        "it overwrites a gradient to which nothing contributed in "
                                        "this micro-batch");
}

static coh_status check_grad_binding(coh_verifier *v, region_table *regions, uint32_t instruction,
                                     const coh_binding *binding, int adds)
{
    const coh_instruction_call *call =
        &v->program->calls[v->program->instructions[instruction].call];
    const uint32_t mark = (uint32_t)coh_layout_replica(v->layout, call->microbatch) + 1;
    const coh_operand *operand = &coh_instruction_operands(v, instruction)[binding->operand];
    const coh_object *object = &v->layout->objects[operand->object];
    const coh_group_layout *group = &v->layout->groups[object->owner];
    const coh_touch *touches = coh_operand_touches(v, operand);
    if (group->parameter_count > 1) {
        for (uint32_t i = 0; i < group->parameter_count; i++)
            if (v->layout->parameters[group->parameter_begin + i].offset *
                    coh_group_grad_factor(group) ==
                binding->object_offset)
                return check_region(v, instruction, touches[0].chunk,
                                    &regions->by_parameter[group->parameter_begin + i], mark, adds);
        return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, touches[0].chunk,
                                 "no parameter of the group begins at byte %" PRIu64,
                                 binding->object_offset);
    }
    for (uint32_t t = 0; t < operand->touch_count; t++)
        COH_TRY(check_region(v, instruction, touches[t].chunk, &regions->by_chunk[touches[t].chunk],
                             mark, adds));
    return COH_OK;
}

static coh_status check_binding(coh_verifier *v, region_table *regions, uint32_t index,
                                const coh_binding *binding)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_instruction_call *call = &v->program->calls[instruction->call];
    const coh_operand *operand = &coh_instruction_operands(v, index)[binding->operand];
    uint8_t stream = v->layout->objects[operand->object].stream;
    uint32_t bits = binding->role == COH_ROLE_PARAMETER_GRAD ? call->parameter_grad_adds
                                                             : call->input_grad_adds;
    int adds = (bits >> (binding->port % 32)) & 1;
    if (!(operand->access & COH_ACCESS_WRITE))
        return COH_OK;
    if (stream == COH_STREAM_GRAD || stream == COH_STREAM_CONTRIBUTION)
        return check_grad_binding(v, regions, index, binding, adds);
    if (stream != COH_STREAM_ACTIVATION_GRAD || call->row_begin > 0)
        return COH_OK; /* later row ranges continue what the first began */
    uint32_t chunk = coh_operand_touches(v, operand)[0].chunk;
    if (binding->role == COH_ROLE_OUTPUT_GRAD)
        return check_spent(v, index, chunk, &regions->by_chunk[chunk],
                           (uint32_t)call->microbatch + 1);
    return check_region(v, index, chunk, &regions->by_chunk[chunk], (uint32_t)call->microbatch + 1,
                        adds);
}

static coh_status check_instruction(coh_verifier *v, region_table *regions, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    if (instruction->call < 0 ||
        (instruction->opcode != COH_OP_BACKWARD && instruction->opcode != COH_OP_ADD) ||
        coh_verify_is_fold(v, index))
        return COH_OK;
    const coh_instruction_call *call = &v->program->calls[instruction->call];
    for (uint32_t i = 0; i < call->binding_count; i++)
        COH_TRY(check_binding(v, regions, index, &v->program->bindings[call->binding_begin + i]));
    return COH_OK;
}

coh_status coh_verify_adds(coh_verifier *v)
{
    region_table regions = { 0 };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->parameter_count, &regions.by_parameter), done);
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->chunk_count, &regions.by_chunk), done);
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        COH_TRY_GOTO(status, check_instruction(v, &regions, i), done);
done:
    coh_free(regions.by_parameter);
    coh_free(regions.by_chunk);
    return status;
}
