/* REDUCE and GATHER: instructions that ranks execute together. Their windows have fixed addresses.
 * So all their messages are bound to the world's transport when the step is created, as one line
 * for each instruction; a step then only starts a line and sleeps until it is done.
 *
 *     backward        writes a chunk of GRAD       a rank's own sum
 *     REDUCE, axis 0  sends slices, receives those of its part in WIRE, folds them in place
 *     GATHER, axis 0  sends its part, receives the others
 *
 * Norm partials are not in one piece, nor are states received where they lie: a rank copies its own
 * to its slot among those of all ranks, and the line works there.
 *
 * The transport ends a line in which another rank fails, with that rank's sentence. Read
 * comm/transport.h and planner/comm_parts.h first. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/exchange.h"
#include "engine/comm_wire.h"
#include "engine/segments.h"
#include "engine/step_state.h"
#include "kernels/fold.h"
#include "planner/comm_parts.h"

/* The beginning of a rank's slots of losses, as it sends them. */
typedef struct loss_slot {
    float loss;
    int32_t asks_stop; /* this and all below: only of the rank's first slot. It is to stop */
    uint64_t step;     /* that its losses are of */
    uint64_t seed;     /* and the other numbers of the step's input */
    float learning_rate, clip, loss_factor;
    unsigned char
        rest[COH_LOSS_STRIDE_BYTES - 3 * sizeof(uint64_t) - 3 * sizeof(float) - sizeof(uint32_t)];
} loss_slot;
_Static_assert(sizeof(loss_slot) == COH_LOSS_STRIDE_BYTES, "a loss has a slot");

/* ---- bind ---- */

/* Returns the axis of an exchange of gradients. */
static int axis_of(const coh_comm_call *comm)
{
    return __builtin_ctz(comm->axes);
}

static coh_status bind_reduce(const coh_step *step, const coh_bound *bound,
                              const coh_instruction *instruction, coh_exchange exchange,
                              coh_part window, coh_link_plan *plan, coh_comm_line *out)
{
    const coh_comm_call *comm = &bound->program->comms[instruction->comm - 1];
    const int32_t index = coh_mesh_group_index(exchange.mesh, exchange.axes, exchange.rank);
    const coh_operand *wire = coh_bound_operand(bound, instruction, COH_SLOT_COMM_WIRE);
    const coh_operand *grad = coh_bound_operand(bound, instruction, COH_SLOT_COMM_GRAD);
    char *contribution = (char *)coh_operand_data(step, grad) + window.begin;
    char *received = coh_operand_data(step, wire);
    const coh_operand *part = coh_bound_operand(bound, instruction, COH_SLOT_COMM_PART);
    out->members = coh_mesh_group_size(exchange.mesh, exchange.axes);
    out->sum = part != NULL ? coh_operand_data(step, part)
                            : (void *)(contribution + (size_t)index * exchange.part_bytes);
    out->count = (int64_t)(coh_exchange_part_bytes(&exchange, index) / sizeof(float));
    COH_TRY(COH_ALLOC(out->members, &out->slices));
    coh_exchange_slices(&exchange, contribution, received, out->slices);
    return comm->wire != COH_WIRE_STORED
               ? coh_comm_wire_reduce(out, plan, &exchange, comm, contribution, received)
               : coh_exchange_reduce(plan, &exchange, contribution, received, &out->line);
}

/* Returns the window of an exchange: the part that the REDUCEs over the axes before its own have
 * left, relative to what the operand has of the chunk. */
static coh_part window_of(const coh_step *step, const coh_bound *bound,
                          const coh_instruction *instruction, const coh_operand *operand)
{
    const coh_layout *layout = step->layout;
    const coh_mesh *mesh = &layout->mesh;
    const coh_comm_call *comm = &bound->program->comms[instruction->comm - 1];
    const uint32_t chunk = bound->program->touches[operand->touch_begin].chunk;
    const coh_group_layout *group = coh_chunk_group(layout, chunk);
    const uint8_t stream = layout->objects[operand->object].stream;
    const int is_grad = stream == COH_STREAM_GRAD || stream == COH_STREAM_GRAD_PART;
    const uint32_t whole = coh_chunk_partner(layout, chunk, is_grad ? group->grad : group->work);
    const uint64_t bytes = layout->chunks[whole].bytes, unit = coh_chunk_part_unit(layout, whole);
    const int axes = coh_stream_axes(group, stream);
    coh_part window = coh_part_of(mesh, axis_of(comm) - 1, step->rank, bytes, unit);
    window.begin -= coh_part_of(mesh, axes - 1, step->rank, bytes, unit).begin;
    return window;
}

/* Binds the exchange of a chunk of gradient or work. */
static coh_status bind_chunk(const coh_step *step, const coh_bound *bound,
                             const coh_instruction *instruction, const coh_operand *operand,
                             coh_exchange exchange, coh_link_plan *plan, coh_comm_line *line)
{
    const coh_part window = window_of(step, bound, instruction, operand);
    exchange.window_bytes = (size_t)window.bytes;
    if (instruction->opcode == COH_OP_REDUCE)
        return bind_reduce(step, bound, instruction, exchange, window, plan, line);
    char *data = (char *)coh_operand_data(step, operand) + window.begin;
    const coh_comm_call *comm = &bound->program->comms[instruction->comm - 1];
    const int32_t index = coh_mesh_group_index(exchange.mesh, exchange.axes, exchange.rank);
    const coh_operand *part = coh_bound_operand(bound, instruction, COH_SLOT_COMM_PART);
    if (comm->wire != COH_WIRE_STORED) {
        const coh_operand *wire = coh_bound_operand(bound, instruction, COH_SLOT_COMM_WIRE);
        const char *own = part != NULL ? coh_operand_data(step, part)
                                       : data + (size_t)index * exchange.part_bytes;
        return coh_comm_wire_gather(line, plan, &exchange, comm, data, own,
                                    coh_operand_data(step, wire));
    }
    if (part != NULL) {
        line->from = coh_operand_data(step, part);
        line->own = data + (size_t)index * exchange.part_bytes;
        line->own_bytes = coh_exchange_part_bytes(&exchange, index);
    }
    return coh_exchange_gather(plan, &exchange, data, &line->line);
}

/* Binds the gathering of a slot for each rank. */
static coh_status bind_slots(const coh_step *step, const coh_operand *slots, coh_exchange exchange,
                             coh_link_plan *plan, coh_comm_line *line)
{
    const int32_t index = coh_mesh_group_index(exchange.mesh, exchange.axes, exchange.rank);
    line->slots = coh_operand_data(step, slots);
    line->slot_bytes = exchange.part_bytes;
    line->own = line->slots + (size_t)index * exchange.part_bytes;
    exchange.window_bytes =
        exchange.part_bytes * (size_t)coh_mesh_group_size(exchange.mesh, exchange.axes);
    return coh_exchange_gather(plan, &exchange, line->slots, &line->line);
}

static coh_status bind_instruction(const coh_step *step, const coh_bound *bound,
                                   const coh_instruction *instruction, coh_link_plan *plan)
{
    const coh_comm_call *comm = &bound->program->comms[instruction->comm - 1];
    const coh_operand *losses = coh_bound_operand(bound, instruction, COH_SLOT_COMM_LOSS);
    const coh_operand *grad = coh_bound_operand(bound, instruction, COH_SLOT_COMM_GRAD);
    const coh_operand *work = coh_bound_operand(bound, instruction, COH_SLOT_COMM_WORK);
    const coh_operand *wire = coh_bound_operand(bound, instruction, COH_SLOT_COMM_WIRE);
    const coh_operand *states = coh_bound_operand(bound, instruction, COH_SLOT_COMM_STATES);
    coh_comm_line *line = &bound->comms[instruction->comm - 1];
    const coh_exchange exchange = { .mesh = &step->layout->mesh,
                                    .axes = comm->axes,
                                    .rank = step->rank,
                                    .part_bytes = (size_t)comm->part_bytes };
    if (grad != NULL || work != NULL)
        return bind_chunk(step, bound, instruction, grad != NULL ? grad : work, exchange, plan,
                          line);
    if (states != NULL) {
        line->from = coh_operand_data(step, states);
        line->own_bytes = states->bytes;
    }
    return bind_slots(step, losses != NULL ? losses : wire, exchange, plan, line);
}

static coh_status bind_program(coh_step *step, coh_bound *bound, coh_link_plan *plan)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->comm_count, &bound->comms));
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].comm > 0)
            COH_TRY(bind_instruction(step, bound, &program->instructions[i], plan));
    return COH_OK;
}

/* Lists the divided chunks of work, with the first norm partial of each. */
static coh_status list_divided(coh_step *step)
{
    const coh_layout *layout = step->layout;
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        count += (uint32_t)coh_chunk_is_divided_work(layout, i);
    COH_TRY(COH_ALLOC(count, &step->divided));
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const coh_chunk *chunk = &layout->chunks[i];
        coh_segments walk;
        coh_segment segment;
        uint64_t grain;
        if (!coh_chunk_is_divided_work(layout, i))
            continue;
        coh_segments_begin(&walk, layout, layout->objects[chunk->object].owner,
                           chunk->object_offset, chunk->bytes);
        (void)coh_segments_next(&walk, &segment); /* the only one */
        (void)coh_segment_grains(&segment, &grain);
        step->divided[step->divided_count++] = (coh_divided_chunk){
            .chunk = i, .first_partial = layout->parameters[segment.parameter].partial_begin + grain
        };
    }
    return COH_OK;
}

coh_status coh_comm_bind(coh_step *step)
{
    coh_link_plan plan = { 0 };
    coh_status status = COH_OK;
    if (step->world == NULL)
        return COH_OK;
    COH_TRY(list_divided(step));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT && status == COH_OK; kind++)
        if (step->bounds[kind].program != NULL)
            status = bind_program(step, &step->bounds[kind], &plan);
    if (status == COH_OK)
        status = coh_transport_bind(step->world->transport, &plan);
    coh_link_plan_fini(&plan);
    return status;
}

/* ---- run ---- */

static coh_status exchange(coh_step *step, const coh_bound *bound,
                           const coh_instruction *instruction)
{
    const coh_comm_line *comm = &bound->comms[instruction->comm - 1];
    const uint32_t line = comm->line;
    coh_comm_wire_pack(comm, NULL);
    COH_TRY(coh_transport_start(step->world->transport, line));
    coh_rank_watch_begin(&step->watch, (coh_lane)instruction->lane, bound->program, instruction);
    const coh_status status = coh_transport_wait(step->world->transport, line);
    coh_rank_watch_end(&step->watch, (coh_lane)instruction->lane);
    if (status == COH_OK)
        coh_comm_wire_unpack(comm, NULL);
    return status;
}

coh_status coh_run_reduce(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    const coh_comm_line *line = &ticket->bound->comms[instruction->comm - 1];
    const coh_fold_call fold = { .shape = { { line->members } },
                                 .contributions = line->slices,
                                 .to = line->sum,
                                 .dtype = COH_DTYPE_F32,
                                 .to_dtype = COH_DTYPE_F32,
                                 .count = line->count };
    COH_TRY(exchange(step, ticket->bound, instruction));
    if (line->count > 0)
        coh_kernel_fold(NULL, &fold);
    return COH_OK;
}

/* Compares what a rank was given for its step with what rank 0 was given. */
static coh_status compare_steps(const loss_slot *first, const loss_slot *other, int32_t rank)
{
    const struct {
        const char *name;
        double first, other;
    } numbers[] = { { "learning rate", (double)first->learning_rate, (double)other->learning_rate },
                    { "clip", (double)first->clip, (double)other->clip },
                    { "loss factor", (double)first->loss_factor, (double)other->loss_factor } };
    if (other->step != first->step)
        return coh_fail(COH_ERR_ARGUMENT,
                        "rank %" PRId32 " trains step %" PRIu64 " and rank 0 step %" PRIu64
                        ": submit the same steps on all ranks",
                        rank, other->step, first->step);
    if (other->seed != first->seed)
        return coh_fail(COH_ERR_ARGUMENT,
                        "step %" PRIu64 ": rank %" PRId32 " has seed %" PRIu64
                        " and rank 0 seed %" PRIu64 ": submit the same numbers on all ranks",
                        first->step, rank, other->seed, first->seed);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].first != numbers[i].other) /* finite: submit has checked them */
            return coh_fail(COH_ERR_ARGUMENT,
                            "step %" PRIu64 ": rank %" PRId32 " has %s %.9g and rank 0 %.9g: "
                            "submit the same numbers on all ranks",
                            first->step, rank, numbers[i].name, numbers[i].other, numbers[i].first);
    return COH_OK;
}

/* Puts this rank's losses at their place among those of all ranks. With them go the numbers of its
 * step, so that a rank with others than rank 0 is found here, and whether it is to stop. */
static coh_status gather_losses(coh_step *step, coh_ticket *ticket,
                                const coh_instruction *instruction, loss_slot *slots)
{
    const size_t count = step->layout->microbatch_count;
    const int32_t ranks = coh_mesh_rank_count(&step->layout->mesh);
    loss_slot *own = slots + (size_t)step->rank * count;
    if (own != slots)
        memcpy(own, slots, count * sizeof(*slots));
    own->step = ticket->input.step;
    own->seed = ticket->input.seed;
    own->learning_rate = ticket->input.learning_rate;
    own->clip = ticket->input.clip;
    own->loss_factor = ticket->input.loss_factor;
    own->asks_stop = atomic_load_explicit(&step->asks_stop, memory_order_relaxed);
    COH_TRY(exchange(step, ticket->bound, instruction));
    ticket->is_stop_asked = slots->asks_stop;
    for (int32_t rank = 1; rank < ranks; rank++) {
        const loss_slot *other = &slots[(size_t)rank * count];
        ticket->is_stop_asked |= other->asks_stop;
        COH_TRY(compare_steps(slots, other, rank));
    }
    return COH_OK;
}

/* Copies the norm partials of a rank's parts between their places and its slot. */
static void copy_partials(const coh_step *step, int32_t rank, double *partials, double *slot,
                          int to_slot)
{
    for (uint32_t i = 0; i < step->divided_count; i++) {
        const coh_divided_chunk *divided = &step->divided[i];
        const uint64_t unit = coh_chunk_part_unit(step->layout, divided->chunk);
        const coh_part part = coh_updated_part(step->layout, divided->chunk, rank);
        const size_t bytes = (size_t)((part.bytes + unit - 1) / unit) * sizeof(double);
        double *own = partials + divided->first_partial + part.begin / unit;
        if (to_slot)
            memcpy(slot, own, bytes);
        else
            memcpy(own, slot, bytes);
        slot += coh_updated_part_grains(step->layout, divided->chunk);
    }
}

static coh_status gather_partials(coh_step *step, const coh_bound *bound,
                                  const coh_instruction *instruction, double *partials)
{
    const coh_comm_line *line = &bound->comms[instruction->comm - 1];
    const coh_mesh *mesh = &step->layout->mesh;
    copy_partials(step, step->rank, partials, (double *)(void *)line->own, 1);
    COH_TRY(exchange(step, bound, instruction));
    for (int32_t rank = 0; rank < coh_mesh_rank_count(mesh); rank++) {
        const int32_t index = coh_mesh_group_index(mesh, coh_mesh_all_axes(mesh), rank);
        char *slot = line->slots + (size_t)index * line->slot_bytes;
        if (rank != step->rank)
            copy_partials(step, rank, partials, (double *)(void *)slot, 0);
    }
    return COH_OK;
}

coh_status coh_run_gather(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    const coh_bound *bound = ticket->bound;
    const coh_comm_line *line = &bound->comms[instruction->comm - 1];
    const coh_operand *losses = coh_bound_operand(bound, instruction, COH_SLOT_COMM_LOSS);
    const coh_operand *partials = coh_bound_operand(bound, instruction, COH_SLOT_COMM_PARTIALS);
    if (losses != NULL)
        return gather_losses(step, ticket, instruction, coh_operand_data(step, losses));
    if (partials != NULL)
        return gather_partials(step, bound, instruction, coh_operand_data(step, partials));
    if (line->own_bytes > 0)
        memcpy(line->own, line->from, line->own_bytes);
    return exchange(step, bound, instruction);
}
