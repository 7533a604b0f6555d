/* Mutations of extents, touches, operands, ports, groups, boundary entries and limits. */
#include <string.h>

#include "tests/planner/mutate.h"

#define PAGE 4096

static coh_dtype other_dtype(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? COH_DTYPE_F32 : COH_DTYPE_BF16;
}

static int relocate(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    coh_extent *extent = &p->extents[what->index];
    if (what->amount < 0 && extent->offset < (uint64_t)-what->amount)
        return 0;
    extent->offset += (uint64_t)(int64_t)what->amount;
    for (uint32_t i = 0; i < p->operand_count; i++)
        if (p->touches[p->operands[i].touch_begin].extent == what->index)
            p->operands[i].offset = extent->offset;
    memset(p->peak_bytes, 0, sizeof(p->peak_bytes)); /* keep the totals consistent */
    p->peak_bytes[COH_TIER_DEVICE] = m->layout.pinned_bytes;
    for (uint32_t e = 0; e < p->extent_count; e++)
        if (p->extents[e].offset + p->extents[e].bytes > p->peak_bytes[p->extents[e].tier])
            p->peak_bytes[p->extents[e].tier] = p->extents[e].offset + p->extents[e].bytes;
    return 1;
}

static int change_extent(mutant *m, const mutation *what)
{
    coh_extent *extent = &m->program.extents[what->index];
    if (what->kind == MUTATE_RELOCATE)
        return relocate(m, what);
    if (what->kind == MUTATE_AT_END)
        extent->at_end = !extent->at_end;
    if (what->kind == MUTATE_AT_BEGIN)
        extent->at_begin = !extent->at_begin;
    if (what->kind == MUTATE_USE_COUNT)
        extent->use_count += (uint32_t)what->amount;
    if (what->kind == MUTATE_EXTENT_BYTES) {
        extent->bytes += (uint64_t)(int64_t)what->amount;
        return extent->bytes > 0;
    }
    if (what->kind == MUTATE_EXTENT_OFFSET) {
        if (what->amount < 0 && extent->offset < PAGE)
            return 0;
        extent->offset += (uint64_t)(int64_t)what->amount;
    }
    return 1;
}

static int change_touch(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    coh_touch *touch = &p->touches[what->index];
    if (what->kind == MUTATE_VERSION) {
        touch->version += what->amount;
        return 1;
    }
    for (uint32_t e = 0; e < p->extent_count && touch->extent != COH_EXTENT_FILE; e++)
        if (e != touch->extent && p->extents[e].chunk == touch->chunk &&
            p->extents[e].tier == p->extents[touch->extent].tier) {
            touch->extent = e;
            return 1;
        }
    return 0;
}

static int change_operand(mutant *m, const mutation *what)
{
    coh_operand *operand = &m->program.operands[what->index];
    if (what->kind == MUTATE_ACCESS) {
        int is_changed = operand->access != what->amount;
        operand->access = (uint8_t)what->amount;
        return is_changed;
    }
    if (what->kind == MUTATE_OPERAND_OFFSET)
        operand->offset += (uint64_t)what->amount;
    else
        operand->object_offset += (uint64_t)what->amount;
    return 1;
}

/* Relabels the same bytes as elements of another type. Only the group reveals the change. */
static int change_port_dtype(mutant *m, uint32_t i)
{
    coh_binding *binding = &m->program.bindings[i];
    int32_t last = binding->shape.rank - 1;
    int has_group = binding->role == COH_ROLE_PARAMETER ||
                    binding->role == COH_ROLE_PARAMETER_GRAD || binding->role == COH_ROLE_TO;
    if (!has_group ||
        (binding->shape.dtype != COH_DTYPE_F32 && binding->shape.dtype != COH_DTYPE_BF16))
        return 0;
    if (binding->shape.dtype == COH_DTYPE_BF16)
        binding->shape.dim[last] = (binding->shape.dim[last] + 1) / 2;
    else
        binding->shape.dim[last] *= 2;
    binding->shape.dtype = other_dtype(binding->shape.dtype);
    return 1;
}

static int change_resident(mutant *m, const mutation *what)
{
    coh_resident *entries = m->layout.residents;
    if (what->amount != 0) {
        entries[what->index].offset += (uint64_t)what->amount;
        return 1;
    }
    m->layout.resident_count--;
    memmove(&entries[what->index], &entries[what->index + 1],
            (m->layout.resident_count - what->index) * sizeof(*entries));
    return 1;
}

static int change_limit(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    uint32_t i = what->index;
    uint64_t written = 0;
    switch (what->kind) {
    case MUTATE_PEAK:
        p->peak_bytes[i] += (uint64_t)(int64_t)what->amount;
        return i != COH_TIER_DISK;
    case MUTATE_BUDGET:
        m->options.budget_bytes[i] =
            (i == COH_TIER_DISK ? m->layout.file_bytes : p->peak_bytes[i]) - PAGE;
        return (i == COH_TIER_DISK ? m->layout.file_bytes : p->peak_bytes[i]) > 0;
    case MUTATE_DEPTH:
        p->lane_depth[i] += (uint32_t)what->amount;
        return p->lane_length[i] > 0;
    default:
        break;
    }
    for (uint32_t l = 0; l < p->instruction_count; l++)
        written += p->instructions[l].opcode == COH_OP_WRITE ? p->instructions[l].bytes : 0;
    m->options.wear_bytes = written + (uint64_t)(int64_t)what->amount;
    return written > 1;
}

static int change_comm(mutant *m, const mutation *what)
{
    coh_comm_call *comm = &m->program.comms[what->index];
    if (what->amount == 0)
        comm->axes ^= 1u << (m->layout.mesh.axis_count - 1);
    else if (what->amount == 1)
        comm->part_bytes += 64;
    else if (what->amount == 2)
        comm->root = 0;
    else if (what->amount == 3)
        comm->dtype = COH_DTYPE_BF16;
    else
        comm->wire = comm->wire == COH_WIRE_INT8 ? COH_WIRE_INT4 : COH_WIRE_INT8;
    return 1;
}

int mutate_table(mutant *m, const mutation *what)
{
    switch (what->kind) {
    case MUTATE_COMM:
        return change_comm(m, what);
    case MUTATE_EXTENT_OFFSET:
    case MUTATE_RELOCATE:
    case MUTATE_USE_COUNT:
    case MUTATE_AT_END:
    case MUTATE_AT_BEGIN:
    case MUTATE_EXTENT_BYTES:
        return change_extent(m, what);
    case MUTATE_OPERAND_OFFSET:
    case MUTATE_OBJECT_OFFSET:
    case MUTATE_ACCESS:
        return change_operand(m, what);
    case MUTATE_VERSION:
    case MUTATE_TOUCH_EXTENT:
        return change_touch(m, what);
    case MUTATE_BINDING:
        m->program.bindings[what->index].object_offset += (uint64_t)1 << 40;
        return 1;
    case MUTATE_DTYPE:
        return change_port_dtype(m, what->index);
    case MUTATE_GROUP_DTYPE:
        m->layout.groups[what->index].dtype = other_dtype(m->layout.groups[what->index].dtype);
        return m->layout.groups[what->index].optimizer >= 0;
    case MUTATE_RESIDENT:
        return change_resident(m, what);
    case MUTATE_PEAK:
    case MUTATE_BUDGET:
    case MUTATE_WEAR:
    case MUTATE_DEPTH:
        return change_limit(m, what);
    default:
        break;
    }
    return 0;
}
