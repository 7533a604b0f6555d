/* Writes the instructions of a group from INIT to SAVE. The idea: one record per chunk (written in
 * this step, updated in this step) says what is still to do, so that each duty is done once in
 * whatever order the sweeps come. The members are explained in pattern.h; the tables that name them
 * are in pattern.c. */
#include "planner/pattern_life.h"

#include "planner/comm_parts.h"

/* ---- parts ---- */

/* All ranks have the same chunks, and gather what is divided: rank 0 saves them. */
int32_t coh_life_owner(const coh_layout *layout, uint32_t chunk, uint32_t count)
{
    (void)layout;
    (void)chunk;
    (void)count;
    return 0;
}

/* Returns the bytes of a chunk of `object`, the work or gradient of a group or what the rank keeps
 * of it, that an update does not access because they are parts of others. */
static uint64_t others_bytes(const coh_layout *layout, const coh_group_layout *group,
                             int32_t object, uint32_t chunk)
{
    const uint32_t work = layout->objects[group->work].chunk_begin + chunk;
    const uint8_t stream = layout->objects[object].stream;
    const int is_grad = stream == COH_STREAM_GRAD || stream == COH_STREAM_GRAD_PART;
    return (coh_part_in_bytes(layout, work, stream) - coh_updated_part_bytes(layout, work)) *
           (is_grad ? coh_group_grad_factor(group) : 1);
}

/* ---- the gradient ---- */

/* Returns the object that holds the sum of the node of `factor` and above that `replica` is in, or
 * with factor 0 its own gradient. The first member of a node adds to the sum of the node: only
 * another one has an object of its own. */
static int32_t sum_object(const coh_lower_writer *w, int32_t group, int32_t replica, int32_t factor)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const coh_fold_shape *shape = &w->layout->fold;
    for (int32_t f = factor; f < coh_fold_factor_count(shape); f++)
        if (coh_fold_digit(shape, replica, f) > 0)
            return facts->contributions[f];
    return facts->grad;
}

/* Parameters of one group share chunks, so there each parameter is recorded separately. */
coh_contribution coh_life_contribute(coh_lower_writer *w, int32_t parameter, uint32_t begin,
                                     uint32_t end)
{
    const int32_t index = w->map->group_of_parameter[parameter];
    const coh_group_layout *group = &w->layout->groups[index];
    if (group->grad < 0)
        return (coh_contribution){ .object = -1 };
    const int32_t object = sum_object(w, index, w->replica, 0);
    uint8_t *touched = &w->chunk_touched[w->layout->objects[object].chunk_begin];
    coh_contribution out = { .object = object,
                             .access = touched[begin] ? COH_ACCESS_BOTH : COH_ACCESS_WRITE,
                             .adds = touched[begin] };
    for (uint32_t i = begin; i < end; i++)
        touched[i] = 1;
    if (group->parameter_count > 1)
        out.adds = w->parameter_written[parameter];
    w->parameter_written[parameter] = 1;
    return out;
}

static coh_status norm(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const int32_t grad = coh_group_summed_grad(facts);
    COH_TRY(coh_lower_instruction(w, COH_OP_NORM));
    COH_TRY(coh_lower_operand(w, grad, chunk, chunk + 1, COH_ACCESS_READ, COH_ROLE_GRAD));
    w->lowered->instructions[w->lowered->instruction_count - 1].bytes -=
        others_bytes(w->layout, facts, grad, chunk);
    return coh_lower_operand_all(w, w->layout->partials, COH_ACCESS_BOTH, COH_ROLE_PARTIALS);
}

/* Adds the newest replica's gradient of a chunk to the sum of its node; the sum of a node that is
 * complete with it to that of the next node, and so on. */
static coh_status fold_chunk(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_fold_shape *shape = &w->layout->fold;
    for (int32_t f = 0; f < coh_fold_factor_count(shape); f++) {
        const int32_t digit = coh_fold_digit(shape, w->replica, f);
        if (digit > 0)
            COH_TRY(coh_lower_fold(w, w->layout->groups[group].contributions[f],
                                   sum_object(w, group, w->replica, f + 1), chunk));
        if (digit < shape->factors[f] - 1)
            break;
    }
    return COH_OK;
}

/* Takes note that the next contribution to these chunks is the first of another replica. */
static void begin_replica(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const int32_t object = sum_object(w, group, w->replica, 0);
    uint8_t *touched = &w->chunk_touched[w->layout->objects[object].chunk_begin];
    for (uint32_t chunk = begin; chunk < end; chunk++)
        touched[chunk] = 0;
    for (uint32_t i = 0; i < facts->parameter_count; i++)
        w->parameter_written[w->layout->parameters[facts->parameter_begin + i].parameter] = 0;
}

/* Folds the replica's gradient, and after the last replica completes it. With several ranks it is
 * first summed over them, while the chunks before it are completed. */
coh_status coh_life_finish(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end)
{
    const int is_last = w->replica == coh_fold_replicas(&w->layout->fold) - 1;
    const int is_shared = coh_lower_has_world(w);
    begin_replica(w, group, begin, end);
    for (uint32_t chunk = begin; chunk < end; chunk++) {
        COH_TRY(fold_chunk(w, group, chunk));
        if (is_last && is_shared)
            COH_TRY(coh_lower_sum_ranks(w, group, chunk));
        else if (is_last)
            COH_TRY(coh_life_complete(w, group, chunk, chunk + 1));
    }
    if (!is_last || !is_shared)
        return COH_OK;
    COH_TRY(coh_pattern_settle(w));
    w->summed_group = group;
    w->summed_begin = begin;
    w->summed_end = end;
    return COH_OK;
}

/* Writes the norm of each chunk and, unless updates are deferred, its update, which computes the
 * norm's partials in the same pass. The host lane cannot access the partials: the device computes
 * them for chunks updated there. */
coh_status coh_life_complete(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end)
{
    const int is_deferred = coh_plan_defers(w->options);
    for (uint32_t chunk = begin; chunk < end; chunk++) {
        if (is_deferred || w->group_on_host[group])
            COH_TRY(norm(w, group, chunk));
        if (!is_deferred)
            COH_TRY(coh_pattern_of_group(w->layout, group)->update(w, group, chunk));
    }
    return COH_OK;
}

/* ---- updates ---- */

static uint8_t *updated(coh_lower_writer *w, int32_t group)
{
    return &w->chunk_updated[w->layout->objects[w->layout->groups[group].work].chunk_begin];
}

/* Returns the arithmetic of the update of one chunk, or of the part of it that a rank has. */
static double update_flops(const coh_layout *layout, const coh_group_layout *group, uint32_t chunk)
{
    const uint64_t bytes =
        coh_updated_part_bytes(layout, layout->objects[group->work].chunk_begin + chunk);
    const uint64_t elements = bytes / coh_dtype_bytes(group->dtype);
    return layout->optimizers[group->optimizer]->flops * (double)elements;
}

coh_status coh_life_update(coh_lower_writer *w, int32_t group, uint32_t chunk)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const int32_t work = coh_group_kept_work(facts), grad = coh_group_summed_grad(facts);
    updated(w, group)[chunk] = 1;
    COH_TRY(coh_lower_instruction(w, COH_OP_UPDATE));
    if (w->group_on_host[group])
        w->lowered->instructions[w->lowered->instruction_count - 1].lane = COH_LANE_HOST;
    if (coh_plan_defers(w->options))
        w->lowered->instructions[w->lowered->instruction_count - 1].predicate_cell =
            COH_CELL_PENDING;
    COH_TRY(coh_lower_operand(w, work, chunk, chunk + 1, COH_ACCESS_BOTH, COH_ROLE_WORK));
    COH_TRY(coh_lower_operand(w, grad, chunk, chunk + 1, COH_ACCESS_READ, COH_ROLE_GRAD));
    if (facts->state >= 0)
        COH_TRY(coh_lower_operand(w, facts->state, chunk, chunk + 1, COH_ACCESS_BOTH,
                                  COH_ROLE_OPTIMIZER_STATE));
    w->lowered->instructions[w->lowered->instruction_count - 1].flops =
        update_flops(w->layout, facts, chunk);
    if (!coh_plan_defers(w->options) && !w->group_on_host[group]) /* see coh_life_finish */
        COH_TRY(coh_lower_operand_all(w, w->layout->partials, COH_ACCESS_BOTH, COH_ROLE_PARTIALS));
    COH_TRY(coh_lower_operand_all(w, w->layout->cells, COH_ACCESS_READ, COH_ROLE_CELLS));
    w->lowered->instructions[w->lowered->instruction_count - 1].bytes -=
        2 * others_bytes(w->layout, facts, work, chunk) +
        others_bytes(w->layout, facts, grad, chunk);
    return coh_lower_has_world(w) ? coh_lower_gather_update(w, group, chunk) : COH_OK;
}

/* Widens the windows of the group's work in the instructions from `first` on: the call that follows
 * reads chunks [begin, end) as one. */
static void widen_windows(coh_lower_writer *w, size_t first, int32_t group, uint32_t begin,
                          uint32_t end)
{
    for (size_t i = first; i < w->lowered->instruction_count; i++) {
        coh_lowered_operand *work =
            &w->lowered->operands[w->lowered->instructions[i].operand_begin];
        if (work->is_far || work->object != w->layout->groups[group].work)
            continue;
        work->window_begin = begin;
        work->window_end = end;
    }
}

/* With deferred updates: writes those of the chunks that this forward is the first of the step to
 * read. */
coh_status coh_life_prepare(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end)
{
    if (!coh_plan_defers(w->options) || w->layout->groups[group].grad < 0)
        return COH_OK;
    const size_t first = w->lowered->instruction_count;
    for (uint32_t chunk = begin; chunk < end; chunk++)
        if (!updated(w, group)[chunk])
            COH_TRY(coh_pattern_of_group(w->layout, group)->update(w, group, chunk));
    widen_windows(w, first, group, begin, end);
    return COH_OK;
}

/* Gathers one chunk for a call. */
static coh_status gather_chunk(coh_lower_writer *w, coh_opcode opcode, int32_t group,
                               uint32_t chunk)
{
    if (w->lowered->kind != COH_PROGRAM_BODY || w->layout->groups[group].axes.copy == 0)
        return coh_lower_gather_work(w, group, chunk);
    if (opcode == COH_OP_FORWARD)
        COH_TRY(coh_lower_gather_copy(w, group, chunk));
    return coh_lower_gather_from_copy(w, group, chunk);
}

/* With parts of work: gathers the chunks that the next call reads as one. */
coh_status coh_life_gather(coh_lower_writer *w, coh_opcode opcode, int32_t group, uint32_t begin,
                           uint32_t end)
{
    const size_t first = w->lowered->instruction_count;
    for (uint32_t chunk = begin; chunk < end; chunk++)
        COH_TRY(gather_chunk(w, opcode, group, chunk));
    widen_windows(w, first, group, begin, end);
    return COH_OK;
}

coh_status coh_life_drain(coh_lower_writer *w, int32_t group)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    for (uint32_t chunk = 0; chunk < w->layout->objects[facts->work].chunk_count; chunk++)
        if (facts->grad >= 0 && !updated(w, group)[chunk])
            COH_TRY(coh_pattern_of_group(w->layout, group)->update(w, group, chunk));
    return COH_OK;
}

/* ---- visits ---- */

/* The master of a trained bf16 group lies in two halves, one in its work and one in its states:
 * each instruction takes both, so it sees whole f32 numbers. Gradients are visited if they
 * survive, except by SAVE and EDIT: the updates waiting in them were drained before. EDIT changes
 * values alone, so it visits no other states. */
coh_status coh_life_visit(coh_lower_writer *w, coh_opcode opcode, int32_t group)
{
    const coh_group_layout *facts = &w->layout->groups[group];
    const int is_split = coh_group_splits_master(facts);
    COH_TRY(coh_lower_visit(w, opcode, coh_group_kept_work(facts), COH_ROLE_WORK,
                            is_split ? facts->state : -1));
    if (opcode == COH_OP_EDIT)
        return COH_OK;
    if (!is_split)
        COH_TRY(coh_lower_visit(w, opcode, facts->state, COH_ROLE_OPTIMIZER_STATE, -1));
    if (opcode == COH_OP_SAVE || !coh_plan_defers(w->options))
        return COH_OK;
    return coh_lower_visit(w, opcode, coh_group_summed_grad(facts), COH_ROLE_GRAD, -1);
}

/* ---- bytes over the links ---- */

uint64_t coh_gathered_bytes(const coh_layout *layout, uint32_t chunk, coh_program_kind kind,
                            coh_opcode opcode, coh_link_level level)
{
    const coh_mesh *mesh = &layout->mesh;
    const coh_group_layout *group = coh_chunk_group(layout, chunk);
    const coh_wire wire = coh_gathered_wire(layout, group, kind);
    const int is_from_copy =
        kind == COH_PROGRAM_BODY && opcode != COH_OP_FORWARD && group->axes.copy > 0;
    const int axes = is_from_copy ? group->axes.copy : group->axes.work;
    uint64_t bytes = 0;
    for (int axis = 0; axis < axes; axis++)
        if (coh_mesh_group_level(mesh, 1u << axis) == level)
            bytes +=
                ((uint64_t)mesh->axes[axis].rank_count - 1) *
                coh_sent_bytes(wire, group->dtype, coh_chunk_part_bytes_at(layout, chunk, axis));
    return bytes;
}

/* Returns the bytes of a group's parts that a rank receives from one other member of its group
 * along an axis, without those of work that is gathered for each use. */
static uint64_t axis_bytes(const coh_layout *layout, int32_t group, coh_program_kind kind, int axis)
{
    const coh_group_layout *facts = &layout->groups[group];
    const coh_object *work = &layout->objects[facts->work];
    const uint32_t grad = layout->objects[facts->grad].chunk_begin;
    const int is_gathered_for_use = axis < facts->axes.work;
    const int is_updated_in_parts = axis < facts->axes.state;
    const int is_deferred = layout->objects[coh_group_summed_grad(facts)].survives;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < work->chunk_count; i++) {
        const uint64_t reduced = coh_chunk_part_bytes_at(layout, grad + i, axis);
        const uint64_t updated = coh_chunk_part_bytes_at(layout, work->chunk_begin + i, axis);
        const uint64_t gathered = is_gathered_for_use ? 0 : is_updated_in_parts ? updated : reduced;
        if (kind == COH_PROGRAM_BODY)
            bytes += coh_sent_bytes(coh_reduced_wire(layout, grad + i), COH_DTYPE_F32, reduced) +
                     gathered;
        else if (kind == COH_PROGRAM_DRAIN && is_updated_in_parts && is_deferred)
            bytes += gathered;
        else if ((kind == COH_PROGRAM_SAVE || kind == COH_PROGRAM_HASH) && is_gathered_for_use)
            bytes += updated;
    }
    return bytes;
}

/* Returns the bytes of a group's divided states that a rank has. */
static uint64_t state_bytes(const coh_layout *layout, const coh_group_layout *group)
{
    const int is_divided = group->axes.state > 0 && group->state >= 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; is_divided && i < layout->objects[group->state].chunk_count; i++)
        bytes += layout->chunks[layout->objects[group->state].chunk_begin + i].bytes;
    return bytes;
}

/* A step sums each chunk of the gradient over all ranks: along each axis a rank receives the
 * others' slices of its part, and later the parts that the others have summed. Along the axes that
 * divide the states it receives the work that they have updated instead. A deferred update that is
 * still to be done when a run ends is done by DRAIN. */
uint64_t coh_life_volume(const coh_layout *layout, int32_t group, coh_program_kind kind,
                         coh_link_level level)
{
    const coh_mesh *mesh = &layout->mesh;
    const coh_group_layout *facts = &layout->groups[group];
    const coh_axis_set states = coh_inner_axes(facts->axes.state);
    uint64_t bytes = 0;
    if (facts->grad < 0)
        return 0;
    for (int axis = 0; axis < mesh->axis_count; axis++)
        if (coh_mesh_group_level(mesh, 1u << axis) == level)
            bytes +=
                ((uint64_t)mesh->axes[axis].rank_count - 1) * axis_bytes(layout, group, kind, axis);
    const int saves = kind == COH_PROGRAM_SAVE || kind == COH_PROGRAM_HASH;
    if (saves && coh_mesh_group_level(mesh, states) == level)
        bytes += ((uint64_t)coh_mesh_group_size(mesh, states) - 1) * state_bytes(layout, facts);
    return bytes;
}
