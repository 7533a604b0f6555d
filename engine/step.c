/* One training step, from here down:
 *
 *   coh_step_submit   the caller's batch becomes a ticket; `submitted` rises
 *   issue_main        coh-step walks the program and hands each instruction to its lane's queue
 *   issue_instruction waits, enter, execute, leave, retire: five commands of one instruction
 *   issue_run         or of several instructions that the device has recorded as one
 *   (instruction.c)          the work of the queue's thread
 *   (lane_threads.c)  the disk lanes meanwhile walk their own instructions of the same ticket
 *   coh_step_await    the caller sleeps until CLIP has retired */
#include "engine/step.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/step_state.h"

/* ---- failing ---- */

static void close_all(coh_step *step)
{
    for (int i = 0; i < step->counter_count; i++)
        coh_counter_close(&step->counters[i]);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (step->queues[lane] != NULL)
            step->device_ops->queue_close(step->queues[lane]);
    coh_phantom_stop(step->phantom);
}

static void fail(coh_step *step, coh_status status, coh_world *world)
{
    pthread_mutex_lock(&step->failure_mutex);
    if (step->failure == COH_OK) {
        coh_error_save(step->failure_text);
        if (world != NULL)
            status = coh_transport_stop(world->transport, status, step->failure_text);
        step->failure = status;
        coh_error_save(step->failure_text);
        close_all(step); /* under the mutex: destroy takes it before it frees a queue */
    }
    pthread_mutex_unlock(&step->failure_mutex);
}

void coh_step_fail(coh_step *step, coh_status status)
{
    fail(step, status, step->world);
}

void coh_step_end(coh_step *step, coh_status status)
{
    fail(step, status, NULL);
}

coh_status coh_step_failure(coh_step *step)
{
    pthread_mutex_lock(&step->failure_mutex);
    coh_status status = step->failure;
    if (status != COH_OK)
        coh_error_restore(step->failure_text);
    pthread_mutex_unlock(&step->failure_mutex);
    return status;
}

int coh_step_has_failed(coh_step *step)
{
    pthread_mutex_lock(&step->failure_mutex);
    const int has_failed = step->failure != COH_OK;
    pthread_mutex_unlock(&step->failure_mutex);
    return has_failed;
}

int coh_step_is_in_kind(const coh_step *step)
{
    return step != NULL && atomic_load_explicit(&step->kind_thread, memory_order_relaxed) ==
                               (uintptr_t)pthread_self();
}

/* Both operands of a mover name the same chunks, so either will do. */
coh_status coh_step_name_chunk(const coh_step *step, const coh_program *program,
                               const coh_instruction *instruction, coh_status status)
{
    const coh_operand *from = &program->operands[instruction->operand_begin];
    const coh_object *object = &step->layout->objects[from->object];
    return coh_fail_prefix(status, "%s of chunk %u of stream %s, owner %d",
                           coh_opcode_name((coh_opcode)instruction->opcode),
                           program->touches[from->touch_begin].chunk,
                           coh_stream_name((coh_stream)object->stream), object->owner);
}

/* ---- the step thread ---- */

static void issue_waits(coh_step *step, const coh_ticket *ticket,
                        const coh_instruction *instruction)
{
    const coh_program *program = ticket->bound->program;
    coh_queue *queue = step->queues[instruction->lane];
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const coh_wait *wait = &program->waits[instruction->wait_begin + i];
        uint64_t value = coh_wait_value(ticket, wait);
        if (wait->lane == instruction->lane)
            continue; /* a queue runs its instructions in order */
        _Atomic uint64_t *stall_ns =
            instruction->lane == COH_LANE_COMPUTE ? &step->exposed_ns[wait->lane] : NULL;
        if (coh_lane_is_queue(wait->lane))
            step->device_ops->wait(queue, coh_step_retired(step, wait->lane), value, stall_ns);
        else
            step->device_ops->wait_host(queue, coh_step_retired(step, wait->lane), value, stall_ns);
    }
}

static void issue_instruction(coh_step *step, coh_ticket *ticket, uint32_t index)
{
    const coh_device_ops *ops = step->device_ops;
    const coh_program *program = ticket->bound->program;
    const coh_instruction *instruction = &program->instructions[index];
    coh_queue *queue = step->queues[instruction->lane];

    issue_waits(step, ticket, instruction);
    if (step->phantom != NULL) {
        ops->launch(queue, coh_phantom_start, step, ticket->number, index, NULL);
        return;
    }
    ops->notify(queue, coh_instruction_begin, coh_instruction_began, step, ticket->number, index);
    if (coh_opcode_moves(instruction->opcode)) { /* LOAD, STORE: disk lanes have threads */
        const coh_operand *from = coh_bound_operand(ticket->bound, instruction, COH_SLOT_FROM);
        const coh_operand *to = coh_bound_operand(ticket->bound, instruction, COH_SLOT_TO);
        ops->copy(queue, coh_operand_data(step, to), coh_operand_data(step, from),
                  (size_t)from->bytes);
    } else {
        ops->launch(queue, coh_instruction_execute, step, ticket->number, index,
                    coh_instruction_predicate(step, ticket->bound, instruction));
    }
    ops->notify(queue, coh_instruction_end, coh_instruction_ended, step, ticket->number, index);
    ops->signal(queue, coh_step_retired(step, instruction->lane),
                ticket->base[instruction->lane] + instruction->ordinal);
}

/* Issues a recorded run as one launch, in place of its first instruction. The other instructions
 * have no waits, and only the last one is waited for. */
static void issue_run(coh_step *step, const coh_ticket *ticket, const coh_instruction_run *run,
                      uint32_t index)
{
    const coh_device_ops *ops = step->device_ops;
    coh_queue *queue = step->queues[COH_LANE_COMPUTE];
    issue_waits(step, ticket, &ticket->bound->program->instructions[index]);
    ops->notify(queue, coh_instruction_begin, coh_instruction_began, step, ticket->number, index);
    ops->replay(queue, run->recording);
    ops->notify(queue, coh_instruction_end_run, coh_instruction_run_ended, step, ticket->number,
                index);
    ops->signal(queue, coh_step_retired(step, COH_LANE_COMPUTE),
                ticket->base[COH_LANE_COMPUTE] + run->first + run->count - 1);
}

static void issue_ticket(coh_step *step, coh_ticket *ticket)
{
    const coh_program *program = ticket->bound->program;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (!coh_lane_is_queue(instruction->lane))
            continue;
        const coh_instruction_run *run = coh_instruction_recorded(ticket, instruction);
        if (run == NULL)
            issue_instruction(step, ticket, i);
        else if (run->first == instruction->ordinal)
            issue_run(step, ticket, run, i);
    }
}

void *coh_issue_main(void *argument)
{
    coh_step *step = argument;
    pthread_setname_np(pthread_self(), "coh-step");
    coh_thread_be_brief();
    for (uint64_t number = 1; coh_counter_wait(&step->counters[COH_COUNTER_SUBMITTED], number);
         number++) {
        issue_ticket(step, coh_step_ticket(step, number));
        coh_counter_raise(&step->counters[COH_COUNTER_ISSUED], number);
    }
    return NULL;
}

/* ---- waiting ---- */

/* Takes the times of everything that has retired. Fails: the device's failure. */
static coh_status take_times(coh_step *step)
{
    for (int lane = 0; lane < COH_LANE_COUNT && step->device_ops->take_times != NULL; lane++)
        if (step->queues[lane] != NULL)
            step->device_ops->take_times(step->queues[lane]);
    return coh_step_failure(step);
}

/* Waits until all lanes have retired all instructions of ticket `number` and no thread reads it any
 * more. */
coh_status coh_step_finish(coh_step *step, uint64_t number)
{
    const coh_ticket *ticket = coh_step_ticket(step, number);
    int reached = coh_counter_wait(&step->counters[COH_COUNTER_ISSUED], number);
    for (int lane = 0; lane < COH_LANE_COUNT && reached; lane++) {
        uint64_t last = ticket->base[lane] + ticket->bound->program->lane_length[lane];
        reached = coh_counter_wait(coh_step_retired(step, (coh_lane)lane), last);
        if (reached && step->threads[lane].is_started)
            reached = coh_counter_wait(&step->counters[COH_COUNTER_WALKED + lane], number);
    }
    return reached ? take_times(step) : coh_step_failure(step);
}

static uint64_t submitted_count(const coh_step *step)
{
    return coh_counter_read(&step->counters[COH_COUNTER_SUBMITTED]);
}

coh_status coh_step_quiet(coh_step *step)
{
    COH_TRY(coh_step_failure(step));
    uint64_t newest = submitted_count(step);
    return newest == 0 ? COH_OK : coh_step_finish(step, newest);
}

/* Computes exposed time and link bytes since the CLIP before, from totals since create. */
static void take_differences(coh_step *step, const coh_ticket *ticket, coh_step_result *result)
{
    *result = ticket->result;
    uint64_t begin_ns = step->clip_ns > ticket->submitted_ns ? step->clip_ns : ticket->submitted_ns;
    result->step_ns = ticket->clip_ns - begin_ns;
    step->clip_ns = ticket->clip_ns;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        result->exposed_ns[lane] -= step->clip_exposed_ns[lane];
        result->link_bytes[lane] -= step->clip_link_bytes[lane];
        result->frozen_bytes[lane] -= step->clip_frozen_bytes[lane];
        step->clip_exposed_ns[lane] = ticket->result.exposed_ns[lane];
        step->clip_link_bytes[lane] = ticket->result.link_bytes[lane];
        step->clip_frozen_bytes[lane] = ticket->result.frozen_bytes[lane];
    }
    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        coh_ledger_sums sums = { 0 };
        if (step->ledger != NULL)
            coh_ledger_read(step->ledger, (coh_tier)tier, &sums);
        result->peak_bytes[tier] = sums.end_peak_bytes;
    }
    result->peak_bytes[COH_TIER_DISK] = step->layout->file_bytes;
}

static coh_system_counts count_system(const coh_step *step)
{
    coh_store_facts facts;
    coh_system_counts counts = coh_system_counts_read(&step->records);
    (void)coh_step_store_facts(step, &facts);
    counts.store_retries = facts.retry_count;
    counts.meter = (coh_device_meter){ .clock_hz = UINT64_MAX, .power_mw = UINT64_MAX };
    if (step->device_ops->meter != NULL)
        step->device_ops->meter(step->device, &counts.meter);
    return counts;
}

void coh_step_ask_stop(coh_step *step)
{
    atomic_store_explicit(&step->asks_stop, 1, memory_order_relaxed);
}

/* Returns 1 if this rank is asked to stop; of several ranks, if one was when losses were
 * gathered. */
static int32_t is_stop_asked(const coh_step *step, const coh_ticket *ticket)
{
    return step->world == NULL ? atomic_load_explicit(&step->asks_stop, memory_order_relaxed)
                               : ticket->is_stop_asked;
}

coh_status coh_step_await(coh_step *step, uint64_t ticket_number, coh_step_result *out_result)
{
    COH_TRY(coh_step_failure(step));
    coh_ticket *ticket = coh_step_ticket(step, ticket_number);
    if (ticket->bound->clip_ordinal > 0) {
        uint64_t clip = ticket->base[COH_LANE_COMPUTE] + ticket->bound->clip_ordinal;
        if (!coh_counter_wait(coh_step_retired(step, COH_LANE_COMPUTE), clip))
            return coh_step_failure(step);
        COH_TRY(take_times(step));
    } else {
        COH_TRY(coh_step_finish(step, ticket_number));
        coh_step_stamp(step, ticket);
        coh_step_stamp_time(step, ticket, coh_clock_ns());
    }
    take_differences(step, ticket, out_result);
    out_result->is_stop_asked = is_stop_asked(step, ticket);
    if (ticket->record != NULL) {
        const coh_system_counts now = count_system(step);
        coh_step_records_await(&step->records, ticket->record, out_result->step_ns, &now);
    }
    if (ticket->kind_failure != COH_OK)
        coh_error_restore(ticket->kind_failure_text);
    return ticket->kind_failure;
}

int coh_step_await_for(coh_step *step, uint64_t ticket_number, uint64_t limit_ns)
{
    const coh_ticket *ticket = coh_step_ticket(step, ticket_number);
    if (ticket->bound->clip_ordinal == 0)
        return 1;
    return coh_counter_wait_for(coh_step_retired(step, COH_LANE_COMPUTE),
                                ticket->base[COH_LANE_COMPUTE] + ticket->bound->clip_ordinal,
                                limit_ns);
}

void coh_step_stamp(coh_step *step, coh_ticket *ticket)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        ticket->result.link_bytes[lane] =
            atomic_load_explicit(&step->link_bytes[lane], memory_order_relaxed);
        ticket->result.frozen_bytes[lane] =
            atomic_load_explicit(&step->frozen_bytes[lane], memory_order_relaxed);
    }
}

void coh_step_stamp_time(coh_step *step, coh_ticket *ticket, uint64_t at_ns)
{
    ticket->clip_ns = at_ns;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        ticket->result.exposed_ns[lane] =
            atomic_load_explicit(&step->exposed_ns[lane], memory_order_relaxed);
}

/* ---- tickets ---- */

/* At a quiet point: adds the runs of the last program to the chunks' generations. The next program
 * starts from repetition 0 with ticket `number`. */
static void change_program(coh_step *step, coh_program_kind kind, uint64_t number)
{
    const coh_bound *before = &step->bounds[step->running];
    for (uint32_t chunk = 0; step->repetition_count > 0 && chunk < step->layout->chunk_count;
         chunk++)
        step->generations[chunk] += step->repetition_count * before->versions_per_run[chunk];
    step->repetition_count = 0;
    step->running = kind;
    coh_bound *bound = &step->bounds[kind];
    coh_bound_reset(bound, number);
    for (uint32_t i = 0; i < bound->replaced_count; i++) {
        const coh_resident *resident = &step->layout->residents[bound->replaced[i]];
        const coh_chunk *chunk = &step->layout->chunks[resident->chunk];
        coh_ledger_leave(step->ledger, (coh_tier)resident->tier,
                         step->layout->objects[chunk->object].stream, resident->offset,
                         chunk->bytes);
    }
}

/* Gives a training step its record; NULL: it has none. */
static coh_step_record *begin_record(coh_step *step, const coh_ticket *ticket)
{
    if (ticket->bound != &step->bounds[COH_PROGRAM_BODY] || ticket->scan)
        return NULL;
    if (step->records.slot_count > 0 && ticket->repetition == 0)
        step->records.before = count_system(step);
    return coh_step_records_begin(&step->records, ticket->number, ticket->input.step);
}

static void fill_ticket(coh_step *step, coh_ticket *ticket, uint64_t number,
                        const coh_step_feed *feed)
{
    const coh_ticket *before = coh_step_ticket(step, number - 1);
    ticket->bound = feed->input != NULL && feed->input->graph == step->options.small_graph &&
                            step->options.small_graph != NULL
                        ? &step->small
                        : &step->bounds[step->running];
    ticket->number = number;
    ticket->repetition = step->repetition_count++;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        ticket->base[lane] =
            number == 1 ? 0 : before->base[lane] + before->bound->program->lane_length[lane];
    ticket->visitor = feed->visitor;
    ticket->visitor_wants = feed->visitor_wants;
    ticket->visitor_context = feed->visitor_context;
    ticket->skips_frozen = feed->skips_frozen;
    ticket->scan = feed->scan;
    ticket->microbatch_count = feed->microbatch_count;
    ticket->kind_failure = COH_OK;
    ticket->result = (coh_step_result){ 0 };
    ticket->input = feed->input != NULL ? *feed->input : (coh_step_input){ 0 };
    ticket->record = begin_record(step, ticket);
    ticket->shared->feed =
        (coh_feed_values){ .random = { .seed = ticket->input.seed, .step = ticket->input.step },
                           .learning_rate = ticket->input.learning_rate,
                           .clip = ticket->input.clip,
                           .loss_factor = coh_loss_factor(&ticket->input),
                           .norm_is_known = coh_plan_speculates(&step->plan->options),
                           .norm = feed->norm };
    const coh_graph *graph = ticket->bound->graph;
    for (uint32_t i = 0; feed->microbatch_count > 0 && i < step->layout->input_count; i++)
        memcpy(ticket->input_bytes[i], feed->input->inputs[i],
               coh_input_bytes(graph, i) * feed->microbatch_count);
    ticket->submitted_ns = coh_clock_ns();
}

coh_status coh_step_submit(coh_step *step, coh_program_kind kind, const coh_step_feed *feed,
                           uint64_t *out_ticket)
{
    COH_TRY(coh_step_failure(step));
    if (step->bounds[kind].program == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan has no program '%s'",
                        coh_program_kind_name(kind));
    uint64_t number = submitted_count(step) + 1;
    if (kind != COH_PROGRAM_BODY || step->running != COH_PROGRAM_BODY) {
        COH_TRY(coh_step_quiet(step));
        change_program(step, kind, number);
    } else if (number > 2) {
        COH_TRY(coh_step_finish(step, number - 2));
    }
    if (feed->scan)
        step->has_finding = 0;
    fill_ticket(step, coh_step_ticket(step, number), number, feed);
    coh_instruction_drop_unused(step, coh_step_ticket(step, number));
    coh_counter_raise(&step->counters[COH_COUNTER_SUBMITTED], number);
    if (out_ticket != NULL)
        *out_ticket = number;
    return COH_OK;
}

/* ---- a body that is taken back ---- */

/* The next run from the same generations reads the homes that the newest one has read. */
coh_status coh_step_undo(coh_step *step)
{
    COH_TRY(coh_step_quiet(step));
    if (!step->layout->keeps_old || step->running != COH_PROGRAM_BODY ||
        step->repetition_count == 0)
        return coh_fail(COH_ERR_ARGUMENT, "no step can be taken back: none was the last to run");
    step->repetition_count--;
    change_program(step, COH_PROGRAM_BODY, submitted_count(step) + 1);
    return COH_OK;
}

coh_status coh_step_repeat(coh_step *step, uint64_t number, double norm, uint64_t *out_ticket)
{
    const coh_ticket *ticket = coh_step_ticket(step, number);
    coh_step_input input = ticket->input;
    for (uint32_t i = 0; i < step->layout->input_count; i++)
        input.inputs[i] = ticket->input_bytes[i];
    const coh_step_feed feed = { .input = &input,
                                 .microbatch_count = ticket->microbatch_count,
                                 .norm = norm };
    return coh_step_submit(step, COH_PROGRAM_BODY, &feed, out_ticket);
}

int coh_step_is_clipped(const coh_step *step, uint64_t number, double norm)
{
    const float clip = step->tickets[number % COH_TICKET_SLOTS].input.clip;
    return clip > 0 && norm > (double)clip;
}

/* ---- at quiet points ---- */

int coh_step_scan_finding(const coh_step *step, coh_scan_finding *out_finding)
{
    *out_finding = step->finding;
    return step->has_finding;
}

const coh_instruction_times *coh_step_times(const coh_step *step)
{
    return &step->times;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Lets no instruction begin before what it waited for has ended. On a GPU both times are mapped to
 * the host's clock, each with a small error (memory/clock_map.h), which could part an arrow of the
 * report from its order. A time moves by no more than that error. */
static void order_spans(const coh_bound *bound, coh_trace_span *spans)
{
    const coh_program *program = bound->program;
    uint64_t lane_ns[COH_LANE_COUNT] = { 0 }; /* the last end: a lane ends in order */
    for (uint32_t i = 0; i < program->instruction_count; i++) { /* in a topological order */
        const coh_instruction *instruction = &program->instructions[i];
        coh_trace_span *span = &spans[i];
        uint64_t *lane = &lane_ns[instruction->lane];
        if (instruction->lane <= COH_LANE_D2H) /* one after the other; disk lanes overlap */
            span->begin_ns = later(span->begin_ns, *lane);
        for (uint32_t w = 0; w < instruction->wait_count; w++) {
            const coh_wait *wait = &program->waits[instruction->wait_begin + w];
            if (!wait->carry)
                span->begin_ns =
                    later(span->begin_ns,
                          spans[bound->lane_instructions[wait->lane][wait->ordinal - 1]].end_ns);
        }
        span->end_ns = later(span->end_ns, later(span->begin_ns, *lane));
        *lane = span->end_ns;
    }
}

coh_status coh_step_recorded(coh_step *step, uint64_t index, coh_trace_step *out_step)
{
    coh_step_record *record = coh_step_records_find(&step->records, index);
    if (record == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "step %" PRIu64 " is not recorded (any more)", index);
    if (record->ticket + 2 > submitted_count(step))
        COH_TRY(coh_step_finish(step, record->ticket));
    if (!record->is_relative)
        order_spans(&step->bounds[COH_PROGRAM_BODY], record->step.spans);
    coh_step_records_count(&step->records, record);
    *out_step = record->step;
    return COH_OK;
}

coh_status coh_step_latencies(const coh_step *step, coh_trace_latency *out_latencies)
{
    if (step->records.slot_count == 0)
        return coh_fail(COH_ERR_ARGUMENT, "no step is recorded");
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        for (int power = 0; power < COH_TRACE_LATENCIES; power++)
            out_latencies[lane].counts[power] =
                atomic_load_explicit(&step->records.latencies[lane][power], memory_order_relaxed);
    return COH_OK;
}

void coh_step_shared(const coh_step *step, uint8_t *out_is_shared)
{
    const coh_bound *body = &step->bounds[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->run_count; i++)
        for (uint32_t at = 0; at < body->runs[i].count; at++)
            out_is_shared[body->lane_instructions[COH_LANE_COMPUTE][body->runs[i].first - 1 + at]] =
                body->runs[i].recording != NULL && body->runs[i].count > 1;
}

int coh_step_store_facts(const coh_step *step, coh_store_facts *out_facts)
{
    *out_facts = (coh_store_facts){ 0 };
    return step->store != NULL && step->store_ops->facts(step->store, out_facts) == COH_OK;
}
