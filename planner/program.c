/* Names, hashing and release of a program's tables. The idea: the hash covers every table in a
 * fixed order, so equal hashes mean equal programs. The tables are defined and explained in
 * program.h. */
#include "planner/program.h"

#include <xxhash.h>

#include "base/alloc.h"
#include "planner/opcodes.h"

void coh_program_fini(coh_program *program)
{
    coh_free(program->extents);
    coh_free(program->instructions);
    coh_free(program->operands);
    coh_free(program->touches);
    coh_free(program->waits);
    coh_free(program->calls);
    coh_free(program->bindings);
    coh_free(program->comms);
    *program = (coh_program){ 0 };
}

void coh_layout_fini(coh_layout *layout)
{
    coh_free(layout->objects);
    coh_free(layout->chunks);
    coh_free(layout->parameters);
    coh_free(layout->groups);
    coh_free(layout->residents);
    coh_free(layout->input_objects);
    *layout = (coh_layout){ 0 };
}

/* Adds one number to a running hash. */
static uint64_t fold(uint64_t hash, uint64_t value)
{
    return XXH3_64bits_withSeed(&value, sizeof(value), hash);
}

static uint64_t hash_layout(const coh_layout *layout)
{
    uint64_t hash = fold(0, layout->object_count);
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        hash = fold(hash, object->bytes);
        hash = fold(hash, ((uint64_t)object->chunk_count << 32) | object->stream);
        hash = fold(hash, object->pinned ? object->pinned_offset + 1 : 0);
    }
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        hash = fold(hash, layout->chunks[i].object_offset);
        hash = fold(hash, layout->chunks[i].bytes);
        hash = fold(hash, layout->chunks[i].file_offset);
        if (coh_chunk_keeps_old(layout, i))
            hash = fold(hash, layout->chunks[i].odd_offset);
        if (layout->chunks[i].owner_rank != 0)
            hash = fold(hash, (uint64_t)layout->chunks[i].owner_rank);
        if (layout->chunks[i].is_divided)
            hash = fold(hash, 1);
    }
    for (int axis = 0; axis < layout->mesh.axis_count; axis++) {
        hash = fold(hash, (uint64_t)layout->mesh.axes[axis].rank_count);
        hash = fold(hash, (uint64_t)coh_mesh_group_level(&layout->mesh, 1u << axis));
    }
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        hash = fold(hash, ((uint64_t)layout->residents[i].chunk << 8) | layout->residents[i].tier);
        hash = fold(hash, layout->residents[i].offset);
    }
    return hash;
}

static uint64_t hash_comm(uint64_t hash, const coh_comm_call *comm)
{
    hash = fold(hash, ((uint64_t)comm->axes << 32) | (uint32_t)comm->dtype);
    if (comm->wire != COH_WIRE_STORED)
        hash = fold(hash, (uint64_t)comm->wire);
    return fold(fold(hash, (uint64_t)(int64_t)comm->root), comm->part_bytes);
}

static uint64_t hash_instruction(uint64_t hash, const coh_program *program,
                                 const coh_instruction *instruction)
{
    hash = fold(hash, ((uint64_t)instruction->opcode << 32) | ((uint64_t)instruction->lane << 16) |
                          (uint8_t)instruction->predicate_cell);
    hash = fold(hash, ((uint64_t)instruction->ordinal << 32) | instruction->position);
    if (instruction->comm > 0)
        hash = hash_comm(hash, &program->comms[instruction->comm - 1]);
    for (uint32_t i = 0; i < instruction->operand_count; i++) {
        const coh_operand *operand = &program->operands[instruction->operand_begin + i];
        hash = fold(hash, ((uint64_t)(uint32_t)operand->object << 32) |
                              ((uint64_t)operand->tier << 16) | ((uint64_t)operand->access << 8) |
                              operand->role);
        hash = fold(hash, operand->object_offset);
        hash = fold(hash, operand->bytes);
        hash = fold(hash, operand->offset);
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const coh_touch *touch = &program->touches[operand->touch_begin + t];
            hash = fold(hash, ((uint64_t)touch->chunk << 32) | touch->extent);
            hash = fold(hash, (uint64_t)(uint32_t)touch->version);
        }
    }
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const coh_wait *wait = &program->waits[instruction->wait_begin + i];
        hash =
            fold(hash, ((uint64_t)wait->ordinal << 16) | ((uint64_t)wait->lane << 8) | wait->carry);
    }
    if (instruction->call < 0)
        return fold(hash, 0);
    const coh_instruction_call *call = &program->calls[instruction->call];
    hash =
        fold(hash, ((uint64_t)(uint32_t)call->operator_index << 32) | (uint32_t)call->microbatch);
    hash = fold(hash, (uint64_t)call->row_begin);
    hash = fold(hash, (uint64_t)call->column_slices);
    hash = fold(hash, (uint64_t)call->row_end);
    return fold(hash, ((uint64_t)call->input_grad_adds << 32) | call->parameter_grad_adds);
}

uint64_t coh_program_hash(const coh_layout *layout, const coh_program *program)
{
    uint64_t hash = fold(hash_layout(layout), (uint64_t)program->kind);
    for (uint32_t i = 0; i < program->instruction_count; i++)
        hash = hash_instruction(hash, program, &program->instructions[i]);
    for (uint32_t i = 0; i < program->extent_count; i++)
        hash = fold(hash, ((uint64_t)program->extents[i].use_count << 2) |
                              (program->extents[i].at_begin ? 2u : 0u) |
                              (program->extents[i].at_end ? 1u : 0u));
    return hash;
}

void coh_program_extent_roots(const coh_program *program, uint32_t *out_root)
{
    for (uint32_t e = 0; e < program->extent_count; e++)
        out_root[e] = e;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_operand *operands = &program->operands[program->instructions[i].operand_begin];
        for (uint32_t o = 0; o < program->instructions[i].operand_count; o++)
            for (uint32_t t = 0; operands[o].takes > 0 && t < operands[o].touch_count; t++) {
                const coh_operand *taken = &operands[operands[o].takes - 1];
                out_root[program->touches[operands[o].touch_begin + t].extent] =
                    out_root[program->touches[taken->touch_begin + t].extent];
            }
    }
}

const char *coh_opcode_name(coh_opcode opcode)
{
    return (unsigned)opcode < COH_OP_COUNT ? coh_opcode_rows[opcode].name : "unknown";
}

const char *coh_program_kind_name(coh_program_kind kind)
{
    static const char *const names[COH_PROGRAM_KIND_COUNT] = { "init", "body", "drain",  "evaluate",
                                                               "save", "hash", "import", "edit" };
    return (unsigned)kind < COH_PROGRAM_KIND_COUNT ? names[kind] : "unknown";
}

const char *coh_stream_name(coh_stream stream)
{
    static const char *const names[COH_STREAM_COUNT] = {
        "work",     "grad",     "state",     "activation",    "activation gradient",
        "saved",    "cache",    "scratch",   "kept",          "cells",
        "partials", "input",    "loss",      "output",        "contribution",
        "wire",     "gathered", "work part", "gradient part", "work copy",
    };
    return (unsigned)stream < COH_STREAM_COUNT ? names[stream] : "unknown";
}
