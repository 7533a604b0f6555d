/* INIT, IMPORT, HASH, SAVE, EDIT: instructions that show one chunk after the other to a visitor.
 * INIT computes the first values itself: a pure function of seed, parameter and element,
 * independent of the chunks.
 *
 *   f32    work chunk            -> the visitor reads and writes it in place
 *   bf16   work + its states     -> joined into a scratch of f32, a few grains at a time;
 *          (high)  (low)            values that a visitor wrote there are split again
 *   nf4    work                  -> likewise: dequantised, and quantised again
 *   states                       -> the blocks of each stream, in place
 *
 * So a visitor sees weights and gradients in one dtype. Values that no visitor asks for are not
 * joined. Of a divided chunk a rank has the states of its part: HASH and SAVE find those of all
 * parts gathered; the others see the work of all parts, and the states of this one. */
#include <string.h>

#include "base/rng.h"
#include "engine/segments.h"
#include "engine/step_state.h"
#include "kernels/kernels.h"
#include "kernels/nf4.h"
#include "planner/comm_parts.h"

/* A run of whole grains of one part of one tensor. */
typedef struct run {
    const coh_parameter_layout *parameter;
    uint64_t element_begin, count; /* in the tensor */
    uint64_t seed;
    float *values;
    uint16_t *high, *low; /* NULL: the chunk holds the values themselves. low NULL: no low half */
    char *packed;         /* NF4; NULL: it is not */
} run;

/* Returns the number of elements of piece `index`; *out_begin is its first one, in the run. */
static int64_t run_piece(const run *r, int64_t index, uint64_t *out_begin)
{
    *out_begin = (uint64_t)index * COH_GRAIN_ELEMENTS;
    uint64_t left = r->count - *out_begin;
    return (int64_t)(left < COH_GRAIN_ELEMENTS ? left : COH_GRAIN_ELEMENTS);
}

static void init_piece(void *argument, int64_t index)
{
    const run *r = argument;
    uint64_t begin;
    int64_t count = run_piece(r, index, &begin);
    uint64_t first = r->element_begin + begin;
    float *values = r->values + begin;
    switch (r->parameter->init) {
    case COH_INIT_ZERO:
        memset(values, 0, (size_t)count * sizeof(*values));
        return;
    case COH_INIT_ONE:
        for (int64_t i = 0; i < count; i++)
            values[i] = 1.0f;
        return;
    case COH_INIT_NORMAL:
        coh_kernel_normal(values, r->seed, (uint64_t)r->parameter->parameter, first, count,
                          (double)r->parameter->init_std);
        return;
    case COH_INIT_UNIFORM: /* over [-sqrt(3), sqrt(3)) the standard deviation is 1 */
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)((2.0 * coh_rng_uniform(r->seed, (uint64_t)r->parameter->parameter,
                                                       first + (uint64_t)i) -
                                 1.0) *
                                1.7320508075688772 * (double)r->parameter->init_std);
        return;
    }
}

static void join_piece(void *argument, int64_t index)
{
    const run *r = argument;
    uint64_t begin;
    int64_t count = run_piece(r, index, &begin);
    if (r->packed != NULL)
        coh_nf4_dequantise(r->values + begin, coh_element_at(r->packed, COH_DTYPE_NF4, begin),
                           count);
    else
        coh_kernel_join(r->values + begin, r->high + begin, r->low != NULL ? r->low + begin : NULL,
                        count);
}

static void split_piece(void *argument, int64_t index)
{
    const run *r = argument;
    uint64_t begin;
    int64_t count = run_piece(r, index, &begin);
    if (r->packed != NULL)
        coh_nf4_quantise(coh_element_at(r->packed, COH_DTYPE_NF4, begin), r->values + begin, count);
    else
        coh_kernel_split(r->high + begin, r->low != NULL ? r->low + begin : NULL, r->values + begin,
                         count);
}

/* INIT and IMPORT give all values of a chunk, EDIT changes some: the visitor's are kept. */
static int begins_empty(uint8_t opcode)
{
    return opcode == COH_OP_INIT || opcode == COH_OP_IMPORT;
}

static int keeps_values(uint8_t opcode)
{
    return begins_empty(opcode) || opcode == COH_OP_EDIT;
}

static int is_wanted(const coh_ticket *ticket, const coh_chunk_visit *visit)
{
    return ticket->visitor != NULL &&
           (ticket->visitor_wants == NULL || ticket->visitor_wants(ticket->visitor_context, visit));
}

static coh_status show_run(coh_step *step, const coh_ticket *ticket, run *r, coh_chunk_visit *visit)
{
    int64_t piece_count = (int64_t)((r->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS);
    int begins = visit->opcode == COH_OP_INIT && visit->stream == COH_STREAM_WORK;
    const int wanted = is_wanted(ticket, visit), is_scratch = r->values == step->visit_values;
    if (!wanted && !begins)
        return COH_OK;
    if (begins)
        coh_pool_run(step->pool, piece_count, init_piece, r);
    else if (is_scratch)
        coh_pool_run(step->pool, piece_count, join_piece, r);
    visit->data = r->values;
    if (wanted)
        COH_TRY(ticket->visitor(ticket->visitor_context, visit));
    if (keeps_values((uint8_t)visit->opcode) && is_scratch)
        coh_pool_run(step->pool, piece_count, split_piece, r);
    return COH_OK;
}

/* ---- chunks ---- */

/* One chunk of parameters: the objects of it that the instruction provides. */
typedef struct place {
    const coh_group_layout *group;
    uint32_t chunk;                /* of WORK */
    uint64_t begin;                /* in the chunk */
    uint64_t object_offset, bytes; /* in WORK */
    uint64_t state_bytes;          /* the bytes of WORK that the states have room for */
    void *work, *grad;             /* NULL: not provided */
    char *state;                   /* likewise */
    int lacks_low;                 /* 1: another rank has the low halves of the master */
} place;

/* Returns the address of row `index` of the chunk, or NULL if its object is not provided. */
static char *row_data(const place *at, int32_t index)
{
    const coh_group_stream *row = &at->group->streams[index];
    char *object = row->object == COH_STREAM_WORK   ? at->work
                   : row->object == COH_STREAM_GRAD ? at->grad
                                                    : at->state;
    return object == NULL
               ? NULL
               : object + coh_part_offset(at->group, row->object, index, at->state_bytes);
}

/* Returns the low halves of the chunk's master, or NULL. */
static uint16_t *low_of(const place *at)
{
    for (int32_t i = 0; i < at->group->stream_count; i++)
        if (at->group->streams[i].object == COH_STREAM_STATE && at->group->streams[i].part < 0)
            return (uint16_t *)(void *)row_data(at, i);
    return NULL;
}

/* Shows the values of one segment of a stream: at once if they are f32, else through the scratch.
 */
static coh_status show_values(coh_step *step, const coh_ticket *ticket, const place *at,
                              const coh_segment *segment, coh_chunk_visit *visit, void *data)
{
    const coh_dtype dtype =
        visit->stream == COH_STREAM_GRAD ? coh_group_grad_dtype(at->group) : at->group->dtype;
    const int is_split = dtype == COH_DTYPE_BF16, is_packed = dtype == COH_DTYPE_NF4;
    uint16_t *low = visit->stream == COH_STREAM_WORK && is_split ? low_of(at) : NULL;
    uint64_t most =
        is_split || is_packed ? (uint64_t)COH_VISIT_GRAINS * COH_GRAIN_ELEMENTS : segment->count;
    for (uint64_t done = 0; done < segment->count; done += most) {
        uint64_t element = segment->chunk_element + done, left = segment->count - done;
        run r = { .parameter = &step->layout->parameters[segment->parameter],
                  .element_begin = segment->element_begin + done,
                  .count = left < most ? left : most,
                  .seed = ticket->input.seed };
        if (is_split) {
            r.values = step->visit_values;
            r.high = (uint16_t *)data + element;
            r.low = low != NULL ? low + element : NULL;
            if (at->lacks_low && visit->stream == COH_STREAM_WORK) {
                memset(step->visit_low, 0, r.count * sizeof(*step->visit_low));
                r.low = step->visit_low;
            }
        } else if (is_packed) {
            r.values = step->visit_values;
            r.packed = coh_element_at(data, dtype, element);
        } else {
            r.values = (float *)data + element;
        }
        visit->element_begin = r.element_begin;
        visit->count = r.count;
        COH_TRY(show_run(step, ticket, &r, visit));
    }
    return COH_OK;
}

/* Shows the blocks of one segment of a state stream. */
static coh_status show_blocks(const coh_ticket *ticket, const coh_group_stream *row,
                              const coh_segment *segment, coh_chunk_visit *visit, char *data)
{
    visit->element_begin = segment->element_begin;
    visit->count = segment->count;
    if (!is_wanted(ticket, visit))
        return COH_OK;
    visit->data = data + segment->chunk_element / row->elements_per_block * row->bytes_per_block;
    return ticket->visitor(ticket->visitor_context, visit);
}

static coh_status show_row(coh_step *step, const coh_ticket *ticket, const place *at,
                           coh_opcode opcode, int32_t index)
{
    const coh_group_stream *row = &at->group->streams[index];
    char *data = row_data(at, index);
    coh_segments walk;
    coh_segment segment;
    coh_chunk_visit visit = { .opcode = opcode,
                              .stream = (coh_stream)row->object,
                              .part = row->object == COH_STREAM_GRAD ? 0 : row->part };
    const int is_low = row->object == COH_STREAM_STATE && row->part < 0; /* shown with its work */
    if (data == NULL || is_low)
        return COH_OK;
    coh_segments_begin(&walk, step->layout, (int32_t)(at->group - step->layout->groups),
                       at->object_offset, at->bytes);
    while (coh_segments_next(&walk, &segment)) {
        visit.parameter = segment.parameter;
        COH_TRY(row->object == COH_STREAM_STATE
                    ? show_blocks(ticket, row, &segment, &visit, data)
                    : show_values(step, ticket, at, &segment, &visit, data));
    }
    return COH_OK;
}

static coh_status show_place(coh_step *step, const coh_ticket *ticket, const place *at,
                             coh_opcode opcode)
{
    for (int32_t i = 0; i < at->group->stream_count; i++)
        COH_TRY(show_row(step, ticket, at, opcode, i));
    return COH_OK;
}

/* Chunk `index` of an operand, at its address on the device. */
typedef struct piece {
    const coh_object *object;
    const coh_chunk *chunk;
    coh_stage stage;
    coh_tier tier;
    void *data;
} piece;

static piece operand_piece(const coh_step *step, const coh_program *program,
                           const coh_operand *operand, uint32_t index)
{
    piece p = { .object = &step->layout->objects[operand->object],
                .tier = (coh_tier)operand->tier };
    p.chunk = &step->layout->chunks[program->touches[operand->touch_begin + index].chunk];
    p.stage = coh_stage_of((coh_stream)p.object->stream);
    p.data =
        (char *)coh_operand_data(step, operand) + (p.chunk->object_offset - operand->object_offset);
    return p;
}

/* Describes a piece of WORK, GRAD or STATE, whose bytes the host finds at `data`. */
static place piece_place(const coh_step *step, const piece *p, void *data)
{
    const coh_layout *layout = step->layout;
    const coh_group_layout *group = &layout->groups[p->object->owner];
    const coh_chunk *work = &layout->chunks[coh_chunk_partner(
        layout, (uint32_t)(p->chunk - layout->chunks), group->work)];
    const uint32_t chunk = (uint32_t)(work - layout->chunks);
    const uint8_t values =
        p->object->stream == COH_STREAM_STATE ? COH_STREAM_WORK : p->object->stream;
    const coh_part kept = coh_part_in(layout, chunk, values, step->rank);
    place at = { .group = group,
                 .chunk = chunk,
                 .begin = kept.begin,
                 .object_offset = work->object_offset + kept.begin,
                 .bytes = kept.bytes,
                 .state_bytes = coh_updated_part_bytes(layout, chunk) };
    if (p->object->stream == COH_STREAM_STATE)
        at.state = data;
    else if (p->object->stream == COH_STREAM_GRAD || p->object->stream == COH_STREAM_GRAD_PART)
        at.grad = data;
    else
        at.work = data;
    return at;
}

/* ---- divided chunks ---- */

/* Returns a part of a chunk, which the place has, without its states. */
static place part_of_place(const place *of, coh_part part)
{
    const uint64_t before = part.begin - of->begin;
    place at = *of;
    at.begin = part.begin;
    at.object_offset += before;
    at.bytes = part.bytes;
    at.work = of->work != NULL ? (char *)of->work + before : NULL;
    at.state = NULL;
    return at;
}

/* Shows a divided chunk, or what this rank keeps of it. The rank has the states of the part that it
 * updates: the work before it, the part with its states, the work behind it. */
static coh_status show_own(coh_step *step, const coh_ticket *ticket, const place *kept,
                           coh_opcode opcode)
{
    const coh_part own = coh_updated_part(step->layout, kept->chunk, step->rank);
    const uint64_t own_end = own.begin + own.bytes, end = kept->begin + kept->bytes;
    const coh_part parts[] = { { kept->begin, own.begin - kept->begin },
                               own,
                               { own_end, end - own_end } };
    for (int i = 0; i < 3; i++) {
        place at = part_of_place(kept, parts[i]);
        at.lacks_low = i != 1;
        at.state = i == 1 ? kept->state : NULL;
        if (at.bytes > 0 && (at.work != NULL || at.state != NULL))
            COH_TRY(show_place(step, ticket, &at, opcode));
    }
    return COH_OK;
}

/* Shows a divided chunk of work with the states of all its parts, which lie one after the other. */
static coh_status show_gathered(coh_step *step, const coh_ticket *ticket, const place *whole,
                                char *gathered, coh_opcode opcode)
{
    const coh_layout *layout = step->layout;
    const coh_axis_set axes = coh_inner_axes(whole->group->axes.state);
    const uint64_t slot =
        layout->chunks[coh_chunk_partner(layout, whole->chunk, whole->group->state)].bytes;
    for (int32_t i = 0; i < coh_mesh_group_size(&layout->mesh, axes); i++) {
        const int32_t rank = coh_mesh_group_member(&layout->mesh, axes, step->rank, i);
        place at = part_of_place(whole, coh_updated_part(layout, whole->chunk, rank));
        at.state = gathered + (uint64_t)i * slot;
        COH_TRY(show_place(step, ticket, &at, opcode));
    }
    return COH_OK;
}

/* ---- operands ---- */

/* Shows one piece, or two of one chunk of parameters: the second one holds its states. */
static coh_status show_pieces(coh_step *step, const coh_ticket *ticket,
                              const coh_instruction *instruction, const piece *pieces, int count)
{
    const coh_opcode opcode = (coh_opcode)instruction->opcode;
    place at = { 0 };
    char *gathered = NULL;
    for (int i = 0; i < count; i++) {
        const piece *p = &pieces[i];
        void *data;
        if (begins_empty(instruction->opcode)) /* coh_run_visit zeroed them */
            data = coh_step_bring_zeros(step, p->stage, p->tier, p->data, p->chunk->bytes);
        else
            COH_TRY(coh_step_bring(step, p->stage, p->tier, p->data, p->chunk->bytes, &data));
        if (p->object->stream == COH_STREAM_GATHERED) {
            gathered = data;
            continue;
        }
        const place one = piece_place(step, p, data);
        if (i == 0)
            at = one;
        else
            at.state = one.state;
    }
    if (gathered != NULL)
        COH_TRY(show_gathered(step, ticket, &at, gathered, opcode));
    else if (pieces[0].chunk->is_divided && at.grad == NULL)
        COH_TRY(show_own(step, ticket, &at, opcode));
    else
        COH_TRY(show_place(step, ticket, &at, opcode));
    for (int i = 0; i < count && keeps_values(instruction->opcode); i++)
        COH_TRY(coh_step_take_back(step, pieces[i].stage, pieces[i].tier, pieces[i].data,
                                   pieces[i].chunk->bytes));
    return COH_OK;
}

static coh_status show_operand(coh_step *step, const coh_ticket *ticket,
                               const coh_instruction *instruction, const coh_operand *operand)
{
    const coh_program *program = ticket->bound->program;
    const coh_object *object = &step->layout->objects[operand->object];
    const int is_work = object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_WORK_PART;
    const coh_operand *states =
        is_work ? coh_bound_operand(ticket->bound, instruction, COH_SLOT_VISIT_STATES) : NULL;
    if (ticket->skips_frozen && !coh_group_is_trained(&step->layout->groups[object->owner]))
        return COH_OK;
    if (object->stream == COH_STREAM_STATE &&
        coh_bound_operand(ticket->bound, instruction, COH_SLOT_VISIT_WORK) != NULL)
        return COH_OK; /* shown with its work */
    for (uint32_t i = 0; i < operand->touch_count; i++) {
        piece pieces[2];
        int count = 0;
        pieces[count++] = operand_piece(step, program, operand, i);
        if (states != NULL)
            pieces[count++] = operand_piece(step, program, states, i);
        COH_TRY(show_pieces(step, ticket, instruction, pieces, count));
    }
    return COH_OK;
}

coh_status coh_run_visit(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    coh_step_wait_for_device(step);
    const coh_program *program = ticket->bound->program;
    const coh_operand *operands = &program->operands[instruction->operand_begin];
    for (uint32_t i = 0; begins_empty(instruction->opcode) && i < instruction->operand_count; i++)
        if (step->layout->objects[operands[i].object].stream != COH_STREAM_CELLS)
            COH_TRY(coh_step_fill(step, (coh_tier)operands[i].tier, operands[i].offset, 0,
                                  operands[i].bytes));
    for (uint32_t i = 0; i < instruction->operand_count; i++) {
        uint8_t stream = step->layout->objects[operands[i].object].stream;
        if (coh_stream_is_of_group(stream) && stream != COH_STREAM_CONTRIBUTION)
            COH_TRY(show_operand(step, ticket, instruction, &operands[i]));
    }
    return COH_OK;
}
