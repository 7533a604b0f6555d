/* Checks each instruction separately (rule FORM): its lane, the roles, tiers, accesses and
 * dtypes of its operands, and its call. Extents and sizes of arenas are checked in
 * verify_places.c; the list of files is in verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/verify_state.h"

/* ---- FORM: each instruction separately ---- */

/* The access of an operand that accumulates the row ranges of one call: the first range overwrites,
 * the others add. */
static int by_rows(int64_t row_begin)
{
    return row_begin > 0 ? COH_MAY_BOTH : COH_MAY_WRITE;
}

/* Returns the accesses that an operand of a call may have. */
static int access_of_port(uint8_t opcode, const coh_operand *operand, coh_stream stream,
                          const coh_instruction_call *call)
{
    int is_backward = opcode == COH_OP_BACKWARD;
    int64_t row_begin = call != NULL ? call->row_begin : 0;
    int is_by_rows = call != NULL && call->row_count > 0;
    int is_slice = call != NULL && call->column_slices;
    switch ((coh_role)operand->role) {
    case COH_ROLE_INPUT:
    case COH_ROLE_PARAMETER:
    case COH_ROLE_CELLS:
    case COH_ROLE_FROM:
        return COH_MAY_READ;
    case COH_ROLE_OUTPUT_GRAD: /* the first range of rows may overwrite it */
        return row_begin > 0 ? COH_MAY_READ : COH_MAY_READ | COH_MAY_BOTH;
    case COH_ROLE_OUTPUT: /* the losses of all micro-batches share a chunk */
        return is_backward                 ? COH_MAY_READ
               : stream == COH_STREAM_LOSS ? COH_MAY_BOTH
                                           : by_rows(row_begin);
    case COH_ROLE_SAVED:
        /* sums over row ranges in backward continue from call to call */
        return !is_backward              ? by_rows(row_begin)
               : is_by_rows && !is_slice ? COH_MAY_BOTH
                                         : COH_MAY_READ;
    case COH_ROLE_CACHE: /* backward may overwrite the values with its gradient */
        return is_backward ? COH_MAY_BOTH : opcode == COH_OP_FORWARD ? by_rows(row_begin) : 0;
    case COH_ROLE_STATE:
        return is_backward ? COH_MAY_READ : COH_MAY_BOTH;
    case COH_ROLE_WORKSPACE: /* a slice's backward keeps it between ranges */
        return is_backward && is_slice ? by_rows(row_begin) : COH_MAY_WRITE;
    case COH_ROLE_INPUT_GRAD:
        return row_begin > 0 ? COH_MAY_BOTH : COH_MAY_WRITE | COH_MAY_BOTH;
    case COH_ROLE_PARAMETER_GRAD:
        return stream == COH_STREAM_GRAD || stream == COH_STREAM_CONTRIBUTION
                   ? COH_MAY_WRITE | COH_MAY_BOTH
                   : by_rows(row_begin);
    case COH_ROLE_TO:
        return COH_MAY_WRITE | COH_MAY_BOTH;
    case COH_ROLE_PARTIALS:
    case COH_ROLE_LOSS:
    case COH_ROLE_WORK:
    case COH_ROLE_GRAD:
    case COH_ROLE_OPTIMIZER_STATE:
    case COH_ROLE_PART:
        break;
    }
    return 0;
}

/* Returns the accesses that an operand of an instruction without a call may have: those of its
 * row. */
static int access_of_instruction(const coh_instruction *instruction, const coh_operand *operand)
{
    const coh_operand_rule *rule =
        coh_opcode_operand(coh_opcode_row_of(instruction), operand->role);
    if (rule == NULL ||
        ((rule->flags & COH_OPERAND_NOT_ON_HOST) && instruction->lane == COH_LANE_HOST))
        return 0;
    return rule->accesses;
}

/* The role of an operand of a stream in an instruction without a call; -1: not allowed. */
static int role_of_stream(coh_stream stream)
{
    switch (stream) {
    case COH_STREAM_WORK:
    case COH_STREAM_WORK_PART:
    case COH_STREAM_WORK_COPY:
        return COH_ROLE_WORK;
    case COH_STREAM_GRAD:
    case COH_STREAM_GRAD_PART:
        return COH_ROLE_GRAD;
    case COH_STREAM_STATE:
        return COH_ROLE_OPTIMIZER_STATE;
    case COH_STREAM_KEPT:
        return COH_ROLE_STATE;
    case COH_STREAM_CELLS:
        return COH_ROLE_CELLS;
    case COH_STREAM_PARTIALS:
        return COH_ROLE_PARTIALS;
    case COH_STREAM_INPUT:
        return COH_ROLE_INPUT;
    case COH_STREAM_LOSS:
        return COH_ROLE_LOSS;
    case COH_STREAM_ACTIVATION:
    case COH_STREAM_ACTIVATION_GRAD:
    case COH_STREAM_SAVED:
    case COH_STREAM_CACHE:
    case COH_STREAM_SCRATCH:
    case COH_STREAM_OUTPUT:
    case COH_STREAM_CONTRIBUTION:
    case COH_STREAM_COUNT:
        break;
    case COH_STREAM_WIRE:
    case COH_STREAM_GATHERED: /* where a GATHER writes it */
        return COH_ROLE_WORKSPACE;
    }
    return -1;
}

static int role_fits(uint8_t opcode, uint8_t role, coh_stream stream)
{
    if (coh_opcode_moves(opcode))
        return 1; /* checked by check_mover */
    if (coh_opcode_communicates(opcode) &&
        (stream == COH_STREAM_WORK_PART || stream == COH_STREAM_GRAD_PART ||
         stream == COH_STREAM_WORK_COPY))
        return role == COH_ROLE_PART || role == role_of_stream(stream);
    if (stream == COH_STREAM_GATHERED && !coh_opcode_communicates(opcode))
        return role == COH_ROLE_OPTIMIZER_STATE;
    return coh_opcode_calls(opcode) ? (stream == COH_STREAM_CACHE) == (role == COH_ROLE_CACHE)
                                    : role == role_of_stream(stream);
}

/* Checks that the touches are whole, contiguous chunks, according to operand, chunk table and
 * extents. */
static coh_status check_touches(coh_verifier *v, uint32_t instruction, const coh_operand *operand)
{
    const coh_touch *touches = coh_operand_touches(v, operand);
    uint64_t done = 0;
    for (uint32_t t = 0; t < operand->touch_count; t++) {
        const coh_chunk *chunk = &v->layout->chunks[touches[t].chunk];
        uint64_t place = chunk->file_offset, bytes = chunk->bytes;
        if (touches[t].extent != COH_EXTENT_FILE) {
            place = v->program->extents[touches[t].extent].offset;
            bytes = v->program->extents[touches[t].extent].bytes;
        }
        if (chunk->object != operand->object ||
            chunk->object_offset != operand->object_offset + done || bytes != chunk->bytes)
            COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction, touches[t].chunk,
                                      "the operand of object %" PRId32 ", bytes %" PRIu64
                                      " + %" PRIu64 ", does not touch whole chunks in order",
                                      operand->object, operand->object_offset, operand->bytes));
        if (place != operand->offset + done)
            COH_TRY(coh_verify_breach(
                v, COH_RULE_FORM, instruction, touches[t].chunk,
                "the chunk is at %s offset %" PRIu64 ", the operand has it at %" PRIu64,
                coh_tier_name((coh_tier)operand->tier), place, operand->offset + done));
        if (touches[t].version < 0)
            COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction, touches[t].chunk,
                                      "it names version %" PRId32, touches[t].version));
        done += chunk->bytes;
    }
    if (done != operand->bytes)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction, touches[0].chunk,
                                  "the operand has %" PRIu64 " bytes, its chunks have %" PRIu64,
                                  operand->bytes, done));
    return COH_OK;
}

/* Returns the number of ports of an instruction's call that an operand holds. */
static uint32_t count_ports(const coh_verifier *v, uint32_t index, int operand)
{
    const coh_instruction_call *call = &v->program->calls[v->program->instructions[index].call];
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->binding_count; i++)
        count += v->program->bindings[call->binding_begin + i].operand == operand;
    return count;
}

/* Checks an operand that is written in place of another one: that one comes before, has the same
 * chunks' bytes at the same place, is read only and through one port, and the call is of all
 * rows. */
static coh_status check_takes(coh_verifier *v, uint32_t index, const coh_operand *operand)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    const int is_backward = instruction->opcode == COH_OP_BACKWARD;
    if (operand->takes == 0)
        return COH_OK;
    const coh_operand *taken = &operands[operand->takes - 1];
    int is_good = taken < operand && taken->tier == operand->tier &&
                  taken->offset == operand->offset && taken->bytes == operand->bytes &&
                  taken->object != operand->object && taken->access == COH_ACCESS_READ &&
                  operand->access == COH_ACCESS_WRITE && instruction->call >= 0 &&
                  taken->role == (is_backward ? COH_ROLE_OUTPUT_GRAD : COH_ROLE_INPUT) &&
                  operand->role == (is_backward ? COH_ROLE_INPUT_GRAD : COH_ROLE_OUTPUT) &&
                  v->program->calls[instruction->call].row_count == 0;
    for (uint32_t o = 0; o < instruction->operand_count && is_good; o++)
        is_good = &operands[o] == operand || operands[o].takes != operand->takes;
    is_good = is_good && taken->touch_count == operand->touch_count &&
              count_ports(v, index, operand->takes - 1) == 1;
    for (uint32_t t = 0; is_good && t < operand->touch_count; t++)
        is_good = v->layout->chunks[coh_operand_touches(v, taken)[t].chunk].bytes ==
                  v->layout->chunks[coh_operand_touches(v, operand)[t].chunk].bytes;
    if (!is_good)
        return coh_verify_breach(v, COH_RULE_FORM, index, coh_operand_touches(v, operand)[0].chunk,
                                 "an operand of role %d takes the place of operand %d, which it "
                                 "cannot be written in place of",
                                 operand->role, operand->takes - 1);
    return COH_OK;
}

static coh_status check_operand(coh_verifier *v, uint32_t instruction_index,
                                const coh_operand *operand)
{
    const coh_instruction *instruction = &v->program->instructions[instruction_index];
    const coh_access_matrix *matrix = &v->layout->access;
    uint32_t chunk = coh_operand_touches(v, operand)[0].chunk;
    if (operand->access < COH_ACCESS_READ || operand->access > COH_ACCESS_BOTH ||
        operand->role > COH_ROLE_PART)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, chunk,
                                  "access %d or role %d does not exist", operand->access,
                                  operand->role));
    if (((operand->access & COH_ACCESS_READ) &&
         !((matrix->reads[instruction->lane] >> operand->tier) & 1)) ||
        ((operand->access & COH_ACCESS_WRITE) &&
         !((matrix->writes[instruction->lane] >> operand->tier) & 1)))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, chunk,
                                  "the lane %s may not %s the %s tier",
                                  coh_lane_name((coh_lane)instruction->lane),
                                  operand->access & COH_ACCESS_WRITE ? "write" : "read",
                                  coh_tier_name((coh_tier)operand->tier)));
    const coh_instruction_call *call =
        instruction->call >= 0 ? &v->program->calls[instruction->call] : NULL;
    coh_stream stream = (coh_stream)v->layout->objects[operand->object].stream;
    int may = coh_opcode_calls(instruction->opcode)
                  ? access_of_port(instruction->opcode, operand, stream, call)
                  : access_of_instruction(instruction, operand);
    int is_own = stream == COH_STREAM_SAVED || stream == COH_STREAM_CACHE ||
                 /* belongs to one operator */
                 stream == COH_STREAM_SCRATCH || stream == COH_STREAM_KEPT;
    if (is_own && call != NULL && instruction->opcode != COH_OP_ADD &&
        v->layout->objects[operand->object].owner != call->operator_index)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, chunk,
                                  "a call of operator %" PRId32 " does not own this",
                                  call->operator_index));
    if (!role_fits(instruction->opcode, operand->role, stream))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, chunk,
                                  "role %d is none that the stream %s has here", operand->role,
                                  coh_stream_name(stream)));
    if (!((may >> (operand->access & 3)) & 1))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, chunk,
                                  "an operand of role %d has access %d here", operand->role,
                                  operand->access));
    COH_TRY(check_takes(v, instruction_index, operand));
    return check_touches(v, instruction_index, operand);
}

/* Checks a mover: FROM and TO are the same chunks in the same version, between the tiers of the
 * opcode. */
static coh_status check_mover(coh_verifier *v, uint32_t instruction_index)
{
    const coh_instruction *instruction = &v->program->instructions[instruction_index];
    const coh_operand *from = coh_instruction_operands(v, instruction_index), *to = from + 1;
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    if (instruction->operand_count != 2 || from->role != COH_ROLE_FROM || to->role != COH_ROLE_TO ||
        to->access != COH_ACCESS_WRITE || from->touch_count != to->touch_count)
        return coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                 "a mover has one operand FROM and one TO with the same chunks");
    for (uint32_t t = 0; t < from->touch_count; t++) {
        const coh_touch *a = &coh_operand_touches(v, from)[t], *b = &coh_operand_touches(v, to)[t];
        if (a->chunk != b->chunk || a->version != b->version)
            COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, a->chunk,
                                      "from version %" PRId32 " it makes version %" PRId32
                                      " of chunk %" PRIu32,
                                      a->version, b->version, b->chunk));
    }
    if (!((row->from_tiers >> from->tier) & 1) || !((row->to_tiers >> to->tier) & 1))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                  "it moves from %s to %s", coh_tier_name((coh_tier)from->tier),
                                  coh_tier_name((coh_tier)to->tier)));
    if (instruction->bytes != from->bytes)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                  "it says %" PRIu64 " bytes and moves %" PRIu64,
                                  instruction->bytes, from->bytes));
    if (instruction->predicate_cell != COH_CELL_NONE)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                  "a mover has a predicate"));
    return COH_OK;
}

/* Checks that operands that a call adds to are read and written. An input gradient that is read and
 * written is added to, unless it only accumulates the row ranges of one call. The gradient of an
 * output is read and written if the call may overwrite it; the first range of rows does. */
static coh_status check_adding(coh_verifier *v, uint32_t instruction_index,
                               const coh_instruction_call *call, const coh_binding *binding)
{
    const coh_operand *operand = &coh_instruction_operands(v, instruction_index)[binding->operand];
    uint32_t adds = binding->role == COH_ROLE_PARAMETER_GRAD ? call->parameter_grad_adds
                    : binding->role == COH_ROLE_INPUT_GRAD || binding->role == COH_ROLE_TO
                        ? call->input_grad_adds
                        : 0;
    if (binding->role == COH_ROLE_OUTPUT_GRAD)
        adds = call->row_begin == 0 ? call->overwritten_grads : 0;
    int is_set = (adds >> (binding->port % 32)) & 1;
    int is_wanted = operand->access == COH_ACCESS_BOTH && call->row_begin == 0 &&
                    v->layout->objects[operand->object].stream == COH_STREAM_ACTIVATION_GRAD;
    if ((is_set && operand->access != COH_ACCESS_BOTH) || (is_wanted && !is_set))
        COH_TRY(coh_verify_breach(
            v, COH_RULE_FORM, instruction_index, UINT32_MAX,
            "port %d of role %d is %s, its operand has access %d", binding->port, binding->role,
            is_set ? "read and written" : "read or written alone", operand->access));
    return COH_OK;
}

/* The dtype of a group's WORK, GRAD or CONTRIBUTION. */
static coh_dtype stored_dtype(const coh_verifier *v, const coh_object *object)
{
    const coh_group_layout *group = &v->layout->groups[object->owner];
    return object->stream == COH_STREAM_WORK ? group->dtype : coh_group_grad_dtype(group);
}

static coh_status check_binding(coh_verifier *v, uint32_t instruction_index,
                                const coh_instruction_call *call, const coh_binding *binding)
{
    const coh_operand *operand = &coh_instruction_operands(v, instruction_index)[binding->operand];
    uint64_t elements = 1, bytes = 0;
    int good = binding->shape.rank >= 1 && binding->shape.rank <= COH_RANK_MAX &&
               binding->port < COH_PORT_MAX && binding->role == operand->role;
    for (int32_t i = 0; good && i < binding->shape.rank; i++)
        good = binding->shape.dim[i] >= 0 &&
               !__builtin_mul_overflow(elements, (uint64_t)binding->shape.dim[i], &elements);
    good = good && elements <= COH_VERIFY_ELEMENTS_MOST;
    if (good)
        bytes = coh_verify_array_bytes(binding->shape.dtype, elements);
    if (!good || binding->object_offset < operand->object_offset || bytes > operand->bytes ||
        binding->object_offset - operand->object_offset > operand->bytes - bytes)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                  "port %d of role %d needs bytes %" PRIu64 " + %" PRIu64
                                  ", its operand has %" PRIu64 " + %" PRIu64 " of role %d",
                                  binding->port, binding->role, binding->object_offset, bytes,
                                  operand->object_offset, operand->bytes, operand->role));
    const coh_object *object = &v->layout->objects[operand->object];
    if (coh_stream_is_of_group(object->stream) && object->stream != COH_STREAM_STATE &&
        stored_dtype(v, object) != binding->shape.dtype)
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                  "port %d of role %d has another dtype than its group",
                                  binding->port, binding->role));
    return check_adding(v, instruction_index, call, binding);
}

/* The dtype of what an ADD takes: that of TO; of scratch for a group's gradient that of its
 * parameters. */
static coh_dtype added_dtype(const coh_verifier *v, uint32_t instruction_index)
{
    const coh_instruction_call *call =
        &v->program->calls[v->program->instructions[instruction_index].call];
    const coh_binding *to = &v->program->bindings[call->binding_begin + 1];
    const coh_object *object =
        &v->layout->objects[coh_instruction_operands(v, instruction_index)[to->operand].object];
    return coh_stream_is_of_group(object->stream) && !coh_verify_is_fold(v, instruction_index)
               ? v->layout->groups[object->owner].dtype
               : to->shape.dtype;
}

/* Checks that an ADD adds elements of one dtype, or those of a parameter's dtype to its f32
 * gradient. */
static coh_status check_add(coh_verifier *v, uint32_t instruction_index,
                            const coh_instruction_call *call)
{
    const coh_binding *bindings = &v->program->bindings[call->binding_begin];
    if (call->binding_count != 2 || bindings[0].role != COH_ROLE_FROM ||
        bindings[1].role != COH_ROLE_TO ||
        bindings[0].shape.dtype != added_dtype(v, instruction_index))
        return coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                 "an ADD has one port FROM and one TO, of one dtype except for "
                                 "f32 gradients of bf16 parameters");
    return COH_OK;
}

static coh_status check_predicate(coh_verifier *v, uint32_t instruction_index)
{
    const coh_instruction *instruction = &v->program->instructions[instruction_index];
    if (instruction->predicate_cell == COH_CELL_NONE)
        return COH_OK;
    int reads_cells = 0;
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        reads_cells |=
            coh_instruction_operands(v, instruction_index)[i].object == v->layout->cells &&
            (coh_instruction_operands(v, instruction_index)[i].access & COH_ACCESS_READ);
    if (instruction->predicate_cell != COH_CELL_PENDING || instruction->opcode != COH_OP_UPDATE ||
        !reads_cells)
        return coh_verify_breach(v, COH_RULE_FORM, instruction_index, UINT32_MAX,
                                 "its predicate is cell %d; only an update has one, `pending`, and "
                                 "an operand that reads the cells",
                                 instruction->predicate_cell);
    return COH_OK;
}

/* Returns the bytes that each rank sends of the norm partials of its parts. */
static uint64_t sent_partials(const coh_layout *layout)
{
    uint64_t grains = 0;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const coh_group_layout *group = &layout->groups[g];
        const coh_object *work = &layout->objects[group->work];
        for (uint32_t c = work->chunk_begin; c < work->chunk_begin + work->chunk_count; c++)
            if (layout->chunks[c].is_divided)
                grains += (coh_verify_largest_part(layout, group, c, group->axes.state) +
                           coh_verify_grain_bytes(group, 0) - 1) /
                          coh_verify_grain_bytes(group, 0);
    }
    const uint64_t bytes = grains * sizeof(double);
    return bytes + (COH_PART_ALIGN - bytes % COH_PART_ALIGN) % COH_PART_ALIGN;
}

/* The facts of an instruction of a group of ranks that follow from its first operand. */
typedef struct comm_facts {
    coh_axis_set axes;
    uint64_t part_bytes, received_bytes; /* received: room for that, and for what is packed */
    coh_dtype dtype;
    coh_wire wire;
    int32_t received_in; /* object of the second operand; -1: received in place */
    int32_t part;        /* object of the last operand, with the window's chunk; -1: none */
} comm_facts;

static int is_body(const coh_verifier *v)
{
    return v->program->kind == COH_PROGRAM_BODY;
}

/* Returns 1 if the exchange over an axis exists: a REDUCE or GATHER of a gradient, a GATHER of
 * work, of the whole or of what the rank keeps of it. */
static int may_exchange(const coh_verifier *v, const coh_group_layout *group, uint8_t stream,
                        int is_reduce, int axis)
{
    const coh_rank_axes *axes = &group->axes;
    const int has_copy = is_body(v) && axes->copy > 0;
    switch (stream) {
    case COH_STREAM_GRAD: /* summed further where a part of it is kept */
        return axes->grad > 0 ? is_reduce && axis < axes->grad : is_reduce || axis >= axes->state;
    case COH_STREAM_GRAD_PART:
        return is_reduce ? axis >= axes->grad : axis >= axes->state;
    case COH_STREAM_WORK:
        return !is_reduce && axis < (has_copy         ? axes->copy
                                     : axes->work > 0 ? axes->work
                                                      : axes->state);
    case COH_STREAM_WORK_COPY:
        return !is_reduce && has_copy && axis >= axes->copy && axis < axes->work;
    case COH_STREAM_WORK_PART:
        return !is_reduce && axis >= axes->work && axis < axes->state;
    default:
        return 0;
    }
}

/* Returns the bytes that a part of so many bytes in memory takes on a wire: with a scale for each
 * 128 elements but for bf16, and of int4 whole blocks. */
static uint64_t sent_part(coh_wire wire, coh_dtype dtype, uint64_t bytes)
{
    const uint64_t count = bytes / (dtype == COH_DTYPE_F32 ? 4 : 2), blocks = (count + 127) / 128;
    uint64_t sent = 2 * count;
    if (wire == COH_WIRE_STORED)
        return bytes;
    if (wire == COH_WIRE_INT8)
        sent = count + 4 * blocks;
    else if (wire == COH_WIRE_INT4)
        sent = 68 * blocks;
    return sent + (64 - sent % 64) % 64;
}

/* Returns the wire of an exchange: what is reduced of a divided chunk has that of gradients; work
 * that a step gathers for a use, that of weights. */
static coh_wire wire_of(const coh_verifier *v, coh_dtype dtype, int is_divided_sum, int is_for_use)
{
    const coh_wires *wires = &v->layout->wires;
    const int in_step = v->program->kind == COH_PROGRAM_BODY;
    const coh_wire wire = is_divided_sum          ? wires->gradients
                          : is_for_use && in_step ? wires->weights
                                                  : COH_WIRE_STORED;
    return wire == COH_WIRE_BF16 && dtype == COH_DTYPE_BF16 ? COH_WIRE_STORED : wire;
}

/* Returns the facts of an exchange of a chunk of gradient or work, in the group of one axis. */
static comm_facts facts_of_chunk(const coh_verifier *v, const coh_instruction *instruction,
                                 const coh_operand *window)
{
    const coh_layout *layout = v->layout;
    const coh_mesh *mesh = &layout->mesh;
    const coh_object *object = &layout->objects[window->object];
    const coh_group_layout *group = &layout->groups[object->owner];
    const int is_grad = object->stream == COH_STREAM_GRAD || object->stream == COH_STREAM_GRAD_PART;
    const uint32_t whole = coh_partner_chunk(v, coh_operand_touches(v, window)[0].chunk,
                                             is_grad ? group->grad : group->work);
    const uint64_t unit =
        layout->chunks[whole].is_divided ? coh_verify_grain_bytes(group, is_grad) : COH_PART_ALIGN;
    int axis = 0;
    while (v->program->comms[instruction->comm - 1].axes != 1u << axis &&
           axis < mesh->axis_count - 1)
        axis++;
    const int is_reduce = instruction->opcode == COH_OP_REDUCE;
    const int makes_part = is_grad && is_reduce && axis + 1 == group->axes.grad;
    const int has_copy = is_body(v) && group->axes.copy > 0;
    const int for_use = object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_WORK_COPY;
    const int takes_part = for_use && !is_reduce && axis + 1 == group->axes.work;
    const int takes_copy =
        object->stream == COH_STREAM_WORK && !is_reduce && has_copy && axis + 1 == group->axes.copy;
    comm_facts facts = { .axes = 1u << axis,
                         .part_bytes =
                             coh_verify_part(mesh, axis, layout->chunks[whole].bytes, unit),
                         .dtype = is_grad ? COH_DTYPE_F32 : group->dtype,
                         .received_in = -1,
                         .part = makes_part   ? group->grad_part
                                 : takes_part ? group->work_part
                                 : takes_copy ? group->work_copy
                                              : -1 };
    facts.wire = wire_of(v, facts.dtype, is_reduce && layout->chunks[whole].is_divided,
                         for_use && axis < group->axes.work);
    if (is_reduce || facts.wire != COH_WIRE_STORED)
        facts.received_in = layout->wire;
    const uint64_t members = (uint64_t)mesh->axes[axis].rank_count;
    const uint64_t slices = is_reduce ? (members - 1) * facts.part_bytes : 0;
    const uint64_t all = is_reduce ? 2 * members - 1 : members;
    facts.received_bytes = slices;
    if (facts.wire != COH_WIRE_STORED)
        facts.received_bytes +=
            (64 - slices % 64) % 64 + all * sent_part(facts.wire, facts.dtype, facts.part_bytes);
    if (!may_exchange(v, group, object->stream, is_reduce, axis) ||
        (is_grad && coh_group_grad_dtype(group) != COH_DTYPE_F32))
        facts.part_bytes = 0; /* there is no such exchange */
    return facts;
}

static comm_facts facts_of_comm(const coh_verifier *v, const coh_instruction *instruction,
                                const coh_operand *window)
{
    const coh_layout *layout = v->layout;
    const uint8_t stream = layout->objects[window->object].stream;
    const uint64_t ranks = coh_layout_rank_count(layout);
    if (stream == COH_STREAM_GRAD || stream == COH_STREAM_WORK || stream == COH_STREAM_GRAD_PART ||
        stream == COH_STREAM_WORK_PART || stream == COH_STREAM_WORK_COPY)
        return facts_of_chunk(v, instruction, window);
    comm_facts facts = { .axes = (1u << layout->mesh.axis_count) - 1,
                         .dtype = COH_DTYPE_F32,
                         .received_in = -1,
                         .part = -1 };
    if (stream == COH_STREAM_LOSS) {
        facts.part_bytes = (uint64_t)layout->microbatch_count * COH_LOSS_STRIDE_BYTES;
    } else if (stream == COH_STREAM_PARTIALS) {
        facts.part_bytes = sent_partials(layout);
        facts.received_in = layout->wire;
        facts.received_bytes = ranks * facts.part_bytes;
    } else if (layout->chunks[coh_operand_touches(v, window)[0].chunk].is_divided) {
        const int axes = layout->groups[layout->objects[window->object].owner].axes.state;
        facts.axes = (1u << axes) - 1;
        facts.part_bytes = window->bytes; /* of states */
        facts.received_in = layout->gathered;
        facts.received_bytes =
            facts.part_bytes * (uint64_t)coh_mesh_group_size(&layout->mesh, facts.axes);
    }
    if (instruction->opcode == COH_OP_REDUCE)
        facts.part_bytes = 0;
    return facts;
}

/* Returns 1 if the operand is the part in `object` of the window's chunk. */
static int is_part_of(const coh_verifier *v, const coh_operand *part, const coh_operand *window,
                      int32_t object)
{
    return part->role == COH_ROLE_PART && part->object == object &&
           coh_operand_touches(v, part)[0].chunk ==
               coh_partner_chunk(v, coh_operand_touches(v, window)[0].chunk, object);
}

/* Checks an instruction of a group of ranks. The group of a chunk of a gradient or of work differs
 * in one axis; all others are of all ranks. */
static coh_status check_comm(coh_verifier *v, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_comm_call *comm = &v->program->comms[instruction->comm - 1];
    const coh_mesh *mesh = &v->layout->mesh;
    const coh_operand *window = coh_instruction_operands(v, index);
    const comm_facts facts = facts_of_comm(v, instruction, window);
    const coh_link_level level = coh_mesh_group_level(mesh, comm->axes);
    const uint64_t received = sent_part(comm->wire, comm->dtype, comm->part_bytes) *
                              (uint64_t)(coh_mesh_group_size(mesh, comm->axes) - 1);
    const coh_stream stream = (coh_stream)v->layout->objects[window->object].stream;
    int good = window->role == role_of_stream(stream) && comm->root == -1 && facts.part_bytes > 0 &&
               comm->axes == facts.axes && comm->part_bytes == facts.part_bytes &&
               comm->dtype == facts.dtype && comm->wire == facts.wire &&
               instruction->operand_count == 1u + (facts.received_in >= 0) + (facts.part >= 0);
    if (good && facts.received_in >= 0)
        good = window[1].object == facts.received_in && window[1].bytes >= facts.received_bytes;
    if (good && facts.part >= 0)
        good = is_part_of(v, &window[instruction->operand_count - 1], window, facts.part);
    if (good && role_of_stream(stream) == COH_ROLE_WORK)
        good = window->access == (facts.part >= 0 ? COH_ACCESS_WRITE : COH_ACCESS_BOTH);
    if (!good)
        return coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX,
                                 "its group, parts of %" PRIu64
                                 " bytes, wire or root are not those "
                                 "of its window of %" PRIu64,
                                 comm->part_bytes, window->bytes);
    if (instruction->bytes != received || comm->level != level ||
        instruction->lane != coh_link_lane(level))
        return coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX,
                                 "it receives %" PRIu64 " bytes on the lane %s, where its group "
                                 "sends %" PRIu64,
                                 instruction->bytes, coh_lane_name((coh_lane)instruction->lane),
                                 received);
    return COH_OK;
}

/* Checks that the instruction has the operands that its row requires. */
static coh_status check_required(coh_verifier *v, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    for (int r = 0; r < COH_OPERAND_RULES; r++) {
        const coh_operand_rule *rule = &row->operands[r];
        uint32_t count = 0, chunks = 0;
        for (uint32_t i = 0; rule->accesses != 0 && i < instruction->operand_count; i++) {
            const coh_operand *operand = &coh_instruction_operands(v, index)[i];
            count += operand->role == rule->role;
            chunks += operand->role == rule->role ? operand->touch_count : 0;
        }
        if ((count == 0 && (rule->flags & COH_OPERAND_REQUIRED)) ||
            (chunks > 1 && (rule->flags & COH_OPERAND_ONE_CHUNK)))
            return coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX,
                                     "it has %" PRIu32 " operands of role %d with %" PRIu32
                                     " chunks",
                                     count, rule->role, chunks);
    }
    return COH_OK;
}

static coh_status check_instruction(coh_verifier *v, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    if (!((coh_opcode_row_of(instruction)->lanes >> instruction->lane) & 1))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX, "it is on the lane %s",
                                  coh_lane_name((coh_lane)instruction->lane)));
    if ((index > 0 && instruction->position < instruction[-1].position) ||
        (instruction->before_after == 1) == coh_opcode_moves(instruction->opcode))
        COH_TRY(coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX,
                                  "its key (%" PRIu32 ", %d) is no key of such an instruction here",
                                  instruction->position, instruction->before_after));
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        COH_TRY(check_operand(v, index, &coh_instruction_operands(v, index)[i]));
    if (coh_opcode_moves(instruction->opcode))
        return check_mover(v, index);
    COH_TRY(check_predicate(v, index));
    COH_TRY(check_required(v, index));
    if (instruction->comm > 0)
        return check_comm(v, index);
    if (coh_opcode_calls(instruction->opcode) != (instruction->call >= 0))
        return coh_verify_breach(v, COH_RULE_FORM, index, UINT32_MAX, "its call is %" PRId32,
                                 instruction->call);
    if (instruction->call < 0)
        return COH_OK;
    const coh_instruction_call *call = &v->program->calls[instruction->call];
    for (uint32_t i = 0; i < call->binding_count; i++)
        COH_TRY(check_binding(v, index, call, &v->program->bindings[call->binding_begin + i]));
    return instruction->opcode == COH_OP_ADD ? check_add(v, index, call) : COH_OK;
}

/* Checks that each instruction between ranks has an entry of its own: the engine binds by it. */
static coh_status check_comm_indices(coh_verifier *v)
{
    coh_status status = COH_OK;
    uint8_t *seen;
    COH_TRY(COH_ALLOC(v->program->comm_count + 1, &seen));
    for (uint32_t i = 0; i < v->program->instruction_count && status == COH_OK; i++) {
        const uint32_t comm = v->program->instructions[i].comm;
        const int talks = coh_opcode_communicates(v->program->instructions[i].opcode);
        if (talks != (comm > 0) || (talks && seen[comm]))
            status = coh_verify_breach(v, COH_RULE_FORM, i, UINT32_MAX,
                                       "its group of ranks is number %" PRIu32
                                       " of the table, which is none or another instruction's",
                                       comm);
        seen[comm] = 1;
    }
    coh_free(seen);
    return status;
}

coh_status coh_verify_form(coh_verifier *v)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (v->lane_length[lane] != v->program->lane_length[lane] ||
            (v->lane_length[lane] > 0 && v->program->lane_depth[lane] == 0))
            COH_TRY(coh_verify_breach(v, COH_RULE_FORM, COH_NO_INSTRUCTION, UINT32_MAX,
                                      "the lane %s has %" PRIu32 " instructions, says %" PRIu32
                                      ", and depth %" PRIu32,
                                      coh_lane_name((coh_lane)lane), v->lane_length[lane],
                                      v->program->lane_length[lane], v->program->lane_depth[lane]));
    COH_TRY(check_comm_indices(v));
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        COH_TRY(check_instruction(v, i));
    return COH_OK;
}
