#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* A chunk of gradients may hold several parameters, so its version does not tell whether this parameter
 * was written in this step. Here each one is followed by itself: its first contribution of the step
 * overwrites, the later ones add. A parameter alone in its group (all that come by ranges of rows) is
 * followed chunk by chunk. */
typedef struct region_table {
    uint32_t *by_parameter, *by_chunk; /* 1 + line of the latest contribution */
} region_table;

static coh_status check_region(coh_verifier *v, uint32_t line, uint32_t chunk, uint32_t *writer,
                               int adds)
{
    uint32_t before = *writer;
    *writer = line + 1;
    if (before == line + 1 || (before != 0) == adds)
        return COH_OK;
    return coh_verify_breach(
        v, COH_RULE_EXACTLY_ONCE, line, chunk,
        adds ? "the first contribution of a step to a parameter adds to the step "
               "before's"
             : "a contribution overwrites an earlier one of the same parameter");
}

static coh_status check_grad_binding(coh_verifier *v, region_table *regions, uint32_t line,
                                     const coh_binding *binding, int adds)
{
    const coh_operand *operand = &coh_line_operands(v, line)[binding->operand];
    const coh_object *object = &v->layout->objects[operand->object];
    const coh_group_layout *group = &v->layout->groups[object->owner];
    const coh_touch *touches = coh_operand_touches(v, operand);
    if (group->parameter_count > 1) {
        for (uint32_t i = 0; i < group->parameter_count; i++)
            if (v->layout->parameters[group->parameter_begin + i].offset == binding->object_offset)
                return check_region(v, line, touches[0].chunk,
                                    &regions->by_parameter[group->parameter_begin + i], adds);
        return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, line, touches[0].chunk,
                                 "no parameter of the group begins at byte %" PRIu64,
                                 binding->object_offset);
    }
    for (uint32_t t = 0; t < operand->touch_count; t++)
        COH_TRY(
            check_region(v, line, touches[t].chunk, &regions->by_chunk[touches[t].chunk], adds));
    return COH_OK;
}

static coh_status check_line(coh_verifier *v, region_table *regions, uint32_t index)
{
    const coh_instruction *line = &v->program->lines[index];
    if (line->call < 0 || (line->opcode != COH_OP_BACKWARD && line->opcode != COH_OP_ADD))
        return COH_OK;
    const coh_line_call *call = &v->program->calls[line->call];
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &v->program->bindings[call->binding_begin + i];
        const coh_operand *operand = &coh_line_operands(v, index)[binding->operand];
        uint32_t adds =
            line->opcode == COH_OP_ADD ? call->input_grad_adds : call->parameter_grad_adds;
        if (v->layout->objects[operand->object].stream == COH_STREAM_GRAD &&
            (operand->access & COH_ACCESS_WRITE))
            COH_TRY(
                check_grad_binding(v, regions, index, binding, (adds >> (binding->port % 32)) & 1));
    }
    return COH_OK;
}

coh_status coh_verify_adds(coh_verifier *v)
{
    region_table regions = { 0 };
    coh_status status = COH_OK;
    for (uint32_t g = 0; g < v->layout->group_count; g++) {
        const coh_group_layout *group = &v->layout->groups[g];
        if (group->parameter_begin > v->layout->parameter_count ||
            group->parameter_count > v->layout->parameter_count - group->parameter_begin)
            return coh_verify_breach(v, COH_RULE_FORM, COH_NO_LINE, UINT32_MAX,
                                     "group %" PRIu32 " has parameters outside the table", g);
    }
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->parameter_count, &regions.by_parameter), done);
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->chunk_count, &regions.by_chunk), done);
    for (uint32_t i = 0; i < v->program->line_count; i++)
        COH_TRY_GOTO(status, check_line(v, &regions, i), done);
done:
    coh_free(regions.by_parameter);
    coh_free(regions.by_chunk);
    return status;
}
