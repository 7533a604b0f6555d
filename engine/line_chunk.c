/* INIT, IMPORT, HASH, SAVE: lines that bring one chunk after the other past a visitor. INIT knows
 * the first values itself: a pure function of seed, parameter and element, whatever the chunks. */
#include <string.h>

#include "base/rng.h"
#include "engine/grains.h"
#include "engine/step_state.h"

typedef struct init_job {
    const coh_layout *layout;
    coh_grains grains;
    uint64_t seed;
} init_job;

static void init_piece(void *argument, int64_t index)
{
    const init_job *job = argument;
    coh_grain grain = coh_grains_at(&job->grains, index);
    const coh_parameter_layout *parameter = &job->layout->parameters[grain.segment->parameter];
    float *values = grain.segment->data + grain.element;
    uint64_t first = grain.segment->element_begin + grain.element;
    switch (parameter->init) {
    case COH_INIT_ZERO:
        return; /* the chunk is zero */
    case COH_INIT_ONE:
        for (uint64_t i = 0; i < grain.count; i++)
            values[i] = 1.0f;
        return;
    case COH_INIT_NORMAL:
        for (uint64_t i = 0; i < grain.count; i++)
            values[i] =
                (float)(coh_rng_normal(job->seed, (uint64_t)parameter->parameter, first + i) *
                        (double)parameter->init_std);
        return;
    }
}

static void init_chunk(coh_step *step, const coh_ticket *ticket, const coh_chunk_visit *visit)
{
    memset(visit->data, 0, visit->bytes);
    if (visit->stream != COH_STREAM_WORK)
        return;
    init_job job = { .layout = step->layout, .seed = ticket->input.seed };
    coh_grains_collect(&job.grains, step->layout, COH_STREAM_WORK, visit->group,
                       visit->object_offset, visit->bytes, visit->data);
    coh_pool_run(step->pool, job.grains.grain_count, init_piece, &job);
}

static coh_status visit_chunk(coh_step *step, coh_ticket *ticket, const coh_chunk_visit *visit)
{
    int of_parameters = visit->stream == COH_STREAM_WORK || visit->stream == COH_STREAM_STATE ||
                        visit->stream == COH_STREAM_GRAD;
    if (visit->opcode == COH_OP_INIT)
        init_chunk(step, ticket, visit);
    else if (visit->opcode == COH_OP_IMPORT)
        memset(visit->data, 0, visit->bytes);
    if (!of_parameters || ticket->visitor == NULL)
        return COH_OK;
    return ticket->visitor(ticket->visitor_context, visit);
}

coh_status coh_line_chunks(coh_step *step, coh_ticket *ticket, const coh_instruction *line)
{
    const coh_program *program = ticket->bound->program;
    for (uint32_t o = 0; o < line->operand_count; o++) {
        const coh_operand *operand = &program->operands[line->operand_begin + o];
        const coh_object *object = &step->layout->objects[operand->object];
        if (object->stream == COH_STREAM_CELLS)
            continue;
        for (uint32_t i = 0; i < operand->touch_count; i++) {
            const coh_chunk *chunk =
                &step->layout->chunks[program->touches[operand->touch_begin + i].chunk];
            const coh_chunk_visit visit = {
                .layout = step->layout,
                .opcode = (coh_opcode)line->opcode,
                .stream = (coh_stream)object->stream,
                .group = object->owner,
                .object_offset = chunk->object_offset,
                .bytes = chunk->bytes,
                .data = (char *)coh_operand_data(step, operand) +
                        (chunk->object_offset - operand->object_offset),
            };
            COH_TRY(visit_chunk(step, ticket, &visit));
        }
    }
    return COH_OK;
}
