/* FEED, NORM, CLIP, UPDATE, SETTLE: the instructions between gradients and new parameters.
 *
 *   grad chunk  --NORM-->  one partial per grain  --CLIP-->  norm, scale, finite, pending
 *                                                               |
 *   work, grad, states  --UPDATE (this body's end, the next body, or a drain)--> next version
 *
 * CLIP latches everything that UPDATE needs of its step (FEED does, with updates in backward),
 * because a deferred update runs after the next FEED. Partials are per grain and folded in tensor
 * order, so neither chunks nor threads can change the norm. With updates in backward no update
 * waits for the norm, and UPDATE computes the partials itself while a grain is in cache. Only
 * addresses are looked up here; the device computes (kernels/optimizer.h).
 *
 * An UPDATE on the host lane does the same to chunks in the host tier, with the copy of the cells
 * that a STORE wrote there. The pool belongs to the compute lane, so on the host device coh-host
 * works alone; with a GPU it has a separate pool. */
#include "base/bytes.h"
#include "engine/step_state.h"
#include "engine/update_check.h"
#include "kernels/optimizer.h"
#include "planner/comm_parts.h"
#include "planner/layout.h"

coh_status coh_run_feed(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    (void)instruction;
    const coh_layout *layout = step->layout;
    coh_feed_input inputs[COH_PORT_MAX];
    for (uint32_t i = 0; i < layout->input_count; i++)
        inputs[i] = (coh_feed_input){ .to = coh_step_pinned(step, layout->input_objects[i]),
                                      .from = ticket->input_bytes[i],
                                      .bytes = coh_input_bytes(ticket->bound->graph, i) *
                                               ticket->microbatch_count };
    const coh_feed feed = { .cells = coh_step_cells(step),
                            .values = &ticket->shared->feed,
                            .inputs = inputs,
                            .input_count = (int32_t)layout->input_count,
                            .latches = !coh_plan_defers(&step->plan->options),
                            .scalars = step->scalars };
    coh_kernel_feed(step->kernel_queue, &feed);
    return COH_OK;
}

/* Returns the byte of an operand, one chunk of work or gradient, at which the part that this rank
 * updates begins. */
static uint64_t part_begin(const coh_step *step, const coh_operand *operand, uint32_t chunk)
{
    const coh_layout *layout = step->layout;
    const coh_object *object = &layout->objects[operand->object];
    const coh_group_layout *group = &layout->groups[object->owner];
    const uint32_t work = coh_chunk_partner(layout, chunk, group->work);
    const int is_grad = object->stream == COH_STREAM_GRAD || object->stream == COH_STREAM_GRAD_PART;
    return (coh_updated_part(layout, work, step->rank).begin -
            coh_part_in(layout, work, object->stream, step->rank).begin) *
           (is_grad ? coh_group_grad_factor(group) : 1);
}

coh_status coh_run_norm(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    const coh_program *program = ticket->bound->program;
    const coh_operand *operand = coh_bound_operand(ticket->bound, instruction, COH_SLOT_NORM_GRAD);
    const char *grad = coh_operand_data(step, operand);
    for (uint32_t i = 0; i < operand->touch_count; i++) {
        const uint32_t index = program->touches[operand->touch_begin + i].chunk;
        const int32_t group = step->layout->objects[operand->object].owner;
        const uint64_t begin = step->layout->chunks[index].object_offset - operand->object_offset +
                               part_begin(step, operand, index);
        const coh_square_sums sums = { .dtype = coh_group_grad_dtype(&step->layout->groups[group]),
                                       .grains = step->grains.chunks[index],
                                       .grad = grad + begin,
                                       .partials = coh_step_pinned(step, step->layout->partials) };
        coh_kernel_square_sums(step->kernel_queue, &sums);
    }
    return COH_OK;
}

/* ---- CLIP ---- */

/* Distance of losses, in floats. */
#define LOSS_STRIDE (COH_LOSS_STRIDE_BYTES / sizeof(float))

/* After CLIP of a ticket in which a kind failed: masks its updates, as in a step whose values are
 * not finite. */
static void mask_updates(coh_step *step, coh_ticket *ticket)
{
    coh_cells *cells = coh_step_cells(step);
    coh_clip_record *record = &ticket->shared->clip;
    cells->applied_count -= cells->finite != 0;
    cells->finite = cells->pending = 0;
    record->applied_count = cells->applied_count;
    record->finite = 0;
}

coh_status coh_run_clip(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    (void)instruction;
    const coh_layout *layout = step->layout;
    const coh_clip clip = { .cells = coh_step_cells(step),
                            .partials = coh_step_pinned(step, layout->partials),
                            .partial_count = layout->partial_count,
                            .losses = coh_step_pinned(step, layout->losses),
                            .loss_stride = LOSS_STRIDE,
                            .microbatch_count = (int64_t)coh_layout_all_microbatches(layout),
                            .fold = step->fold,
                            .defers = coh_plan_defers(&step->plan->options),
                            .record = &ticket->shared->clip,
                            .scalars = step->scalars };
    coh_kernel_clip(step->kernel_queue, &clip);
    if (ticket->kind_failure != COH_OK)
        mask_updates(step, ticket);
    return COH_OK;
}

/* ---- UPDATE ---- */

coh_update coh_chunk_update(const coh_chunk_place *place, coh_chunk_grains grains, void *work,
                            const void *grad, void *state)
{
    const coh_group_layout *group = &place->layout->groups[place->group];
    coh_update update = { .optimizer = place->layout->optimizers[group->optimizer],
                          .dtype = group->dtype,
                          .f32_grads = group->f32_gradients,
                          .grains = grains,
                          .work = work,
                          .grad = grad };
    for (int32_t i = 0; state != NULL && i < group->stream_count; i++) {
        const coh_group_stream *row = &group->streams[i];
        char *part = (char *)state + coh_part_offset(group, COH_STREAM_STATE, i, place->bytes);
        if (row->object == COH_STREAM_STATE && row->part > 0)
            update.states[row->part - 1] = part;
        else if (row->object == COH_STREAM_STATE)
            update.low = (uint16_t *)(void *)part;
    }
    return update;
}

coh_status coh_run_update(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    const coh_bound *bound = ticket->bound;
    const coh_operand *work = coh_bound_operand(bound, instruction, COH_SLOT_UPDATE_WORK);
    const coh_operand *grad = coh_bound_operand(bound, instruction, COH_SLOT_UPDATE_GRAD);
    const coh_operand *state = coh_bound_operand(bound, instruction, COH_SLOT_UPDATE_STATES);
    const coh_operand *cells = coh_bound_operand(bound, instruction, COH_SLOT_UPDATE_CELLS);
    const uint32_t index = bound->program->touches[work->touch_begin].chunk;
    const int32_t group = step->layout->objects[work->object].owner;
    const uint32_t whole = coh_chunk_partner(step->layout, index, step->layout->groups[group].work);
    const coh_chunk_place place = { .layout = step->layout,
                                    .group = group,
                                    .object_offset = step->layout->chunks[index].object_offset,
                                    .bytes = coh_updated_part_bytes(step->layout, whole) };
    const uint32_t grad_index = bound->program->touches[grad->touch_begin].chunk;
    coh_update update =
        coh_chunk_update(&place, step->grains.chunks[index],
                         (char *)coh_operand_data(step, work) + part_begin(step, work, index),
                         (char *)coh_operand_data(step, grad) + part_begin(step, grad, grad_index),
                         state != NULL ? coh_operand_data(step, state) : NULL);
    if (coh_bound_operand(bound, instruction, COH_SLOT_UPDATE_PARTIALS) != NULL)
        update.partials = coh_step_pinned(step, step->layout->partials);
    update.cells = coh_operand_data(step, cells);
    const coh_optimizer_numbers *numbers =
        &step->numbers[step->layout->groups[place.group].optimizer];
    update.hyperparameters = numbers->values; /* rate and decay come with the grains' groups */
    update.scalar_begin = numbers->scalar_begin;
    if (step->update_check != NULL) {
        update.run = coh_update_check_run;
        update.run_context = step->update_check;
    }
    coh_kernel_update(
        instruction->lane == COH_LANE_HOST ? (void *)step->host_pool : step->kernel_queue, &update);
    return step->update_check != NULL ? coh_update_check_result(step->update_check, step->plan)
                                      : COH_OK;
}

/* Ends a drain. */
coh_status coh_run_settle(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    (void)ticket;
    (void)instruction;
    coh_kernel_settle(step->kernel_queue, coh_step_cells(step));
    return COH_OK;
}
