/* Compares finished programs with the closed forms of their patterns. The idea: count on the
 * instructions as they will run, not on what lowering meant to write, so that prices and bounds
 * computed from the closed forms hold for the program. Next: pattern.h for the forms. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/comm_parts.h"
#include "planner/pattern.h"

/* Of the FORWARD instructions of one operator. */
typedef struct call_count {
    uint64_t most_bytes;  /* of WORK in one instruction */
    int32_t instructions; /* of the first micro-batch */
} call_count;

static uint64_t parameter_bytes(const coh_program *program, const coh_instruction *instruction)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        if (program->operands[instruction->operand_begin + i].role == COH_ROLE_PARAMETER)
            bytes += program->operands[instruction->operand_begin + i].bytes;
    return bytes;
}

static void count_instruction(const coh_program *program, const coh_instruction *instruction,
                              call_count *counts)
{
    if (instruction->opcode != COH_OP_FORWARD)
        return;
    const coh_instruction_call *call = &program->calls[instruction->call];
    call_count *count = &counts[call->operator_index];
    const uint64_t bytes = parameter_bytes(program, instruction);
    count->most_bytes = bytes > count->most_bytes ? bytes : count->most_bytes;
    count->instructions += call->microbatch == 0;
}

static coh_status compare_calls(const coh_pattern_scene *scene, const coh_program *program,
                                const call_count *counts)
{
    for (int32_t op = 0; op < (int32_t)scene->graph->op_count; op++) {
        const coh_pattern *pattern = coh_pattern_of(scene, op);
        const int32_t parts = pattern->shard(scene, op).parts;
        const uint64_t memory = pattern->memory(scene, op);
        if (counts[op].instructions != parts || counts[op].most_bytes != memory)
            return coh_fail(
                COH_ERR_INTERNAL,
                "the forward of operator %s is %" PRId32 " instructions with at most %" PRIu64
                " bytes of parameters in a %s program; its pattern %s gives %" PRId32
                " with %" PRIu64,
                scene->graph->ops[op].name, counts[op].instructions, counts[op].most_bytes,
                coh_program_kind_name(program->kind), pattern->name, parts, memory);
    }
    return COH_OK;
}

/* Returns the bytes that a lane receives: over the levels of links that it serves those of all
 * groups, and the losses of the other ranks. */
static uint64_t expected_bytes(const coh_layout *layout, coh_program_kind kind, coh_lane lane)
{
    const coh_mesh *mesh = &layout->mesh;
    const coh_link_level world = coh_mesh_group_level(mesh, coh_mesh_all_axes(mesh));
    const uint64_t others = coh_layout_rank_count(layout) - 1;
    uint64_t bytes = 0;
    if (kind == COH_PROGRAM_BODY && coh_link_lane(world) == lane)
        bytes = others * (layout->microbatch_count * COH_LOSS_STRIDE_BYTES +
                          coh_sent_partials_bytes(layout));
    for (uint32_t group = 0; group < layout->group_count; group++)
        for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT; level++)
            if (coh_link_lane((coh_link_level)level) == lane)
                bytes += coh_pattern_of_group(layout, (int32_t)group)
                             ->volume(layout, (int32_t)group, kind, (coh_link_level)level);
    return bytes;
}

/* Returns the bytes that a lane receives because a call has an operand. */
static uint64_t operand_bytes(const coh_layout *layout, const coh_program *program,
                              const coh_instruction *instruction, const coh_operand *operand,
                              coh_lane lane)
{
    const coh_object *object = &layout->objects[operand->object];
    uint64_t bytes = 0;
    if (operand->role != COH_ROLE_PARAMETER || layout->groups[object->owner].work_part < 0)
        return 0;
    for (uint32_t t = 0; t < operand->touch_count; t++)
        for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT; level++)
            if (coh_link_lane((coh_link_level)level) == lane)
                bytes += coh_gathered_bytes(
                    layout, program->touches[operand->touch_begin + t].chunk, program->kind,
                    (coh_opcode)instruction->opcode, (coh_link_level)level);
    return bytes;
}

/* Returns the bytes that a lane receives because calls use work of which each rank has a part. */
static uint64_t used_bytes(const coh_layout *layout, const coh_program *program, coh_lane lane)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        for (uint32_t o = 0; o < instruction->operand_count; o++)
            bytes += operand_bytes(layout, program, instruction,
                                   &program->operands[instruction->operand_begin + o], lane);
    }
    return bytes;
}

static coh_status compare_links(const coh_pattern_scene *scene, const coh_program *program,
                                const uint64_t *lane_bytes)
{
    static const coh_lane lanes[] = { COH_LANE_COMM0, COH_LANE_COMM1 };
    for (int i = 0; i < 2; i++) {
        const uint64_t expected = expected_bytes(scene->layout, program->kind, lanes[i]) +
                                  used_bytes(scene->layout, program, lanes[i]);
        if (lane_bytes[lanes[i]] != expected)
            return coh_fail(COH_ERR_INTERNAL,
                            "the %s program receives %" PRIu64 " bytes on the lane %s; its "
                            "patterns give %" PRIu64,
                            coh_program_kind_name(program->kind), lane_bytes[lanes[i]],
                            coh_lane_name(lanes[i]), expected);
    }
    return COH_OK;
}

coh_status coh_pattern_check(const coh_pattern_scene *scene, const coh_program *program)
{
    uint64_t lane_bytes[COH_LANE_COUNT] = { 0 };
    call_count *counts = NULL;
    COH_TRY(COH_ALLOC(scene->graph->op_count, &counts));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        count_instruction(program, &program->instructions[i], counts);
        lane_bytes[program->instructions[i].lane] += program->instructions[i].bytes;
    }
    const int has_calls =
        program->kind == COH_PROGRAM_BODY || program->kind == COH_PROGRAM_EVALUATE;
    const coh_status status = has_calls ? compare_calls(scene, program, counts) : COH_OK;
    coh_free(counts);
    return status == COH_OK ? compare_links(scene, program, lane_bytes) : status;
}
