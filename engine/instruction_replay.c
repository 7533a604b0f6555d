/* Records runs of instructions (instruction_runs.h) on a device at start, and ends all
 * instructions of a run when it was replayed. */
#include <string.h>

#include "engine/step_state.h"

/* ---- at start ---- */

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
    r->status = coh_instruction_do(r->step, ticket, &ticket->bound->program->instructions[index]);
    if (r->status != COH_OK)
        coh_error_save(r->text);
}

/* Returns the indices of the instructions of `run`, in order. */
static const uint32_t *instructions_of(const coh_bound *bound, const coh_instruction_run *run)
{
    return &bound->lane_instructions[COH_LANE_COMPUTE][run->first - 1];
}

static coh_status record_run(coh_step *step, const coh_bound *bound, uint32_t run)
{
    const coh_program *program = bound->program;
    const uint32_t *instructions = instructions_of(bound, &bound->runs[run]);
    coh_queue *queue = step->queues[COH_LANE_COMPUTE];
    recorder r = { .step = step };
    coh_recording *recording;
    COH_TRY(step->device_ops->record_begin(queue));
    for (uint32_t i = 0; i < bound->runs[run].count; i++)
        step->device_ops->launch(
            queue, record_instruction, &r, 0, instructions[i],
            coh_instruction_predicate(step, bound, &program->instructions[instructions[i]]));
    const coh_status status = step->device_ops->record_end(queue, &recording);
    if (r.status != COH_OK) {
        coh_error_restore(r.text);
        return r.status;
    }
    bound->recordings[run] = recording;
    return status;
}

static coh_status record_program(coh_step *step, coh_bound *bound)
{
    coh_ticket *ticket = coh_step_ticket(step, 0);
    coh_status status = COH_OK;
    ticket->bound = bound;
    for (uint32_t run = 0; status == COH_OK && run < bound->run_count; run++)
        status = record_run(step, bound, run);
    ticket->bound = NULL;
    return status;
}

void coh_instruction_record_all(coh_step *step)
{
    coh_device_facts facts;
    coh_status status = COH_OK;
    step->device_ops->facts(step->device, &facts);
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

/* ---- in a step ---- */

const coh_instruction_run *coh_instruction_recorded(const coh_ticket *ticket,
                                                    const coh_instruction *instruction)
{
    const coh_bound *bound = ticket->bound;
    const uint32_t run =
        instruction->lane == COH_LANE_COMPUTE ? bound->run_of[instruction->ordinal] : 0;
    /* a scan checks the results of each instruction */
    if (run == 0 || bound->recordings[run - 1] == NULL || ticket->scan)
        return NULL;
    return &bound->runs[run - 1];
}

const coh_recording *coh_instruction_recording(const coh_bound *bound,
                                               const coh_instruction_run *run)
{
    return bound->recordings[run - bound->runs];
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
            coh_instruction_enter(step, bound, number, instructions[i]);
        coh_instruction_leave(step, bound, number, instructions[i]);
    }
    coh_instruction_times_share(&step->times, COH_LANE_COMPUTE, instructions, run->count);
}
