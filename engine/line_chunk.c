/* INIT, IMPORT, HASH, SAVE: lines that show one chunk after the other to a visitor. INIT computes
 * the first values itself: a pure function of seed, parameter and element, independent of the
 * chunks.
 *
 *   f32    work chunk            -> the visitor reads and writes it in place
 *   bf16   work + its states     -> joined into a scratch of f32, a few grains at a time;
 *          (high)  (low)            values that a visitor wrote there are split again
 *
 * So a visitor sees one dtype. Values that no visitor asks for are not joined. */
#include <string.h>

#include "base/rng.h"
#include "engine/segments.h"
#include "engine/step_state.h"
#include "kernels/kernels.h"

/* A run of whole grains of one part of one tensor. */
typedef struct run {
    const coh_parameter_layout *parameter;
    uint64_t element_begin, count; /* in the tensor */
    uint64_t seed;
    float *values;
    uint16_t *high, *low; /* NULL: the chunk holds the values themselves. low NULL: no low half */
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
    coh_kernel_join(r->values + begin, r->high + begin, r->low != NULL ? r->low + begin : NULL,
                    count);
}

static void split_piece(void *argument, int64_t index)
{
    const run *r = argument;
    uint64_t begin;
    int64_t count = run_piece(r, index, &begin);
    coh_kernel_split(r->high + begin, r->low != NULL ? r->low + begin : NULL, r->values + begin,
                     count);
}

static coh_status show_run(coh_step *step, const coh_ticket *ticket, run *r, coh_chunk_visit *visit)
{
    int64_t piece_count = (int64_t)((r->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS);
    int writes = visit->opcode == COH_OP_INIT || visit->opcode == COH_OP_IMPORT;
    int begins = visit->opcode == COH_OP_INIT && visit->stream == COH_STREAM_WORK;
    int is_wanted =
        ticket->visitor != NULL &&
        (ticket->visitor_wants == NULL || ticket->visitor_wants(ticket->visitor_context, visit));
    if (!is_wanted && !begins)
        return COH_OK;
    if (begins)
        coh_pool_run(step->pool, piece_count, init_piece, r);
    else if (r->high != NULL)
        coh_pool_run(step->pool, piece_count, join_piece, r);
    visit->values = r->values;
    if (is_wanted)
        COH_TRY(ticket->visitor(ticket->visitor_context, visit));
    if (writes && r->high != NULL)
        coh_pool_run(step->pool, piece_count, split_piece, r);
    return COH_OK;
}

/* ---- chunks ---- */

/* One chunk of parameters: the streams of it that the line provides. */
typedef struct place {
    int32_t group;
    coh_dtype dtype;
    int f32_gradients;
    uint64_t object_offset, bytes; /* in WORK */
    void *work, *grad;             /* NULL: not provided */
    coh_states states;             /* likewise */
} place;

/* Shows one part of one segment: at once if it is stored in f32, else through the scratch. */
static coh_status show_segment(coh_step *step, const coh_ticket *ticket, const place *at,
                               const coh_segment *segment, coh_chunk_visit *visit, void *data)
{
    int is_split = at->dtype == COH_DTYPE_BF16 && visit->part == COH_PART_WORK &&
                   !(visit->stream == COH_STREAM_GRAD && at->f32_gradients);
    uint64_t most = is_split ? (uint64_t)COH_VISIT_GRAINS * COH_GRAIN_ELEMENTS : segment->count;
    visit->parameter = segment->parameter;
    for (uint64_t done = 0; done < segment->count; done += most) {
        uint64_t element = segment->chunk_element + done, left = segment->count - done;
        run r = { .parameter = &step->layout->parameters[segment->parameter],
                  .element_begin = segment->element_begin + done,
                  .count = left < most ? left : most,
                  .seed = ticket->input.seed };
        if (is_split) {
            r.values = step->visit_values;
            r.high = (uint16_t *)data + element;
            if (visit->stream == COH_STREAM_WORK && at->states.low != NULL)
                r.low = at->states.low + element;
        } else {
            r.values = (float *)data + element;
        }
        visit->element_begin = r.element_begin;
        visit->count = r.count;
        COH_TRY(show_run(step, ticket, &r, visit));
    }
    return COH_OK;
}

static coh_status show_part(coh_step *step, const coh_ticket *ticket, const place *at,
                            coh_opcode opcode, coh_stream stream, coh_part part, void *data)
{
    coh_segments walk;
    coh_segment segment;
    coh_chunk_visit visit = { .opcode = opcode, .stream = stream, .part = part };
    if (data == NULL)
        return COH_OK;
    coh_segments_begin(&walk, step->layout, at->group, at->object_offset, at->bytes);
    while (coh_segments_next(&walk, &segment))
        COH_TRY(show_segment(step, ticket, at, &segment, &visit, data));
    return COH_OK;
}

static coh_status show_place(coh_step *step, const coh_ticket *ticket, const place *at,
                             coh_opcode opcode)
{
    COH_TRY(show_part(step, ticket, at, opcode, COH_STREAM_WORK, COH_PART_WORK, at->work));
    COH_TRY(show_part(step, ticket, at, opcode, COH_STREAM_GRAD, COH_PART_WORK, at->grad));
    COH_TRY(show_part(step, ticket, at, opcode, COH_STREAM_STATE, COH_PART_M, at->states.m));
    return show_part(step, ticket, at, opcode, COH_STREAM_STATE, COH_PART_V, at->states.v);
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
    p.stage = p.object->stream == COH_STREAM_STATE ? COH_STAGE_STATES : COH_STAGE_VALUES;
    p.data =
        (char *)coh_operand_data(step, operand) + (p.chunk->object_offset - operand->object_offset);
    return p;
}

/* Describes a piece of WORK, GRAD or STATE, whose bytes the host finds at `data`. */
static place piece_place(const coh_step *step, const piece *p, void *data)
{
    const coh_object *object = p->object;
    const coh_group_layout *group = &step->layout->groups[object->owner];
    place at = { .group = object->owner,
                 .dtype = group->dtype,
                 .f32_gradients = group->f32_gradients,
                 .object_offset = p->chunk->object_offset,
                 .bytes = p->chunk->bytes };
    if (object->stream == COH_STREAM_STATE) {
        at.object_offset /= coh_state_factor(at.dtype);
        at.bytes /= coh_state_factor(at.dtype);
        at.states = coh_states_at(data, at.dtype, at.bytes);
    } else if (object->stream == COH_STREAM_GRAD) {
        at.object_offset /= coh_group_grad_factor(group);
        at.bytes /= coh_group_grad_factor(group);
        at.grad = data;
    } else {
        at.work = data;
    }
    return at;
}

/* Is the group's master split over two streams (bf16)? bind.c made sure that both chunks come in
 * one line. */
static int is_pair(const coh_group_layout *group)
{
    return group->dtype == COH_DTYPE_BF16 && group->state >= 0;
}

static int is_writer(const coh_instruction *line)
{
    return line->opcode == COH_OP_INIT || line->opcode == COH_OP_IMPORT;
}

/* Shows one piece, or two of one chunk of parameters: the second one holds its states. */
static coh_status show_pieces(coh_step *step, const coh_ticket *ticket, const coh_instruction *line,
                              const piece *pieces, int count)
{
    place at = { 0 };
    for (int i = 0; i < count; i++) {
        const piece *p = &pieces[i];
        void *data;
        if (is_writer(line)) /* coh_line_chunks zeroed them */
            data = coh_step_bring_zeros(step, p->stage, p->tier, p->data, p->chunk->bytes);
        else
            COH_TRY(coh_step_bring(step, p->stage, p->tier, p->data, p->chunk->bytes, &data));
        const place one = piece_place(step, p, data);
        if (i == 0)
            at = one;
        else
            at.states = one.states;
    }
    COH_TRY(show_place(step, ticket, &at, (coh_opcode)line->opcode));
    for (int i = 0; i < count && is_writer(line); i++)
        COH_TRY(coh_step_take_back(step, pieces[i].stage, pieces[i].tier, pieces[i].data,
                                   pieces[i].chunk->bytes));
    return COH_OK;
}

static coh_status show_operand(coh_step *step, const coh_ticket *ticket,
                               const coh_instruction *line, const coh_operand *operand)
{
    const coh_program *program = ticket->bound->program;
    const coh_object *object = &step->layout->objects[operand->object];
    const coh_operand *states = NULL;
    if (is_pair(&step->layout->groups[object->owner])) {
        if (object->stream == COH_STREAM_STATE)
            return COH_OK; /* shown with its work */
        if (object->stream == COH_STREAM_WORK)
            states = coh_line_operand(program, line, COH_ROLE_OPTIMIZER_STATE);
    }
    for (uint32_t i = 0; i < operand->touch_count; i++) {
        piece pieces[2];
        int count = 0;
        pieces[count++] = operand_piece(step, program, operand, i);
        if (states != NULL)
            pieces[count++] = operand_piece(step, program, states, i);
        COH_TRY(show_pieces(step, ticket, line, pieces, count));
    }
    return COH_OK;
}

coh_status coh_line_chunks(coh_step *step, coh_ticket *ticket, const coh_instruction *line)
{
    const coh_program *program = ticket->bound->program;
    const coh_operand *operands = &program->operands[line->operand_begin];
    for (uint32_t i = 0; is_writer(line) && i < line->operand_count; i++)
        if (step->layout->objects[operands[i].object].stream != COH_STREAM_CELLS)
            COH_TRY(coh_step_fill(step, (coh_tier)operands[i].tier, operands[i].offset, 0,
                                  operands[i].bytes));
    for (uint32_t i = 0; i < line->operand_count; i++) {
        uint8_t stream = step->layout->objects[operands[i].object].stream;
        if (stream == COH_STREAM_WORK || stream == COH_STREAM_GRAD || stream == COH_STREAM_STATE)
            COH_TRY(show_operand(step, ticket, line, &operands[i]));
    }
    return COH_OK;
}
