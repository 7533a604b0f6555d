/* One instruction on its lane, or a run of them that the device has recorded at start and
 * replays as one. The order is the same for every lane: (waits) enter, execute, leave,
 * (retired). Next: step_state.h; instruction_optimizer.c and instruction_chunk.c for the
 * engine's own opcodes. */
#include "engine/call_check.h"
#include "engine/step_state.h"

#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/rng.h"
#include "kernels/kernels.h"

/* ---- its time ---- */

/* Only body runs after the first at a row count are timed, and only instructions that no predicate
 * switches off, as far as the host can see. */
static int is_timed(const coh_step *step, const coh_ticket *ticket,
                    const coh_instruction *instruction)
{
    const int32_t *predicate = coh_instruction_predicate(step, ticket->bound, instruction);
    const int is_seen = step->host_addressable || instruction->lane == COH_LANE_HOST;
    return step->phantom == NULL && ticket->repetition > 0 &&
           ticket->bound == &step->bounds[COH_PROGRAM_BODY] && !ticket->scan &&
           (predicate == NULL || !is_seen || *predicate != 0);
}

/* Notes the begin for the instruction's time (0: not timed) and for the record of its step. */
void coh_instruction_began(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    step->times.begin_ns[instruction->lane] = is_timed(step, ticket, instruction) ? at_ns : 0;
    if (ticket->record != NULL)
        ticket->record->step.spans[index].begin_ns = at_ns;
}

void coh_instruction_ended(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    coh_step *step = context;
    coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    const coh_lane lane = (coh_lane)instruction->lane;
    if (instruction->opcode == COH_OP_CLIP)
        coh_step_stamp_time(step, ticket, at_ns);
    coh_instruction_times_add(&step->times, lane, index, at_ns);
    if (ticket->record != NULL)
        coh_step_records_end(&step->records, ticket->record, lane, index, at_ns);
}

/* ---- enter and leave ---- */

/* Test mode: pauses for a random time, a function of seed, lane and instruction number only. */
static void delay(const coh_step *step, const coh_ticket *ticket,
                  const coh_instruction *instruction)
{
    uint64_t most_us = step->options.delay_most_us;
    if (step->options.delay_seed == 0 || most_us == 0)
        return;
    uint64_t number = ticket->base[instruction->lane] + instruction->ordinal;
    uint64_t us = coh_rng_below(step->options.delay_seed, instruction->lane, number, most_us + 1);
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(us / 1000000),
                                  .tv_nsec = (long)(us % 1000000) * 1000 },
              NULL);
}

static void leave_ledger(coh_step *step, const coh_extent *extent)
{
    const coh_chunk *chunk = &step->layout->chunks[extent->chunk];
    coh_ledger_leave(step->ledger, (coh_tier)extent->tier,
                     step->layout->objects[chunk->object].stream, extent->offset, extent->bytes);
}

static void enter(coh_step *step, const coh_bound *bound, uint64_t number, uint32_t index)
{
    coh_extent_state *states = bound->extents[number % 2];
    for (uint32_t i = bound->use_begin[index]; i < bound->use_begin[index + 1]; i++) {
        const coh_extent *extent = &bound->program->extents[bound->uses[i]];
        if (atomic_exchange_explicit(&states[bound->uses[i]].entered, 1, memory_order_acq_rel))
            continue;
        const coh_chunk *chunk = &step->layout->chunks[extent->chunk];
        if (bound->takes[bound->uses[i]] > 0)
            leave_ledger(step, &bound->program->extents[bound->takes[bound->uses[i]] - 1]);
        coh_ledger_enter(step->ledger, (coh_tier)extent->tier,
                         step->layout->objects[chunk->object].stream, extent->offset,
                         extent->bytes);
    }
}

void coh_instruction_begin(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    delay(step, ticket, instruction);
    if (step->phantom != NULL)
        coh_phantom_read_versions(step, number, index);
    enter(step, ticket->bound, number, index);
}

/* The last user has retired: resets the counts for the next ticket of this parity. */
static void end_extent(coh_step *step, const coh_bound *bound, uint32_t index,
                       coh_extent_state *state)
{
    const coh_extent *extent = &bound->program->extents[index];
    atomic_store_explicit(&state->remaining, coh_extent_users(extent) + bound->comes_from[index],
                          memory_order_relaxed);
    atomic_store_explicit(&state->entered, extent->at_begin, memory_order_relaxed);
    if (extent->at_end || bound->is_taken[index])
        return; /* stays, or another one has entered its bytes */
    leave_ledger(step, extent);
    if (step->options.poison) {
        coh_status status =
            coh_step_fill(step, (coh_tier)extent->tier, extent->offset, 0xff, extent->bytes);
        if (status != COH_OK)
            coh_step_fail(step, status);
    }
}

/* Removes one user of an extent in the run of that parity. Returns whether it was the last. */
static int take_off(coh_step *step, const coh_bound *bound, uint64_t parity, uint32_t index)
{
    coh_extent_state *state = &bound->extents[parity][index];
    if (atomic_fetch_sub_explicit(&state->remaining, 1, memory_order_acq_rel) != 1)
        return 0;
    end_extent(step, bound, index, state);
    return 1;
}

void coh_instruction_drop_unused(coh_step *step, const coh_ticket *ticket)
{
    const coh_bound *bound = ticket->bound;
    for (uint32_t i = 0; i < bound->unused_count; i++)
        (void)take_off(step, bound, ticket->number % 2, bound->unused[i]);
}

/* Is this a transfer of parameters that nothing updates? A chunk belongs to one group, and a group
 * is trained either as a whole or not at all. */
static int moves_frozen(const coh_step *step, const coh_program *program,
                        const coh_instruction *instruction)
{
    const coh_layout *layout = step->layout;
    const coh_object *object =
        &layout->objects[program->operands[instruction->operand_begin].object];
    return object->stream == COH_STREAM_WORK &&
           !coh_group_is_trained(&layout->groups[object->owner]);
}

/* Copies CLIP's results, which the host owns once the instruction is done. */
static void take_clip(coh_step *step, coh_ticket *ticket)
{
    const coh_clip_record *clip = &ticket->shared->clip;
    ticket->result.step = clip->step;
    ticket->result.loss = clip->loss;
    ticket->result.grad_norm = clip->grad_norm;
    ticket->result.finite = clip->finite;
    ticket->result.applied_count = clip->applied_count;
    coh_step_stamp(step, ticket);
}

static void leave(coh_step *step, const coh_bound *bound, uint64_t number, uint32_t index)
{
    for (uint32_t i = bound->use_begin[index]; i < bound->use_begin[index + 1]; i++) {
        uint32_t extent = bound->uses[i];
        if (take_off(step, bound, number % 2, extent) && bound->goes_on_as[extent] > 0)
            (void)take_off(step, bound, (number + 1) % 2, bound->goes_on_as[extent] - 1);
    }
}

void coh_instruction_end(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_bound *bound = ticket->bound;
    const coh_instruction *instruction = &bound->program->instructions[index];
    if (instruction->opcode == COH_OP_CLIP)
        take_clip(step, ticket);
    if (step->phantom != NULL)
        coh_phantom_write_versions(step, number, index);
    leave(step, bound, number, index);
    if (instruction->lane == COH_LANE_COMPUTE || instruction->lane == COH_LANE_HOST)
        return; /* uses no link */
    atomic_fetch_add_explicit(&step->link_bytes[instruction->lane], instruction->bytes,
                              memory_order_relaxed);
    if (moves_frozen(step, bound->program, instruction))
        atomic_fetch_add_explicit(&step->frozen_bytes[instruction->lane], instruction->bytes,
                                  memory_order_relaxed);
}

const int32_t *coh_instruction_predicate(const coh_step *step, const coh_bound *bound,
                                         const coh_instruction *instruction)
{
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    if (instruction->predicate_cell != COH_CELL_PENDING)
        return NULL;
    const coh_operand_rule *rule = coh_opcode_operand(row, COH_ROLE_CELLS);
    const coh_operand *copy =
        rule != NULL ? coh_bound_operand(bound, instruction, (int)(rule - row->operands)) : NULL;
    const coh_object *cells = &step->layout->objects[step->layout->cells];
    const char *data = copy != NULL
                           ? coh_operand_data(step, copy)
                           : (const char *)step->arenas[COH_TIER_DEVICE] + cells->pinned_offset;
    return &((const coh_cells *)(const void *)data)->pending;
}

/* ---- instructions that run a kind ---- */

void coh_call_set_port(coh_call *call, const coh_bound_port *bound)
{
    switch ((coh_role)bound->role) {
    case COH_ROLE_INPUT:
        call->input[bound->port] = bound->view;
        return;
    case COH_ROLE_OUTPUT:
    case COH_ROLE_LOSS:
        call->output[bound->port] = bound->view;
        return;
    case COH_ROLE_PARAMETER:
        call->parameter[bound->port] = bound->view;
        return;
    case COH_ROLE_STATE:
        call->state[bound->port] = bound->view;
        return;
    case COH_ROLE_OUTPUT_GRAD:
        call->output_grad[bound->port] = bound->view;
        return;
    case COH_ROLE_INPUT_GRAD:
        call->input_grad[bound->port] = bound->view;
        return;
    case COH_ROLE_PARAMETER_GRAD:
        call->parameter_grad[bound->port] = bound->view;
        return;
    case COH_ROLE_SAVED:
        call->saved = bound->view.data;
        return;
    case COH_ROLE_CACHE:
        call->cache = bound->view.data;
        return;
    case COH_ROLE_WORKSPACE:
        call->workspace = bound->view.data;
        return;
    case COH_ROLE_CELLS:
    case COH_ROLE_PARTIALS:
    case COH_ROLE_WORK:
    case COH_ROLE_GRAD:
    case COH_ROLE_OPTIMIZER_STATE:
    case COH_ROLE_PART:
    case COH_ROLE_FROM:
    case COH_ROLE_TO:
        return; /* refused by bind.c */
    }
}

static void fill_call(coh_step *step, const coh_ticket *ticket, const coh_instruction *instruction,
                      coh_call *call)
{
    const coh_bound *bound = ticket->bound;
    const coh_instruction_call *instruction_call = &bound->program->calls[instruction->call];
    memset(call, 0, sizeof(*call));
    for (uint32_t i = 0; i < instruction_call->binding_count; i++)
        coh_call_set_port(call, &bound->ports[instruction_call->binding_begin + i]);
    call->attributes = bound->graph->ops[instruction_call->operator_index].attributes;
    call->input_grad_adds = instruction_call->input_grad_adds;
    call->parameter_grad_adds = instruction_call->parameter_grad_adds;
    call->operator_index = instruction_call->operator_index;
    if (coh_bound_operand(bound, instruction, COH_SLOT_CALL_CELLS) != NULL)
        call->random_cell = &coh_step_cells(step)->random;
    const float microbatches = (float)coh_layout_all_microbatches(step->layout);
    call->loss_scale = 1.0f / microbatches * coh_loss_factor(&ticket->input);
    call->loss_share = 1.0f / microbatches;
    if (step->layout->cells >= 0) /* written by an earlier FEED of this lane */
        call->loss_factor_cell = &coh_step_cells(step)->loss_factor;
    call->row_begin = instruction_call->row_begin;
    call->row_end = instruction_call->row_end;
    call->row_count = instruction_call->row_count;
    call->microbatch =
        step->rank * (int32_t)step->layout->microbatch_count + instruction_call->microbatch;
    call->queue = step->kernel_queue;
}

/* Is this port of an instruction a complete result that a scan checks? With a parameter split by
 * rows, outputs are complete only after the last call. */
static int is_result(const coh_bound_port *port, const coh_instruction_call *call,
                     coh_opcode opcode)
{
    int is_last = call->row_end == call->row_count;
    coh_dtype dtype = port->view.shape.dtype;
    if (port->view.data == NULL || (dtype != COH_DTYPE_F32 && dtype != COH_DTYPE_BF16))
        return 0;
    if (opcode == COH_OP_BACKWARD)
        return port->role == COH_ROLE_PARAMETER_GRAD ||
               (port->role == COH_ROLE_INPUT_GRAD && is_last);
    if (opcode == COH_OP_ADD)
        return port->role == COH_ROLE_TO;
    return (port->role == COH_ROLE_OUTPUT || port->role == COH_ROLE_LOSS) && is_last;
}

static coh_status scan_instruction(coh_step *step, const coh_bound *bound,
                                   const coh_instruction *instruction)
{
    const coh_instruction_call *call = &bound->program->calls[instruction->call];
    coh_step_wait_for_device(step);
    for (uint32_t i = 0; i < call->binding_count && !step->has_finding; i++) {
        const coh_bound_port *port = &bound->ports[call->binding_begin + i];
        int is_finite;
        if (!is_result(port, call, (coh_opcode)instruction->opcode))
            continue;
        COH_TRY(coh_step_all_finite(step, &port->view, &is_finite));
        if (is_finite)
            continue;
        step->finding = (coh_scan_finding){ .operator_index = call->operator_index,
                                            .microbatch = call->microbatch,
                                            .opcode = (coh_opcode)instruction->opcode,
                                            .role = (coh_role)port->role,
                                            .port = port->port };
        step->has_finding = 1;
    }
    return COH_OK;
}

static coh_kind_function kernels_of(const coh_step *step, const coh_op_kind *kind,
                                    const coh_instruction *instruction)
{
    return coh_kind_function_of(kind, coh_step_device_kind(step),
                                instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD
                                                                       : COH_PHASE_FORWARD);
}

static coh_status run_kind(coh_step *step, const coh_ticket *ticket,
                           const coh_instruction *instruction)
{
    const coh_instruction_call *instruction_call =
        &ticket->bound->program->calls[instruction->call];
    const coh_graph_op_entry *op = &ticket->bound->graph->ops[instruction_call->operator_index];
    fill_call(step, ticket, instruction, &step->call);
    const coh_kind_function kernels = kernels_of(step, &op->kind, instruction);
    const coh_checked_call checked = {
        .op = op,
        .phase = instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD,
        .ports = &ticket->bound->ports[instruction_call->binding_begin],
        .port_count = instruction_call->binding_count,
    };
    coh_error_clear();
    atomic_store_explicit(&step->kind_thread, (uintptr_t)pthread_self(), memory_order_relaxed);
    const coh_status status =
        step->call_check != NULL
            ? coh_call_check_run(step->call_check, &checked, kernels, &step->call)
            : kernels(&step->call);
    coh_float_mode_restore();
    atomic_store_explicit(&step->kind_thread, 0, memory_order_relaxed);
    if (status != COH_OK)
        return coh_fail_prefix(coh_check_status(status, "its function"),
                               "operator '%s', %s of micro-batch %d", op->name,
                               coh_opcode_name((coh_opcode)instruction->opcode),
                               instruction_call->microbatch);
    return COH_OK;
}

/* Does a kind's failure end only this ticket? Yes if the ticket cannot have changed a parameter:
 * not with updates in backward, some of which may have run. On a GPU a failure is known only after
 * later instructions were enqueued. Other ranks would go on with this one's garbage. */
static int ends_ticket_alone(const coh_step *step, const coh_ticket *ticket)
{
    const coh_plan_options *options = &step->plan->options;
    const int is_body = ticket->bound == &step->bounds[COH_PROGRAM_BODY];
    return step->host_addressable && step->world == NULL &&
           (!is_body || options->mode == COH_PLAN_INFER || options->deferred_update);
}

/* Runs a kind unless one has failed in this ticket: no kind may be given the garbage that a failed
 * one left. All other instructions run, so that chunks and counts are as after any other step. */
static coh_status coh_run_kind(coh_step *step, coh_ticket *ticket,
                               const coh_instruction *instruction)
{
    if (ticket->kind_failure != COH_OK)
        return COH_OK;
    const coh_status status = run_kind(step, ticket, instruction);
    if (status == COH_OK || !ends_ticket_alone(step, ticket))
        return status;
    coh_error_save(ticket->kind_failure_text);
    ticket->kind_failure = status;
    return COH_OK;
}

void coh_add_views(void *queue, const coh_view *to, const coh_view *from, int adds)
{
    const int64_t count = coh_shape_elements(&to->shape);
    if (to->shape.dtype == from->shape.dtype)
        coh_kernel_pass(queue, to->shape.dtype, to->data, from->data, count, adds);
    else /* columns of one row: widened */
        coh_kernel_column_sum(queue, &(coh_column_sum){ .dtype = from->shape.dtype,
                                                        .sums_dtype = to->shape.dtype,
                                                        .sums = to->data,
                                                        .x = from->data,
                                                        .rows = 1,
                                                        .columns = count,
                                                        .adds = adds });
}

/* `input_grad_adds` of the call says whether to add or to overwrite. The access of TO cannot:
 * parameters of one group share chunks, and only the first of them overwrites. */
static coh_status coh_run_add(coh_step *step, coh_ticket *ticket,
                              const coh_instruction *instruction)
{
    const coh_bound *bound = ticket->bound;
    const coh_instruction_call *call = &bound->program->calls[instruction->call];
    coh_view to = { 0 }, from = { 0 };
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_bound_port *port = &bound->ports[call->binding_begin + i];
        if (port->role == COH_ROLE_TO)
            to = port->view;
        else
            from = port->view;
    }
    coh_add_views(step->kernel_queue, &to, &from, call->input_grad_adds != 0);
    return COH_OK;
}

/* ---- all opcodes ---- */

/* Movers: their lanes copy (step.c, lane_threads.c). */
static coh_status coh_run_none(coh_step *step, coh_ticket *ticket,
                               const coh_instruction *instruction)
{
    (void)step;
    (void)ticket;
    return coh_fail(COH_ERR_INTERNAL, "instruction %s on lane %s: no lane does that",
                    coh_opcode_name((coh_opcode)instruction->opcode),
                    coh_lane_name((coh_lane)instruction->lane));
}

#define COH_OPCODE(name, run, ...) [COH_OP_##name] = run,
static coh_status (*const run_opcode[COH_OP_COUNT])(coh_step *step, coh_ticket *ticket,
                                                    const coh_instruction *instruction) = {
#include "planner/opcodes.def"
};
#undef COH_OPCODE

/* ---- rehearsal ---- */

static void rehearse(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    coh_status status = run_kind(step, ticket, &ticket->bound->program->instructions[index]);
    if (status != COH_OK)
        coh_step_fail(step, status);
}

static coh_status rehearse_program(coh_step *step, coh_bound *bound)
{
    coh_ticket *ticket = coh_step_ticket(step, 0);
    const coh_program *program = bound->program;
    ticket->bound = bound;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_opcode opcode = (coh_opcode)program->instructions[i].opcode;
        if (run_opcode[opcode] != coh_run_kind)
            continue;
        coh_status status =
            step->device_ops->rehearse(step->queues[COH_LANE_COMPUTE], rehearse, step, 0, i);
        if (status != COH_OK)
            return coh_fail_prefix(
                status, "operator '%s', %s",
                step->plan->graph->ops[program->calls[program->instructions[i].call].operator_index]
                    .name,
                coh_opcode_name(opcode));
    }
    ticket->bound = NULL;
    return coh_step_failure(step);
}

coh_status coh_instruction_rehearse_all(coh_step *step)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT && !step->host_addressable; kind++)
        if (step->bounds[kind].program != NULL)
            COH_TRY(rehearse_program(step, &step->bounds[kind]));
    return step->small.program != NULL && !step->host_addressable
               ? rehearse_program(step, &step->small)
               : COH_OK;
}

void coh_instruction_execute(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    coh_status status = run_opcode[instruction->opcode](step, ticket, instruction);
    /* Instructions with a call all run on the compute lane, the only one that may read kind_failure
     * here. */
    if (status == COH_OK && ticket->scan && instruction->call >= 0 &&
        ticket->kind_failure == COH_OK && !step->has_finding)
        status = scan_instruction(step, ticket->bound, instruction);
    if (status != COH_OK)
        coh_step_fail(step, status);
}

/* ---- recorded runs of instructions ---- */

typedef struct recorder {
    coh_step *step;
    coh_status status; /* of the instructions; record_end returns the device's */
    char text[COH_ERROR_TEXT_BYTES];
} recorder;

static void record_instruction(void *context, uint64_t number, uint32_t index)
{
    recorder *r = context;
    coh_ticket *ticket = coh_step_ticket(r->step, number);
    if (r->status != COH_OK)
        return;
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    r->status = run_opcode[instruction->opcode](r->step, ticket, instruction);
    if (r->status != COH_OK)
        coh_error_save(r->text);
}

/* Returns the indices of the instructions of `run`, in order. */
static const uint32_t *instructions_of(const coh_bound *bound, const coh_instruction_run *run)
{
    return &bound->lane_instructions[COH_LANE_COMPUTE][run->first - 1];
}

static coh_status record_run(coh_step *step, const coh_bound *bound, coh_instruction_run *run)
{
    const coh_program *program = bound->program;
    const uint32_t *instructions = instructions_of(bound, run);
    coh_queue *queue = step->queues[COH_LANE_COMPUTE];
    recorder r = { .step = step };
    coh_recording *recording;
    COH_TRY(step->device_ops->record_begin(queue));
    for (uint32_t i = 0; i < run->count; i++)
        step->device_ops->launch(
            queue, record_instruction, &r, 0, instructions[i],
            coh_instruction_predicate(step, bound, &program->instructions[instructions[i]]));
    const coh_status status = step->device_ops->record_end(queue, &recording);
    if (r.status != COH_OK) {
        coh_error_restore(r.text);
        return r.status;
    }
    run->recording = recording;
    return status;
}

static coh_status record_program(coh_step *step, coh_bound *bound)
{
    coh_ticket *ticket = coh_step_ticket(step, 0);
    coh_status status = COH_OK;
    ticket->bound = bound;
    for (uint32_t run = 0; status == COH_OK && run < bound->run_count; run++)
        status = record_run(step, bound, &bound->runs[run]);
    ticket->bound = NULL;
    return status;
}

void coh_instruction_record_all(coh_step *step)
{
    coh_device_facts facts;
    coh_status status = COH_OK;
    step->device_ops->facts(step->device, &facts);
    if (facts.records && step->small.program != NULL) /* first: it gains the most */
        status = record_program(step, &step->small);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT && facts.records && status == COH_OK; kind++)
        if (step->bounds[kind].program != NULL)
            status = record_program(step, &step->bounds[kind]);
    if (status == COH_OK || step->options.log == NULL)
        return;
    char text[COH_ERROR_TEXT_BYTES];
    coh_fail_prefix(status, "not all instructions could be recorded as CUDA graphs, the others are "
                            "launched one by one");
    coh_error_save(text);
    step->options.log(step->options.log_context, text);
}

const coh_instruction_run *coh_instruction_recorded(const coh_ticket *ticket,
                                                    const coh_instruction *instruction)
{
    const coh_instruction_run *run =
        instruction->lane == COH_LANE_COMPUTE ? ticket->bound->run_of[instruction->ordinal] : NULL;
    /* a scan checks the results of each instruction */
    return run != NULL && run->recording != NULL && !ticket->scan ? run : NULL;
}

void coh_instruction_end_run(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_bound *bound = ticket->bound;
    const coh_instruction_run *run =
        coh_instruction_recorded(ticket, &bound->program->instructions[index]);
    const uint32_t *instructions = instructions_of(bound, run);
    for (uint32_t i = 0; i < run->count; i++) {
        if (i > 0) /* the first instruction's begin is the run's begin */
            enter(step, bound, number, instructions[i]);
        leave(step, bound, number, instructions[i]);
    }
}

void coh_instruction_run_ended(void *context, uint64_t number, uint32_t index, uint64_t at_ns)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_instruction_run *run =
        coh_instruction_recorded(ticket, &ticket->bound->program->instructions[index]);
    const uint32_t *instructions = instructions_of(ticket->bound, run);
    coh_instruction_times_share(&step->times, COH_LANE_COMPUTE, instructions, run->count, at_ns);
    if (ticket->record != NULL)
        coh_step_records_share(&step->records, ticket->record, instructions, run->count,
                               step->times.predicted_s, at_ns);
}
