/* FEED, NORM, CLIP, UPDATE: the lines between gradients and new parameters.
 *
 *   grad chunk  --NORM-->  one partial per grain  --CLIP-->  norm, scale, finite, pending
 *                                                               |
 *   work, grad, states  --UPDATE (this body's end, the next body, or a drain)--> next version
 *
 * All that UPDATE needs of its step was latched by CLIP (by FEED with updates in backward), because
 * with deferred updates it runs after the next FEED. Partials are per grain and folded in tensor
 * order, so neither chunks nor threads can change the norm. With updates in backward nothing waits
 * for the norm, and UPDATE makes the partials itself while a grain is in cache.
 *
 * An UPDATE on the host lane does the same to chunks in the host tier, with the copy of the cells
 * that a STORE brought there. The pool is the compute lane's, so coh-host works alone. */
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
    cells->random = (coh_random_cell){ .seed = ticket->input.seed, .step = ticket->input.step };
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
    coh_dtype dtype;
    void *grad; /* of the chunk */
    double *partials;
} norm_job;

static void norm_grain(const coh_layout *layout, const coh_grain *grain, coh_dtype dtype,
                       const void *grad, double *partials)
{
    const coh_parameter_layout *parameter = &layout->parameters[grain->parameter];
    if (!parameter->frozen)
        partials[parameter->partial_begin + grain->number] =
            coh_kernel_square_sum(dtype, grad, (int64_t)grain->count);
}

static void norm_piece(void *argument, int64_t index)
{
    const norm_job *job = argument;
    coh_grain grain = coh_grains_at(&job->grains, index);
    norm_grain(job->layout, &grain, job->dtype,
               coh_element_at(job->grad, job->dtype, grain.chunk_element), job->partials);
}

void coh_chunk_norm(coh_pool *pool, const coh_chunk_place *place, void *grad, double *partials)
{
    norm_job job = { .layout = place->layout,
                     .dtype = place->layout->groups[place->group].dtype,
                     .grad = grad,
                     .partials = partials };
    coh_grains_collect(&job.grains, place->layout, place->group, place->object_offset,
                       place->bytes);
    coh_pool_run(pool, job.grains.grain_count, norm_piece, &job);
}

coh_status coh_line_norm(coh_step *step, const coh_program *program, const coh_instruction *line)
{
    const coh_operand *operand = coh_line_operand(program, line, COH_ROLE_GRAD);
    char *grad = coh_operand_data(step, operand);
    for (uint32_t i = 0; i < operand->touch_count; i++) {
        const coh_chunk *chunk =
            &step->layout->chunks[program->touches[operand->touch_begin + i].chunk];
        const coh_chunk_place place = { .layout = step->layout,
                                        .group = step->layout->objects[operand->object].owner,
                                        .object_offset = chunk->object_offset,
                                        .bytes = chunk->bytes };
        coh_chunk_norm(step->pool, &place, grad + (chunk->object_offset - operand->object_offset),
                       coh_step_pinned(step, step->layout->partials));
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
    double loss = coh_step_mean_loss(step, step->layout->microbatch_count) *
                  (double)coh_loss_factor(&ticket->input);
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
    ticket->result.step = cells->random.step;
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
    coh_grains grains;
    coh_dtype dtype; /* of work and grad */
    void *work, *grad;
    coh_states states;
    double *partials; /* NULL: a NORM line of its own sums the squares */
    coh_adamw adamw;  /* decay as for a parameter that decays */
} update_job;

/* Norm and update of one grain, one after the other: it is read from memory once. */
static void update_piece(void *argument, int64_t index)
{
    const update_job *job = argument;
    coh_grain grain = coh_grains_at(&job->grains, index);
    const coh_parameter_layout *parameter = &job->layout->parameters[grain.parameter];
    if (parameter->frozen)
        return;
    coh_adamw adamw = job->adamw;
    if (!parameter->decays)
        adamw.decay = 0;
    uint64_t at = grain.chunk_element;
    void *work = coh_element_at(job->work, job->dtype, at);
    const void *grad = coh_element_at(job->grad, job->dtype, at);
    if (job->partials != NULL)
        norm_grain(job->layout, &grain, job->dtype, grad, job->partials);
    if (job->dtype == COH_DTYPE_BF16)
        coh_kernel_adamw_split(&adamw, work, job->states.low + at, grad, job->states.m + at,
                               job->states.v + at, (int64_t)grain.count);
    else
        coh_kernel_adamw(&adamw, work, grad, job->states.m + at, job->states.v + at,
                         (int64_t)grain.count);
}

void coh_chunk_update(coh_pool *pool, const coh_chunk_update_job *update)
{
    const coh_chunk_place *place = &update->place;
    coh_dtype dtype = place->layout->groups[place->group].dtype;
    update_job job = {
        .layout = place->layout,
        .dtype = dtype,
        .work = update->work,
        .grad = update->grad,
        .states = coh_states_at(update->state, dtype, place->bytes),
        .partials = update->partials,
        .adamw = update->adamw,
    };
    coh_grains_collect(&job.grains, place->layout, place->group, place->object_offset,
                       place->bytes);
    coh_pool_run(pool, job.grains.grain_count, update_piece, &job);
}

coh_status coh_line_update(coh_step *step, const coh_program *program, const coh_instruction *line)
{
    const coh_cells *cells =
        coh_operand_data(step, coh_line_operand(program, line, COH_ROLE_CELLS));
    const coh_operand *work = coh_line_operand(program, line, COH_ROLE_WORK);
    const coh_operand *grad = coh_line_operand(program, line, COH_ROLE_GRAD);
    const coh_operand *state = coh_line_operand(program, line, COH_ROLE_OPTIMIZER_STATE);
    const coh_chunk *chunk = &step->layout->chunks[program->touches[work->touch_begin].chunk];
    int sums = coh_line_operand(program, line, COH_ROLE_PARTIALS) != NULL;
    const coh_chunk_update_job update = {
        .place = { .layout = step->layout,
                   .group = step->layout->objects[work->object].owner,
                   .object_offset = chunk->object_offset,
                   .bytes = chunk->bytes },
        .work = coh_operand_data(step, work),
        .grad = coh_operand_data(step, grad),
        .state = coh_operand_data(step, state),
        .partials = sums ? coh_step_pinned(step, step->layout->partials) : NULL,
        .adamw = { .rate = cells->update_rate,
                   .scale = cells->update_scale,
                   .beta1 = step->options.beta1,
                   .beta2 = step->options.beta2,
                   .bias1 = cells->update_bias1,
                   .bias2 = cells->update_bias2,
                   .epsilon = step->options.epsilon,
                   .decay = step->options.weight_decay },
    };
    coh_chunk_update(line->lane == COH_LANE_HOST ? NULL : step->pool, &update);
    return COH_OK;
}
