/* The lanes that have separate threads. Read and write keep several requests in flight through the
 * store and retire them in order; host, comm0 and comm1 run their instructions one after the other.
 *
 *  submit r1 r2 r3 .... r4 waits for compute 7: first retire r1 r2 r3, then sleep
 *  store  |r1----|r2--|r3---|
 *  retire        r1    r2r3
 *
 * A lane that sleeps on another lane's counter has nothing in flight. Otherwise that lane could be
 * waiting for one of our requests, which nobody would retire. Next: offload/store.h. */
#include <stdio.h>

#include "base/clock.h"
#include "base/lanes.h"
#include "base/thread.h"
#include "engine/step_state.h"

static coh_store_port lane_port(coh_lane lane)
{
    return lane == COH_LANE_READ ? COH_STORE_READS : COH_STORE_WRITES;
}

static coh_disk_request *request_at(coh_lane_thread *lane, uint64_t number)
{
    return &lane->ring[number % lane->depth];
}

static const coh_instruction *request_instruction(const coh_lane_thread *lane,
                                                  const coh_disk_request *request,
                                                  const coh_bound **out_bound)
{
    *out_bound = coh_step_ticket(lane->step, request->ticket)->bound;
    return &(*out_bound)->program->instructions[request->instruction];
}

/* Returns the operand in an arena, not the one in the file. */
static const coh_operand *arena_operand(const coh_bound *bound, const coh_instruction *instruction)
{
    const coh_operand *from = coh_bound_operand(bound, instruction, COH_SLOT_FROM);
    const coh_operand *to = coh_bound_operand(bound, instruction, COH_SLOT_TO);
    return from->tier == COH_TIER_DISK ? to : from;
}

static uint64_t in_flight(coh_lane_thread *lane)
{
    return lane->submitted - coh_counter_read(coh_step_retired(lane->step, lane->lane));
}

/* Adds to the store's error text the chunk and its purpose. The store wrote every byte that it
 * reads, so wrong bytes are the device's fault and not bad user data. */
static coh_status name_request(const coh_lane_thread *lane, const coh_disk_request *request,
                               coh_status status)
{
    const coh_bound *bound;
    const coh_instruction *instruction = request_instruction(lane, request, &bound);
    return coh_step_name_chunk(lane->step, bound->program, instruction,
                               status == COH_ERR_CORRUPT ? COH_ERR_IO : status);
}

/* Retires finished requests in order, oldest first. */
static void retire_front(coh_lane_thread *lane)
{
    coh_counter *retired = coh_step_retired(lane->step, lane->lane);
    for (uint64_t number = coh_counter_read(retired) + 1;
         number <= lane->submitted && request_at(lane, number)->is_done; number++) {
        const coh_disk_request *request = request_at(lane, number);
        lane->step->times.begin_ns[lane->lane] = request->begin_ns; /* others have begun */
        coh_instruction_end(lane->step, request->ticket, request->instruction);
        coh_instruction_ended(lane->step, request->ticket, request->instruction, coh_clock_ns());
        coh_counter_raise(retired, number);
    }
}

/* Collects completions from the store; waits for at least `least`. */
static coh_status reap(coh_lane_thread *lane, uint32_t least)
{
    coh_step *step = lane->step;
    uint32_t count = 0;
    COH_TRY(step->store_ops->reap(step->store, lane_port(lane->lane), lane->completions, least,
                                  lane->depth, &count));
    for (uint32_t i = 0; i < count; i++) {
        coh_disk_request *request = request_at(lane, lane->completions[i].number);
        if (lane->completions[i].status != COH_OK)
            return name_request(lane, request, lane->completions[i].status);
        request->is_done = 1;
    }
    retire_front(lane);
    return COH_OK;
}

/* Waits until the counter reaches `value`. Retires everything in flight before it sleeps. Returns
 * 1, or 0 to stop. */
static int wait_for(coh_lane_thread *lane, coh_counter *counter, uint64_t value)
{
    while (!coh_counter_is_closed(counter)) {
        if (coh_counter_read(counter) >= value)
            return 1;
        if (in_flight(lane) == 0)
            return coh_counter_wait(counter, value);
        coh_status status = reap(lane, 1);
        if (status != COH_OK) {
            coh_step_fail(lane->step, status);
            return 0;
        }
    }
    return 0;
}

static coh_status submit(coh_lane_thread *lane, const coh_ticket *ticket,
                         const coh_instruction *instruction)
{
    coh_step *step = lane->step;
    const coh_program *program = ticket->bound->program;
    const coh_operand *memory = arena_operand(ticket->bound, instruction);
    const coh_operand *file = coh_bound_operand(
        ticket->bound, instruction, lane->lane == COH_LANE_READ ? COH_SLOT_FROM : COH_SLOT_TO);
    const coh_touch *touch = &program->touches[memory->touch_begin];
    const uint64_t generation = coh_touch_generation(step, ticket, touch);
    const int is_odd = coh_chunk_keeps_old(step->layout, touch->chunk) && generation % 2 == 1;
    const coh_store_request request = {
        .memory = coh_operand_data(step, memory),
        .file_offset = is_odd ? step->layout->chunks[touch->chunk].odd_offset : file->offset,
        .bytes = (size_t)memory->bytes,
        /* each home has a checksum */
        .id = { .chunk = touch->chunk + (is_odd ? step->layout->chunk_count : 0),
                .generation = generation },
        .number = lane->submitted,
    };
    return step->store_ops->submit(step->store, lane_port(lane->lane), &request);
}

/* Submits a READ or WRITE instruction to the store. */
static coh_status start_request(coh_lane_thread *lane, const coh_ticket *ticket, uint32_t index)
{
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    coh_instruction_begin(lane->step, ticket->number, index);
    coh_instruction_began(lane->step, ticket->number, index, coh_clock_ns());
    lane->submitted++;
    *request_at(lane, lane->submitted) =
        (coh_disk_request){ .ticket = ticket->number,
                            .begin_ns = lane->step->times.begin_ns[lane->lane],
                            .instruction = index };
    COH_TRY(submit(lane, ticket, instruction));
    return reap(lane, 0);
}

static coh_status run_instruction(coh_lane_thread *lane, const coh_ticket *ticket, uint32_t index)
{
    coh_step *step = lane->step;
    const coh_instruction *instruction = &ticket->bound->program->instructions[index];
    if (lane->lane == COH_LANE_READ || lane->lane == COH_LANE_WRITE)
        return start_request(lane, ticket, index);
    if (step->phantom != NULL) {
        coh_phantom_start(step, ticket->number, index);
        (void)coh_counter_wait(coh_step_retired(step, lane->lane), ++lane->submitted);
        return COH_OK;
    }
    const int32_t *predicate = coh_instruction_predicate(step, ticket->bound, instruction);
    coh_instruction_begin(step, ticket->number, index);
    coh_instruction_began(step, ticket->number, index, coh_clock_ns());
    if (predicate == NULL || *predicate != 0)
        coh_instruction_execute(step, ticket->number, index);
    /* An exchange that failed has not waited for the kernels before it, which may still use what it
     * would release. */
    if (coh_lane_is_comm(lane->lane) && coh_step_has_failed(step))
        return COH_OK;
    coh_instruction_end(step, ticket->number, index);
    coh_instruction_ended(step, ticket->number, index, coh_clock_ns());
    lane->submitted++;
    coh_counter_raise(coh_step_retired(step, lane->lane), lane->submitted);
    return COH_OK;
}

/* Returns 1 when the instruction may start, 0 to stop. */
static int wait_for_instruction(coh_lane_thread *lane, const coh_ticket *ticket,
                                const coh_instruction *instruction)
{
    coh_step *step = lane->step;
    const coh_program *program = ticket->bound->program;
    uint64_t number = ticket->base[lane->lane] + instruction->ordinal;
    if (number > lane->depth &&
        !wait_for(lane, coh_step_retired(step, lane->lane), number - lane->depth))
        return 0;
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const coh_wait *wait = &program->waits[instruction->wait_begin + i];
        uint64_t value = coh_wait_value(ticket, wait);
        if (!wait_for(lane, coh_step_retired(step, (coh_lane)wait->lane), value))
            return 0;
    }
    return 1;
}

static coh_status walk(coh_lane_thread *lane, const coh_ticket *ticket, int *out_go_on)
{
    const coh_bound *bound = ticket->bound;
    *out_go_on = 0;
    for (uint32_t n = 0; n < bound->program->lane_length[lane->lane]; n++) {
        uint32_t index = bound->lane_instructions[lane->lane][n];
        if (!wait_for_instruction(lane, ticket, &bound->program->instructions[index]))
            return COH_OK;
        COH_TRY(run_instruction(lane, ticket, index));
    }
    *out_go_on = 1;
    return COH_OK;
}

void *coh_lane_main(void *argument)
{
    coh_lane_thread *lane = argument;
    coh_step *step = lane->step;
    char name[16];
    snprintf(name, sizeof(name), "coh-%s", coh_lane_name(lane->lane));
    pthread_setname_np(pthread_self(), name);
    if (lane->lane != COH_LANE_HOST)
        coh_thread_be_brief();
    for (uint64_t number = 1;; number++) {
        if (!wait_for(lane, &step->counters[COH_COUNTER_SUBMITTED], number))
            return NULL;
        int go_on = 0;
        coh_status status = walk(lane, coh_step_ticket(step, number), &go_on);
        if (status != COH_OK)
            coh_step_fail(step, status);
        if (!go_on)
            return NULL;
        coh_counter_raise(&step->counters[COH_COUNTER_WALKED + lane->lane], number);
    }
}
