/* Records runs of lines (line_runs.h) on a device at start, and ends all lines of a run when it was
 * replayed. */
#include <string.h>

#include "engine/step_state.h"

/* ---- at start ---- */

typedef struct recorder {
    coh_step *step;
    coh_status status; /* of the lines; record_end returns the device's */
    char text[COH_ERROR_TEXT_BYTES];
} recorder;

static void record_line(void *context, uint64_t number, uint32_t index)
{
    recorder *r = context;
    coh_ticket *ticket = coh_step_ticket(r->step, number);
    if (r->status != COH_OK)
        return;
    r->status = coh_line_do(r->step, ticket, &ticket->bound->program->lines[index]);
    if (r->status != COH_OK)
        coh_error_save(r->text);
}

/* Returns the indices of the lines of `run`, in order. */
static const uint32_t *lines_of(const coh_bound *bound, const coh_line_run *run)
{
    return &bound->lane_lines[COH_LANE_COMPUTE][run->first - 1];
}

static coh_status record_run(coh_step *step, const coh_bound *bound, uint32_t run)
{
    const coh_program *program = bound->program;
    const uint32_t *lines = lines_of(bound, &bound->runs[run]);
    coh_queue *queue = step->queues[COH_LANE_COMPUTE];
    recorder r = { .step = step };
    coh_recording *recording;
    COH_TRY(step->device_ops->record_begin(queue));
    for (uint32_t i = 0; i < bound->runs[run].count; i++)
        step->device_ops->launch(queue, record_line, &r, 0, lines[i],
                                 coh_line_predicate(step, bound, &program->lines[lines[i]]));
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

void coh_line_record_all(coh_step *step)
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
    coh_fail_prefix(status, "not all lines could be recorded as CUDA graphs, the others are "
                            "launched one by one");
    coh_error_save(text);
    step->options.log(step->options.log_context, text);
}

/* ---- in a step ---- */

const coh_line_run *coh_line_recorded(const coh_ticket *ticket, const coh_instruction *line)
{
    const coh_bound *bound = ticket->bound;
    const uint32_t run = line->lane == COH_LANE_COMPUTE ? bound->run_of[line->ordinal] : 0;
    /* a scan checks the results of each line */
    if (run == 0 || bound->recordings[run - 1] == NULL || ticket->scan)
        return NULL;
    return &bound->runs[run - 1];
}

const coh_recording *coh_line_recording(const coh_bound *bound, const coh_line_run *run)
{
    return bound->recordings[run - bound->runs];
}

void coh_line_end_run(void *context, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    const coh_ticket *ticket = coh_step_ticket(step, number);
    const coh_bound *bound = ticket->bound;
    const coh_line_run *run = coh_line_recorded(ticket, &bound->program->lines[index]);
    const uint32_t *lines = lines_of(bound, run);
    for (uint32_t i = 0; i < run->count; i++) {
        if (i > 0) /* the first line's begin is the run's begin */
            coh_line_enter(step, bound, number, lines[i]);
        coh_line_leave(step, bound, number, lines[i]);
    }
    coh_line_times_share(&step->times, COH_LANE_COMPUTE, lines, run->count);
}
