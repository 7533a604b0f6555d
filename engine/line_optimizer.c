/* FEED, NORM, CLIP, UPDATE: the lines between gradients and new parameters.
 *
 *   grad chunk  --NORM-->  one partial per grain  --CLIP-->  norm, scale, finite, pending
 *                                                               |
 *   work, grad, [m][v]  --UPDATE (this body's end, the next body, or a drain)--> next version
 *
 * All that UPDATE needs of its step was latched by CLIP (by FEED with updates in backward), because
 * with deferred updates it runs after the next FEED. Partials are per grain and folded in tensor
 * order, so neither chunks nor threads can change the norm. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/grains.h"
#include "engine/step_state.h"
#include "kernels/kernels.h"
#include "planner/layout.h"

/* Bias corrections of Adam's moments after `count` updates: 1 - beta^count. */
static void latch_update(const coh_step *step, coh_cells *cells, uint64_t count, float scale)
{
    cells->update_rate = cells->learning_rate;
    cells->update_scale = scale;
    cells->update_bias1 = (float)(1.0 - pow((double)step->options.beta1, (double)count));
    cells->update_bias2 = (float)(1.0 - pow((double)step->options.beta2, (double)count));
}

coh_status coh_line_feed(coh_step *step, coh_ticket *ticket)
{
    const coh_layout *layout = step->layout;
    coh_cells *cells = coh_step_cells(step);
    cells->step = ticket->input.step;
    cells->seed = ticket->input.seed;
    cells->learning_rate = ticket->input.learning_rate;
    cells->clip = ticket->input.clip;
    if (!step->plan->options.deferred_update)
        latch_update(step, cells, cells->applied_count + 1, 1.0f);
    for (uint32_t i = 0; i < layout->input_count; i++)
        memcpy(coh_step_pinned(step, layout->input_objects[i]), ticket->input_bytes[i],
               coh_input_bytes(step->plan->graph, i) * ticket->microbatch_count);
    return COH_OK;
}

/* ---- NORM ---- */

typedef struct norm_job {
    const coh_layout *layout;
    coh_grains grains;
    double *partials;
} norm_job;

static void norm_piece(void *argument, int64_t index)
{
    const norm_job *job = argument;
    coh_grain grain = coh_grains_at(&job->grains, index);
    const coh_parameter_layout *parameter = &job->layout->parameters[grain.segment->parameter];
    if (!parameter->frozen)
        job->partials[parameter->partial_begin + grain.number] = coh_kernel_square_sum(
            COH_DTYPE_F32, grain.segment->data + grain.element, (int64_t)grain.count);
}

/* One chunk of an operand: where it stands in its object and in memory. */
static void operand_chunk(const coh_step *step, const coh_program *program,
                          const coh_operand *operand, const coh_chunk **out_chunk, void **out_data)
{
    *out_chunk = &step->layout->chunks[program->touches[operand->touch_begin].chunk];
    *out_data = coh_operand_data(step, operand);
}

coh_status coh_line_norm(coh_step *step, const coh_program *program, const coh_instruction *line)
{
    const coh_operand *operand = coh_line_operand(program, line, COH_ROLE_GRAD);
    const coh_object *object = &step->layout->objects[operand->object];
    norm_job job = { .layout = step->layout,
                     .partials = coh_step_pinned(step, step->layout->partials) };
    for (uint32_t i = 0; i < operand->touch_count; i++) {
        const coh_chunk *chunk =
            &step->layout->chunks[program->touches[operand->touch_begin + i].chunk];
        char *data = (char *)coh_operand_data(step, operand) +
                     (chunk->object_offset - operand->object_offset);
        coh_grains_collect(&job.grains, step->layout, COH_STREAM_GRAD, object->owner,
                           chunk->object_offset, chunk->bytes, data);
        coh_pool_run(step->pool, job.grains.grain_count, norm_piece, &job);
    }
    return COH_OK;
}

/* ---- CLIP ---- */

static double fold_partials(const coh_step *step, const double *partials)
{
    double sum = 0;
    for (uint32_t i = 0; partials != NULL && i < step->layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &step->layout->parameters[i];
        for (uint32_t grain = 0; !parameter->frozen && grain < parameter->grain_count; grain++)
            sum += partials[parameter->partial_begin + grain];
    }
    return sum;
}

double coh_step_mean_loss(coh_step *step, uint64_t microbatch_count)
{
    const char *losses = coh_step_pinned(step, step->layout->losses);
    double sum = 0;
    for (uint64_t i = 0; losses != NULL && i < microbatch_count; i++) {
        float loss;
        memcpy(&loss, losses + i * COH_LOSS_STRIDE_BYTES, sizeof(loss));
        sum += loss;
    }
    return sum / (double)microbatch_count;
}

coh_status coh_line_clip(coh_step *step, coh_ticket *ticket)
{
    coh_cells *cells = coh_step_cells(step);
    double loss = coh_step_mean_loss(step, step->layout->microbatch_count);
    double norm = sqrt(fold_partials(step, coh_step_pinned(step, step->layout->partials)));
    float scale = 1.0f;
    if (cells->clip > 0 && norm > (double)cells->clip)
        scale = (float)((double)cells->clip / norm);
    cells->finite = isfinite(loss) && isfinite(norm);
    if (cells->finite)
        cells->applied_count++;
    if (step->plan->options.deferred_update) {
        cells->pending = cells->finite;
        latch_update(step, cells, cells->applied_count, scale);
    }
    ticket->result.step = cells->step;
    ticket->result.loss = loss;
    ticket->result.grad_norm = norm;
    ticket->result.finite = cells->finite;
    ticket->result.applied_count = cells->applied_count;
    coh_step_stamp(step, ticket);
    return COH_OK;
}

/* ---- UPDATE ---- */

typedef struct update_job {
    const coh_layout *layout;
    coh_grains grains; /* of work */
    const char *grad;
    char *state; /* m, then v */
    uint64_t work_bytes;
    coh_adamw adamw; /* decay as for a parameter that decays */
} update_job;

static void update_piece(void *argument, int64_t index)
{
    const update_job *job = argument;
    coh_grain grain = coh_grains_at(&job->grains, index);
    const coh_parameter_layout *parameter = &job->layout->parameters[grain.segment->parameter];
    if (parameter->frozen)
        return;
    coh_adamw adamw = job->adamw;
    if (!parameter->decays)
        adamw.decay = 0;
    uint64_t offset = grain.segment->chunk_offset + grain.element * sizeof(float);
    const float *grad = (const float *)(const void *)(job->grad + offset);
    float *m = (float *)(void *)(job->state + offset);
    float *v = (float *)(void *)(job->state + job->work_bytes + offset);
    coh_kernel_adamw(&adamw, grain.segment->data + grain.element, grad, m, v, (int64_t)grain.count);
}

coh_status coh_line_update(coh_step *step, const coh_program *program, const coh_instruction *line)
{
    const coh_cells *cells = coh_step_cells(step);
    if (coh_line_operand(program, line, COH_ROLE_PARTIALS) != NULL) /* no NORM line does it */
        COH_TRY(coh_line_norm(step, program, line));
    const coh_operand *work = coh_line_operand(program, line, COH_ROLE_WORK);
    const coh_operand *grad = coh_line_operand(program, line, COH_ROLE_GRAD);
    const coh_operand *state = coh_line_operand(program, line, COH_ROLE_OPTIMIZER_STATE);
    const coh_chunk *chunk;
    void *data;
    operand_chunk(step, program, work, &chunk, &data);
    update_job job = {
        .layout = step->layout,
        .grad = coh_operand_data(step, grad),
        .state = coh_operand_data(step, state),
        .work_bytes = chunk->bytes,
        .adamw = { .rate = cells->update_rate,
                   .scale = cells->update_scale,
                   .beta1 = step->options.beta1,
                   .beta2 = step->options.beta2,
                   .bias1 = cells->update_bias1,
                   .bias2 = cells->update_bias2,
                   .epsilon = step->options.epsilon,
                   .decay = step->options.weight_decay },
    };
    coh_grains_collect(&job.grains, step->layout, COH_STREAM_WORK,
                       step->layout->objects[work->object].owner, chunk->object_offset,
                       chunk->bytes, data);
    coh_pool_run(step->pool, job.grains.grain_count, update_piece, &job);
    return COH_OK;
}
