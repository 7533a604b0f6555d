/* Checks that all indices and ranges lie inside their tables, and that groups and their partner
 * objects match. All later checks rely on it. The list of files is in verify_state.h. */
#include <string.h>

#include "base/bytes.h"
#include "planner/verify_state.h"

/* These checks are part of rule FORM but cannot be switched off: the other checks follow the
 * indices without testing them. */

static int fits(uint64_t begin, uint64_t count, uint64_t limit)
{
    return begin <= limit && count <= limit - begin;
}

static coh_status bad(coh_verifier *v, uint32_t instruction, const char *what)
{
    v->result = (coh_verify_result){ .rule = COH_RULE_FORM, .instruction = instruction };
    return coh_fail(COH_ERR_CORRUPT,
                    "the program breaks rule 1 (FORM): %s instruction %u: %s; it is not run",
                    coh_program_kind_name(v->program->kind), instruction, what);
}

static int object_exists(const coh_layout *layout, int32_t object)
{
    return object >= 0 && (uint32_t)object < layout->object_count;
}

static uint64_t rounded_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Bytes of a chunk of `elements` of another stream than WORK, from the optimizer's table. */
static uint64_t partner_bytes(const coh_layout *layout, const coh_group_layout *group,
                              coh_stream stream, uint64_t elements)
{
    const coh_optimizer *optimizer = layout->optimizers[group->optimizer];
    const int is_half = group->dtype == COH_DTYPE_BF16;
    const int is_work = stream == COH_STREAM_WORK_PART || stream == COH_STREAM_WORK_COPY;
    if (stream != COH_STREAM_STATE)
        return rounded_up(elements * (is_half && (is_work || !group->f32_gradients) ? 2 : 4),
                          COH_PAGE_BYTES);
    /* the low 16 bits of the master */
    uint64_t bytes = is_half && !optimizer->rounds_work ? elements * 2 : 0;
    for (int32_t i = 0; i < optimizer->stream_count; i++) {
        const coh_state_stream *state = &optimizer->streams[i];
        bytes = rounded_up(bytes, COH_PART_ALIGN);
        bytes += rounded_up(elements, state->elements_per_block) / state->elements_per_block *
                 state->bytes_per_block;
    }
    return rounded_up(bytes, COH_PAGE_BYTES);
}

/* Returns 1 for an object whose stream is `stream` and whose chunks belong to those of the group's
 * work; or for -1 if the group has nothing to store there. */
static int is_partner(const coh_layout *layout, const coh_group_layout *group, int32_t index,
                      coh_stream stream)
{
    const coh_object *work = &layout->objects[group->work];
    if (group->optimizer < 0)
        return index == -1;
    if (index == -1)
        return partner_bytes(layout, group, stream, 1) == 0;
    if (!object_exists(layout, index) || layout->objects[index].stream != stream ||
        layout->objects[index].chunk_count != work->chunk_count)
        return 0;
    for (uint32_t i = 0; i < work->chunk_count; i++) {
        const coh_chunk *a = &layout->chunks[work->chunk_begin + i];
        const coh_chunk *b = &layout->chunks[layout->objects[index].chunk_begin + i];
        const int axes = stream == COH_STREAM_WORK_PART   ? group->axes.work
                         : stream == COH_STREAM_GRAD_PART ? group->axes.grad
                         : stream == COH_STREAM_WORK_COPY ? group->axes.copy
                         : stream == COH_STREAM_STATE     ? group->axes.state
                                                          : 0;
        const uint64_t work_bytes =
            coh_verify_largest_part(layout, group, work->chunk_begin + i, axes);
        const uint64_t elements = work_bytes / (group->dtype == COH_DTYPE_BF16 ? 2 : 4);
        if (b->bytes != partner_bytes(layout, group, stream, elements) ||
            b->owner_rank != a->owner_rank || b->is_divided != a->is_divided)
            return 0;
    }
    return 1;
}

static coh_status check_objects(coh_verifier *v)
{
    const coh_layout *layout = v->layout;
    uint64_t chunk_sum = 0;
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        if (object->stream >= COH_STREAM_COUNT || object->chunk_count == 0 ||
            !fits(object->chunk_begin, object->chunk_count, layout->chunk_count) ||
            (object->pinned && object->chunk_count != 1))
            return bad(v, COH_NO_INSTRUCTION, "an object with a bad stream or chunk range");
        uint64_t offset = 0;
        for (uint32_t c = 0; c < object->chunk_count; c++) {
            const coh_chunk *chunk = &layout->chunks[object->chunk_begin + c];
            if (chunk->owner_rank < (c > 0 ? chunk[-1].owner_rank : 0) ||
                (uint64_t)chunk->owner_rank >= coh_layout_rank_count(layout))
                return bad(v, COH_NO_INSTRUCTION,
                           "a chunk whose owner is no rank, or out of order");
            if (chunk->object != (int32_t)i || chunk->object_offset != offset || chunk->bytes == 0)
                return bad(v, COH_NO_INSTRUCTION, "a chunk that does not follow its neighbour");
            offset += chunk->bytes;
        }
        if (offset != object->bytes)
            return bad(v, COH_NO_INSTRUCTION, "an object that is not the sum of its chunks");
        chunk_sum += object->chunk_count;
    }
    if (chunk_sum != layout->chunk_count)
        return bad(v, COH_NO_INSTRUCTION, "a chunk that belongs to no object");
    return COH_OK;
}

/* Returns 1 if a group's parameters lie in its work, each from a page on, without overlap. */
static int parameters_fit(const coh_layout *layout, uint32_t group_index)
{
    const coh_group_layout *group = &layout->groups[group_index];
    uint64_t end = 0, most = (uint64_t)1 << 56;
    if (group->parameter_count == 0 ||
        !fits(group->parameter_begin, group->parameter_count, layout->parameter_count))
        return 0;
    for (uint32_t i = 0; i < group->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[group->parameter_begin + i];
        if (parameter->group != (int32_t)group_index || parameter->offset % COH_PAGE_BYTES != 0 ||
            parameter->offset < end || parameter->elements > most || parameter->offset > most)
            return 0;
        end = parameter->offset + coh_verify_array_bytes(group->dtype, parameter->elements);
    }
    return end <= layout->objects[group->work].bytes;
}

/* Returns 1 if each chunk of a group's work ends after whole elements: those of nf4 lie in blocks,
 * and a grain of it is no whole pages. */
static int chunks_are_whole(const coh_layout *layout, const coh_group_layout *group)
{
    const coh_object *work = &layout->objects[group->work];
    const uint64_t grain = coh_verify_array_bytes(group->dtype, COH_GRAIN_ELEMENTS);
    for (uint32_t c = 0; group->dtype == COH_DTYPE_NF4 && c < work->chunk_count; c++)
        if (layout->chunks[work->chunk_begin + c].object_offset % grain != 0)
            return 0;
    return group->dtype != COH_DTYPE_NF4 || group->parameter_count == 1;
}

/* Returns 1 if what a rank keeps of a group's work and gradient are parts of them, as the group's
 * axes say; the wholes do not survive then. */
static int parts_match(const coh_layout *layout, uint32_t group_index)
{
    const coh_group_layout *group = &layout->groups[group_index];
    const coh_rank_axes *axes = &group->axes;
    if (axes->work > axes->grad || axes->grad > axes->state ||
        axes->state > layout->mesh.axis_count || (axes->work > 0) != (group->work_part != -1) ||
        (axes->grad > 0) != (group->grad_part != -1) ||
        (axes->copy > 0 && axes->copy >= axes->work) ||
        (axes->copy > 0) != (group->work_copy != -1))
        return 0;
    const int32_t parts[] = { group->work_part, group->grad_part, group->work_copy };
    const int32_t wholes[] = { group->work, group->grad, group->work };
    const coh_stream streams[] = { COH_STREAM_WORK_PART, COH_STREAM_GRAD_PART,
                                   COH_STREAM_WORK_COPY };
    for (int i = 0; i < 3; i++) {
        if (parts[i] == -1)
            continue;
        if (wholes[i] < 0 || group->optimizer < 0 || parts[i] < 0 ||
            !is_partner(layout, group, parts[i], streams[i]) ||
            layout->objects[parts[i]].owner != (int32_t)group_index ||
            layout->objects[wholes[i]].survives ||
            (streams[i] == COH_STREAM_WORK_COPY && layout->objects[parts[i]].survives))
            return 0;
    }
    return 1;
}

/* Returns 1 if all chunks of the group's work are divided or none, as its axes say, and each
 * divided one is of one parameter, from a grain on, so that parts of whole grains of the chunk are
 * whole grains of the parameter. */
static int divided_chunks_fit(const coh_layout *layout, const coh_group_layout *group)
{
    const coh_object *work = &layout->objects[group->work];
    for (uint32_t c = work->chunk_begin; c < work->chunk_begin + work->chunk_count; c++) {
        const coh_chunk *chunk = &layout->chunks[c];
        int fits_one = chunk->is_divided == 0;
        for (uint32_t i = 0; i < group->parameter_count && chunk->is_divided == 1; i++) {
            const coh_parameter_layout *parameter = &layout->parameters[group->parameter_begin + i];
            const uint64_t grain = coh_verify_grain_bytes(group, 0);
            const uint64_t end =
                parameter->offset +
                rounded_up(parameter->elements * (grain / COH_GRAIN_ELEMENTS), COH_PAGE_BYTES);
            fits_one |= chunk->object_offset >= parameter->offset &&
                        chunk->object_offset + chunk->bytes <= end &&
                        (chunk->object_offset - parameter->offset) % grain == 0;
        }
        if (!fits_one || (chunk->is_divided && group->optimizer < 0) ||
            chunk->is_divided != (group->axes.state > 0))
            return 0;
    }
    return 1;
}

static int is_row(const coh_group_stream *row, const char *name, coh_stream object,
                  uint32_t bytes_per_block, uint32_t elements_per_block, int part)
{
    return strcmp(row->name, name) == 0 && row->object == object && row->part == part &&
           row->bytes_per_block == bytes_per_block && row->elements_per_block == elements_per_block;
}

/* Returns 1 if the rows of a group, from which the engine takes addresses, are those of its dtype
 * and optimizer: nf4 only without one. */
static int rows_match(const coh_layout *layout, const coh_group_layout *group)
{
    const int is_half = group->dtype == COH_DTYPE_BF16;
    const coh_optimizer *optimizer =
        group->optimizer >= 0 ? layout->optimizers[group->optimizer] : NULL;
    const int has_low = is_half && optimizer != NULL && !optimizer->rounds_work;
    const int32_t states = 2 + has_low; /* work, grad, low */
    if (group->stream_count != (optimizer != NULL ? states + optimizer->stream_count : 1) ||
        !(group->dtype == COH_DTYPE_NF4
              ? optimizer == NULL && is_row(&group->streams[0], "work", COH_STREAM_WORK, 34, 64, 0)
              : is_row(&group->streams[0], "work", COH_STREAM_WORK, is_half ? 2 : 4, 1, 0)))
        return 0;
    if (optimizer == NULL)
        return 1;
    int good = is_row(&group->streams[1], "grad", COH_STREAM_GRAD,
                      is_half && !group->f32_gradients ? 2 : 4, 1, -1);
    good &= !has_low || is_row(&group->streams[2], "low", COH_STREAM_STATE, 2, 1, -1);
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        good &= is_row(&group->streams[states + i], optimizer->streams[i].name, COH_STREAM_STATE,
                       optimizer->streams[i].bytes_per_block,
                       optimizer->streams[i].elements_per_block, 1 + i);
    return good;
}

/* Returns 1 if each factor of the fold shape has an object of the group, and no two the same. */
static int contributions_match(const coh_layout *layout, uint32_t group_index)
{
    const coh_group_layout *group = &layout->groups[group_index];
    for (int32_t f = 0; f < coh_fold_factor_count(&layout->fold); f++) {
        const int32_t index = group->contributions[f];
        if (!is_partner(layout, group, index, COH_STREAM_CONTRIBUTION) ||
            (index >= 0 && layout->objects[index].owner != (int32_t)group_index))
            return 0;
        for (int32_t other = 0; index >= 0 && other < f; other++)
            if (group->contributions[other] == index)
                return 0;
    }
    return 1;
}

/* Returns 1 if the fold shape is checked and the micro-batches are those of whole replicas. */
static int shape_is_good(const coh_layout *layout)
{
    uint64_t replicas = 1;
    for (int32_t f = 0; f < COH_FOLD_FACTORS; f++) {
        const int32_t factor = layout->fold.factors[f];
        const int is_used = f < coh_fold_factor_count(&layout->fold);
        if (factor < 0 || factor > COH_REPLICAS_MOST || (!is_used && factor != 0))
            return 0;
        replicas *= is_used ? (uint64_t)factor : 1;
    }
    return replicas <= COH_REPLICAS_MOST && layout->microbatch_count % replicas == 0 &&
           (replicas == 1 || layout->microbatch_count > 0);
}

/* Returns 1 if each level divides the next, and the axes are those of a mesh of these levels. */
static int mesh_is_good(const coh_mesh *mesh)
{
    coh_mesh again;
    const int32_t *levels = mesh->levels.rank_count;
    for (int level = 0; level < COH_LEVEL_COUNT; level++)
        if (levels[level] < 1 || levels[level] > COH_RANKS_MOST ||
            levels[level] % (level > 0 ? levels[level - 1] : levels[level]) != 0)
            return 0;
    if (mesh->axis_count < 0 || mesh->axis_count > COH_FOLD_FACTORS ||
        coh_mesh_init(&again, mesh->axes, mesh->axis_count, &mesh->levels) != COH_OK)
        return 0;
    return memcmp(again.strides, mesh->strides, sizeof(again.strides)) == 0;
}

static coh_status check_layout(coh_verifier *v)
{
    const coh_layout *layout = v->layout;
    if (!shape_is_good(layout))
        return bad(v, COH_NO_INSTRUCTION, "a fold shape that its micro-batches do not have");
    if (!mesh_is_good(&layout->mesh))
        return bad(v, COH_NO_INSTRUCTION, "a mesh of ranks whose levels or axes do not fit");
    if (layout->rank < 0 || (uint64_t)layout->rank >= coh_layout_rank_count(layout))
        return bad(v, COH_NO_INSTRUCTION, "a layout of a rank that does not exist");
    COH_TRY(check_objects(v));
    for (uint32_t i = 0; i < layout->group_count; i++) {
        const coh_group_layout *group = &layout->groups[i];
        if (group->optimizer < -1 || group->optimizer >= layout->optimizer_count)
            return bad(v, COH_NO_INSTRUCTION, "a group whose optimizer is not in the list");
        if (group->dtype != COH_DTYPE_F32 && group->dtype != COH_DTYPE_BF16 &&
            group->dtype != COH_DTYPE_NF4)
            return bad(v, COH_NO_INSTRUCTION, "a group that is neither f32, bf16 nor nf4");
        if (!rows_match(layout, group))
            return bad(v, COH_NO_INSTRUCTION,
                       "a group whose streams are not those of its optimizer");
        if (!object_exists(layout, group->work) ||
            layout->objects[group->work].stream != COH_STREAM_WORK ||
            layout->objects[group->work].owner != (int32_t)i ||
            !is_partner(layout, group, group->grad, COH_STREAM_GRAD) ||
            !is_partner(layout, group, group->state, COH_STREAM_STATE))
            return bad(v, COH_NO_INSTRUCTION, "a group whose work, grad and state do not match");
        if (!parts_match(layout, i))
            return bad(v, COH_NO_INSTRUCTION, "a group whose parts do not match its work");
        if (!contributions_match(layout, i))
            return bad(v, COH_NO_INSTRUCTION, "a group whose contributions do not match its work");
        if (!parameters_fit(layout, i) || !chunks_are_whole(layout, group))
            return bad(v, COH_NO_INSTRUCTION, "a group whose parameters do not fit its work");
        if (!divided_chunks_fit(layout, group))
            return bad(v, COH_NO_INSTRUCTION,
                       "a divided chunk that is not whole grains of one trained parameter");
    }
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (coh_stream_is_of_group(layout->objects[i].stream) &&
            (layout->objects[i].owner < 0 ||
             (uint32_t)layout->objects[i].owner >= layout->group_count))
            return bad(v, COH_NO_INSTRUCTION, "a stream of parameters without a group");
    for (uint32_t i = 0; i < layout->resident_count; i++)
        if (layout->residents[i].chunk >= layout->chunk_count ||
            layout->residents[i].tier > COH_TIER_HOST)
            return bad(v, COH_NO_INSTRUCTION, "a resident that is no chunk of an arena");
    return COH_OK;
}

static coh_status check_call(coh_verifier *v, uint32_t instruction_index)
{
    const coh_program *program = v->program;
    const coh_instruction *instruction = &program->instructions[instruction_index];
    if (instruction->call == -1)
        return COH_OK;
    if (instruction->call < 0 || (uint32_t)instruction->call >= program->call_count)
        return bad(v, instruction_index, "a call outside the table");
    const coh_instruction_call *call = &program->calls[instruction->call];
    if (!fits(call->binding_begin, call->binding_count, program->binding_count))
        return bad(v, instruction_index, "bindings outside the table");
    for (uint32_t i = 0; i < call->binding_count; i++)
        if (program->bindings[call->binding_begin + i].operand >= instruction->operand_count)
            return bad(v, instruction_index,
                       "a binding to an operand that the instruction does not have");
    return COH_OK;
}

static int group_exists(const coh_layout *layout, const coh_comm_call *comm)
{
    return comm->axes != 0 && comm->axes >> layout->mesh.axis_count == 0 && comm->part_bytes > 0 &&
           comm->part_bytes <= UINT32_MAX * (uint64_t)COH_PAGE_BYTES;
}

static coh_status check_operands(coh_verifier *v, uint32_t instruction_index)
{
    const coh_program *program = v->program;
    const coh_instruction *instruction = &program->instructions[instruction_index];
    for (uint32_t i = 0; i < instruction->operand_count; i++) {
        const coh_operand *operand = &program->operands[instruction->operand_begin + i];
        if (!object_exists(v->layout, operand->object) || operand->tier >= COH_TIER_COUNT ||
            operand->touch_count == 0 || operand->takes > i ||
            !fits(operand->touch_begin, operand->touch_count, program->touch_count))
            return bad(v, instruction_index,
                       "an operand with a bad object, tier or range of touches, or that is written "
                       "in place of one that does not come before");
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const coh_touch *touch = &program->touches[operand->touch_begin + t];
            if (touch->chunk >= v->layout->chunk_count ||
                (touch->extent >= program->extent_count && touch->extent != COH_EXTENT_FILE))
                return bad(v, instruction_index,
                           "a touch of a chunk or extent that does not exist");
            if (touch->extent != COH_EXTENT_FILE &&
                (program->extents[touch->extent].chunk != touch->chunk ||
                 program->extents[touch->extent].tier != operand->tier))
                return bad(v, instruction_index,
                           "a touch whose extent holds another chunk or tier");
            if ((touch->extent == COH_EXTENT_FILE) != (operand->tier == COH_TIER_DISK))
                return bad(v, instruction_index,
                           "a file touch outside the disk tier, or the reverse");
        }
    }
    return COH_OK;
}

coh_status coh_verify_tables(coh_verifier *v)
{
    const coh_program *program = v->program;
    if ((unsigned)program->kind >= COH_PROGRAM_KIND_COUNT || program->instruction_count == 0)
        return bad(v, COH_NO_INSTRUCTION, "no kind, or no instruction");
    if (program->instruction_count > UINT32_MAX / 64)
        return bad(v, COH_NO_INSTRUCTION, "too many instructions");
    COH_TRY(check_layout(v));
    for (uint32_t i = 0; i < program->extent_count; i++)
        if (program->extents[i].chunk >= v->layout->chunk_count ||
            program->extents[i].tier > COH_TIER_HOST || program->extents[i].bytes == 0 ||
            program->extents[i].offset > UINT64_MAX / 2 ||
            program->extents[i].bytes > UINT64_MAX / 2)
            return bad(v, COH_NO_INSTRUCTION, "an extent of no chunk, no arena or no bytes");
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->opcode >= COH_OP_COUNT || instruction->lane >= COH_LANE_COUNT ||
            !fits(instruction->operand_begin, instruction->operand_count, program->operand_count) ||
            !fits(instruction->wait_begin, instruction->wait_count, program->wait_count))
            return bad(v, i, "opcode, lane, or a range of operands or waits outside its table");
        COH_TRY(check_operands(v, i));
        COH_TRY(check_call(v, i));
        if (instruction->comm > program->comm_count ||
            (instruction->comm > 0 &&
             !group_exists(v->layout, &program->comms[instruction->comm - 1])))
            return bad(v, i, "a group of ranks outside the table, or that does not exist");
        for (uint32_t w = 0; w < instruction->wait_count; w++)
            if (program->waits[instruction->wait_begin + w].lane >= COH_LANE_COUNT)
                return bad(v, i, "a wait for a lane that does not exist");
    }
    return COH_OK;
}

coh_status coh_verify_index(coh_verifier *v)
{
    const coh_program *program = v->program;
    for (uint32_t i = 0; i < program->instruction_count; i++)
        v->ordinals[i] = ++v->lane_length[program->instructions[i].lane];
    uint32_t first = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        v->lane_first[lane] = first;
        first += v->lane_length[lane];
    }
    for (uint32_t i = 0; i < program->instruction_count; i++)
        v->lane_instructions[v->lane_first[program->instructions[i].lane] + v->ordinals[i] - 1] = i;
    return COH_OK;
}
