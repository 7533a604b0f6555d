/* Writes the instructions that ranks execute together. The idea: a sum over all ranks is one REDUCE
 * for each axis of the mesh, from the innermost on, and then the GATHERs in reverse; each works in
 * place on a chunk (comm_parts.h). Over the axes that divide the states the GATHERs are those of
 * the work, after its update. Read pattern.h first, which says when they are written. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/comm_parts.h"
#include "planner/lower_writer.h"

/* Starts an instruction of a group of ranks, on the lane of the links that the group crosses. Its
 * operands follow, and then end_comm. */
static coh_status begin_comm(coh_lower_writer *w, coh_opcode opcode, coh_axis_set axes,
                             coh_dtype dtype, coh_wire wire, uint64_t part_bytes)
{
    coh_lowered *lowered = w->lowered;
    const coh_link_level level = coh_mesh_group_level(&w->layout->mesh, axes);
    COH_TRY(coh_lower_instruction(w, opcode));
    COH_TRY(COH_GROW(&lowered->comms, &lowered->comm_capacity, lowered->comm_count + 1));
    lowered->comms[lowered->comm_count++] = (coh_comm_call){ .axes = axes,
                                                             .level = level,
                                                             .dtype = dtype,
                                                             .wire = wire,
                                                             .root = -1,
                                                             .part_bytes = part_bytes };
    coh_lowered_instruction *instruction = &lowered->instructions[lowered->instruction_count - 1];
    instruction->lane = coh_link_lane(level);
    instruction->comm = (uint32_t)lowered->comm_count;
    return COH_OK;
}

/* The bytes of such an instruction are those that it receives. */
static void end_comm(coh_lower_writer *w)
{
    const coh_lowered *lowered = w->lowered;
    coh_lowered_instruction *instruction = &lowered->instructions[lowered->instruction_count - 1];
    instruction->bytes =
        coh_comm_received_bytes(&w->layout->mesh, &lowered->comms[instruction->comm - 1]);
}

/* Exchanges a chunk of `object`, the work or gradient of a group or what the rank keeps of it, with
 * the group of one axis. `part`: the object that gets the rank's part of the sum, or has that of
 * the work; -1: it lies in the chunk. */
static coh_status exchange_chunk(coh_lower_writer *w, coh_opcode opcode, int axis, int32_t object,
                                 uint32_t chunk, int32_t part)
{
    const coh_object *facts = &w->layout->objects[object];
    const coh_group_layout *group = &w->layout->groups[facts->owner];
    const int is_grad = facts->stream == COH_STREAM_GRAD || facts->stream == COH_STREAM_GRAD_PART;
    const uint32_t whole =
        w->layout->objects[is_grad ? group->grad : group->work].chunk_begin + chunk;
    const int is_reduce = opcode == COH_OP_REDUCE;
    const int is_for_use =
        axis < group->axes.work && (object == group->work || object == group->work_copy);
    const coh_wire wire = is_reduce    ? coh_reduced_wire(w->layout, whole)
                          : is_for_use ? coh_gathered_wire(w->layout, group, w->lowered->kind)
                                       : COH_WIRE_STORED;
    COH_TRY(begin_comm(w, opcode, 1u << axis, is_grad ? COH_DTYPE_F32 : group->dtype, wire,
                       coh_chunk_part_bytes_at(w->layout, whole, axis)));
    COH_TRY(coh_lower_operand(w, object, chunk, chunk + 1,
                              part >= 0 && !is_grad ? COH_ACCESS_WRITE : COH_ACCESS_BOTH,
                              is_grad ? COH_ROLE_GRAD : COH_ROLE_WORK));
    if (is_reduce || wire != COH_WIRE_STORED)
        COH_TRY(coh_lower_operand_all(w, w->layout->wire, COH_ACCESS_WRITE, COH_ROLE_WORKSPACE));
    if (part >= 0)
        COH_TRY(coh_lower_operand(w, part, chunk, chunk + 1,
                                  is_grad ? COH_ACCESS_WRITE : COH_ACCESS_READ, COH_ROLE_PART));
    end_comm(w);
    return COH_OK;
}

/* Writes the GATHERs over axes [first, end) of the mesh, from the outermost in. */
static coh_status gather_axes(coh_lower_writer *w, int32_t object, uint32_t chunk, int first,
                              int end, int32_t part)
{
    for (int axis = end; axis-- > first; part = -1)
        COH_TRY(exchange_chunk(w, COH_OP_GATHER, axis, object, chunk, part));
    return COH_OK;
}

coh_status coh_lower_sum_ranks(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const int axes = w->layout->mesh.axis_count, kept = facts->axes.grad;

    for (int axis = 0; axis < axes; axis++)
        COH_TRY(exchange_chunk(w, COH_OP_REDUCE, axis,
                               axis < kept ? facts->grad : coh_group_summed_grad(facts), chunk,
                               axis == kept - 1 ? facts->grad_part : -1));
    return gather_axes(w, coh_group_summed_grad(facts), chunk, facts->axes.state, axes, -1);
}

coh_status coh_lower_gather_update(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    return gather_axes(w, coh_group_kept_work(facts), chunk, facts->axes.work, facts->axes.state,
                       -1);
}

coh_status coh_lower_gather_work(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    return gather_axes(w, facts->work, chunk, 0, facts->axes.work, facts->work_part);
}

coh_status coh_lower_gather_copy(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    return gather_axes(w, facts->work_copy, chunk, facts->axes.copy, facts->axes.work,
                       facts->work_part);
}

coh_status coh_lower_gather_from_copy(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    return gather_axes(w, facts->work, chunk, 0, facts->axes.copy, facts->work_copy);
}

coh_status coh_lower_gather_states(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_layout *layout = w->layout;
    const int32_t state = layout->groups[group].state;
    const uint32_t first = layout->objects[state].chunk_begin;
    COH_TRY(begin_comm(w, COH_OP_GATHER, coh_inner_axes(layout->groups[group].axes.state),
                       COH_DTYPE_F32, COH_WIRE_STORED, layout->chunks[first + chunk].bytes));
    COH_TRY(
        coh_lower_operand(w, state, chunk, chunk + 1, COH_ACCESS_READ, COH_ROLE_OPTIMIZER_STATE));
    COH_TRY(coh_lower_operand_all(w, layout->gathered, COH_ACCESS_WRITE, COH_ROLE_WORKSPACE));
    end_comm(w);
    return COH_OK;
}

coh_status coh_lower_gather_partials(coh_lower_writer *w)
{
    const coh_layout *layout = w->layout;
    const uint64_t bytes = coh_sent_partials_bytes(layout);
    if (bytes == 0)
        return COH_OK;
    COH_TRY(begin_comm(w, COH_OP_GATHER, coh_mesh_all_axes(&layout->mesh), COH_DTYPE_F32,
                       COH_WIRE_STORED, bytes));
    COH_TRY(coh_lower_operand_all(w, layout->partials, COH_ACCESS_BOTH, COH_ROLE_PARTIALS));
    COH_TRY(coh_lower_operand_all(w, layout->wire, COH_ACCESS_WRITE, COH_ROLE_WORKSPACE));
    end_comm(w);
    return COH_OK;
}

coh_status coh_lower_gather_losses(coh_lower_writer *w)
{
    const coh_mesh *mesh = &w->layout->mesh;
    COH_TRY(begin_comm(w, COH_OP_GATHER, coh_mesh_all_axes(mesh), COH_DTYPE_F32, COH_WIRE_STORED,
                       (uint64_t)w->layout->microbatch_count * COH_LOSS_STRIDE_BYTES));
    COH_TRY(coh_lower_operand_all(w, w->layout->losses, COH_ACCESS_BOTH, COH_ROLE_LOSS));
    end_comm(w);
    return COH_OK;
}
