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
 * On a GPU the windows lie there, and so do messages (comm/nccl.h), folding and packing: the lane's
 * thread enqueues them on the lane's queue, and waits. Only losses pass through the host. There
 * NCCL may also gather and add by its collectives (coh_plan_options.reduce), where a window's parts
 * have one size. Such a REDUCE needs no WIRE, and nothing is folded after it.
 *
 * The transport ends a line in which another rank fails, with that rank's sentence. Read
 * comm/transport.h and planner/comm_parts.h first. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "coh_config.h"
#include "comm/exchange.h"
#include "comm/nccl.h"
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

static int uses_collectives(const coh_step *step)
{
    return step->plan->options.reduce == COH_REDUCE_LIBRARY;
}

static coh_status bind_gather(const coh_step *step, const coh_exchange *exchange, void *window,
                              coh_link_plan *plan, coh_comm_line *line)
{
    int is_added = 0;
    if (uses_collectives(step))
        COH_TRY(coh_exchange_gather_collective(plan, exchange, window, &line->line, &is_added));
    return is_added ? COH_OK : coh_exchange_gather(plan, exchange, window, &line->line);
}

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
    int is_added = 0;
    out->members = coh_mesh_group_size(exchange.mesh, exchange.axes);
    out->sum = part != NULL ? coh_operand_data(step, part)
                            : (void *)(contribution + (size_t)index * exchange.part_bytes);
    if (uses_collectives(step) && comm->wire == COH_WIRE_STORED)
        COH_TRY(coh_exchange_reduce_collective(plan, &exchange, contribution, out->sum, &out->line,
                                               &is_added));
    if (is_added)
        return COH_OK;
    if (!step->host_addressable && out->members > COH_FOLD_CUDA_MOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a GPU adds the gradients of at most %d ranks at once, not %" PRId32
                        ": give the replicas more factors",
                        (int)COH_FOLD_CUDA_MOST, out->members);
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
    return bind_gather(step, &exchange, data, plan, line);
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
    return bind_gather(step, &exchange, line->slots, plan, line);
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
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        plan->lane = instruction->lane == COH_LANE_COMM1;
        if (instruction->comm > 0)
            COH_TRY(bind_instruction(step, bound, instruction, plan));
    }
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

/* ---- on GPUs ---- */

static const coh_lane comm_lanes[COH_LINK_LANES] = { COH_LANE_COMM0, COH_LANE_COMM1 };

static int is_lane_used(const coh_step *step, coh_lane lane)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (step->bounds[kind].program != NULL && step->bounds[kind].program->lane_length[lane] > 0)
            return 1;
    return 0;
}

static uint64_t loss_slots_bytes(const coh_step *step)
{
    return (uint64_t)coh_mesh_rank_count(&step->layout->mesh) * step->layout->microbatch_count *
           COH_LOSS_STRIDE_BYTES;
}

#ifdef COH_HAVE_NCCL
static coh_status connect_gpus(coh_step *step, const struct coh_nccl_calls *nccl)
{
    coh_nccl_options options = { .host = step->world->transport, .calls = nccl };
    for (int i = 0; i < COH_LINK_LANES; i++) {
        const coh_lane lane = comm_lanes[i];
        if (is_lane_used(step, lane))
            COH_TRY(step->device_ops->queue_create(step->device, lane, &step->queues[lane]));
        options.queues[i] = step->queues[lane];
    }
    COH_TRY(
        step->device_ops->share(step->device, (size_t)loss_slots_bytes(step), &step->loss_slots));
    return coh_nccl_open(&options, &step->transport);
}
#else
static coh_status connect_gpus(coh_step *step, const struct coh_nccl_calls *nccl)
{
    (void)step;
    (void)nccl;
    (void)comm_lanes;
    (void)is_lane_used;
    (void)loss_slots_bytes;
    return coh_fail(COH_ERR_DEVICE, "this program was built without NCCL, which connects GPUs: "
                                    "build it where CUDA is (docs/building.md), or compute on the "
                                    "host");
}
#endif

void coh_comm_unbind(coh_step *step)
{
    if (step->transport != NULL)
        step->is_left_behind = !coh_transport_unbind(step->transport);
}

void coh_comm_close(coh_step *step)
{
    if (step->transport != NULL && step->transport != step->world->transport)
        coh_transport_close(step->transport);
    step->transport = NULL;
    if (step->device != NULL)
        step->device_ops->unshare(step->device, step->loss_slots);
    step->loss_slots = NULL;
}

coh_status coh_comm_bind(coh_step *step, const struct coh_nccl_calls *nccl)
{
    coh_link_plan plan = { 0 };
    coh_status status = COH_OK;
    if (step->world == NULL)
        return COH_OK;
    COH_TRY(list_divided(step));
    if (step->host_addressable)
        step->transport = step->world->transport;
    else
        COH_TRY(coh_transport_end(step->world->transport, connect_gpus(step, nccl)));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT && status == COH_OK; kind++)
        if (step->bounds[kind].program != NULL)
            status = bind_program(step, &step->bounds[kind], &plan);
    if (status == COH_OK)
        status = coh_transport_bind(step->transport, &plan);
    coh_link_plan_fini(&plan);
    return status;
}

/* ---- run ---- */

/* An instruction on its lane. On a GPU the lane has a queue, and what the messages of the line
 * depend on, or what depends on them, is enqueued there. On the host it is done at once. */
typedef struct comm_run {
    coh_step *step;
    coh_ticket *ticket;
    const coh_instruction *instruction;
    const coh_comm_line *line;
    coh_queue *queue; /* NULL: on the host */
} comm_run;

static comm_run run_of(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    return (comm_run){ .step = step,
                       .ticket = ticket,
                       .instruction = instruction,
                       .line = &ticket->bound->comms[instruction->comm - 1],
                       .queue = step->queues[instruction->lane] };
}

static void copy(const comm_run *run, void *to, const void *from, size_t bytes)
{
    if (run->queue != NULL)
        run->step->device_ops->copy(run->queue, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

/* Calls kernels of a line, as work of its lane. */
static void launch(comm_run *run, coh_device_work work)
{
    const uint32_t index = (uint32_t)(run->instruction - run->ticket->bound->program->instructions);
    if (run->queue != NULL)
        run->step->device_ops->launch(run->queue, work, run, run->ticket->number, index, NULL);
    else
        work(run, run->ticket->number, index);
}

static void pack(void *context, uint64_t number, uint32_t index)
{
    const comm_run *run = context;
    (void)number;
    (void)index;
    coh_comm_wire_pack(run->line, run->queue);
}

static void unpack(void *context, uint64_t number, uint32_t index)
{
    const comm_run *run = context;
    (void)number;
    (void)index;
    coh_comm_wire_unpack(run->line, run->queue);
}

static void unpack_and_fold(void *context, uint64_t number, uint32_t index)
{
    const comm_run *run = context;
    const coh_comm_line *line = run->line;
    const coh_fold_call fold = { .shape = { { line->members } },
                                 .contributions = line->slices,
                                 .to = line->sum,
                                 .dtype = COH_DTYPE_F32,
                                 .to_dtype = COH_DTYPE_F32,
                                 .count = line->count };
    unpack(context, number, index);
    if (line->count > 0)
        coh_kernel_fold(run->queue, &fold);
}

static coh_status await(const comm_run *run)
{
    coh_step *step = run->step;
    const coh_lane lane = (coh_lane)run->instruction->lane;
    coh_rank_watch_begin(&step->watch, lane, run->ticket->bound->program, run->instruction);
    const coh_status status = coh_transport_wait(step->transport, run->line->line);
    coh_rank_watch_end(&step->watch, lane);
    return status;
}

/* Exchanges, then does `after`. On a GPU both are waited for at once. */
static coh_status exchange(comm_run *run, coh_device_work after)
{
    if (run->line->packed_count > 0)
        launch(run, pack);
    COH_TRY(coh_transport_start(run->step->transport, run->line->line));
    if (run->queue == NULL)
        COH_TRY(await(run));
    launch(run, after);
    return run->queue == NULL ? COH_OK : await(run);
}

coh_status coh_run_reduce(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    comm_run run = run_of(step, ticket, instruction);
    return exchange(&run, unpack_and_fold);
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

static void show_losses(void *context, uint64_t number, uint32_t index)
{
    const comm_run *run = context;
    (void)number;
    (void)index;
    if (run->queue != NULL)
        copy(run, run->step->loss_slots, run->line->slots, loss_slots_bytes(run->step));
}

/* Puts this rank's losses at their place among those of all ranks. With them go the numbers of its
 * step, so that a rank with others than rank 0 is found here, and whether it is to stop. */
static void put_losses(const comm_run *run, loss_slot *slots)
{
    coh_step *step = run->step;
    const size_t count = step->layout->microbatch_count, bytes = count * sizeof(*slots);
    loss_slot *own = slots + (size_t)step->rank * count;
    if (run->queue != NULL || own != slots)
        copy(run, own, run->line->slots, bytes);
    if (run->queue != NULL)
        step->device_ops->finish(run->queue);
    own->step = run->ticket->input.step;
    own->seed = run->ticket->input.seed;
    own->learning_rate = run->ticket->input.learning_rate;
    own->clip = run->ticket->input.clip;
    own->loss_factor = run->ticket->input.loss_factor;
    own->asks_stop = atomic_load_explicit(&step->asks_stop, memory_order_relaxed);
    if (run->queue != NULL)
        copy(run, run->line->own, own, bytes);
}

static coh_status gather_losses(comm_run *run)
{
    coh_step *step = run->step;
    const size_t count = step->layout->microbatch_count;
    const int32_t ranks = coh_mesh_rank_count(&step->layout->mesh);
    loss_slot *slots = run->queue != NULL ? step->loss_slots : (void *)run->line->slots;
    put_losses(run, slots);
    COH_TRY(exchange(run, show_losses));
    run->ticket->is_stop_asked = slots->asks_stop;
    for (int32_t rank = 1; rank < ranks; rank++) {
        const loss_slot *other = &slots[(size_t)rank * count];
        run->ticket->is_stop_asked |= other->asks_stop;
        COH_TRY(compare_steps(slots, other, rank));
    }
    return COH_OK;
}

/* Copies the norm partials of a rank's parts between their places and its slot. */
static void copy_partials(const comm_run *run, int32_t rank, double *partials, double *slot,
                          int to_slot)
{
    const coh_step *step = run->step;
    for (uint32_t i = 0; i < step->divided_count; i++) {
        const coh_divided_chunk *divided = &step->divided[i];
        const uint64_t unit = coh_chunk_part_unit(step->layout, divided->chunk);
        const coh_part part = coh_updated_part(step->layout, divided->chunk, rank);
        const size_t bytes = (size_t)((part.bytes + unit - 1) / unit) * sizeof(double);
        double *own = partials + divided->first_partial + part.begin / unit;
        if (to_slot)
            copy(run, slot, own, bytes);
        else
            copy(run, own, slot, bytes);
        slot += coh_updated_part_grains(step->layout, divided->chunk);
    }
}

static double *partials_of(const comm_run *run)
{
    return coh_operand_data(
        run->step, coh_bound_operand(run->ticket->bound, run->instruction, COH_SLOT_COMM_PARTIALS));
}

static void take_partials(void *context, uint64_t number, uint32_t index)
{
    const comm_run *run = context;
    const coh_mesh *mesh = &run->step->layout->mesh;
    (void)number;
    (void)index;
    for (int32_t rank = 0; rank < coh_mesh_rank_count(mesh); rank++) {
        const int32_t at = coh_mesh_group_index(mesh, coh_mesh_all_axes(mesh), rank);
        char *slot = run->line->slots + (size_t)at * run->line->slot_bytes;
        if (rank != run->step->rank)
            copy_partials(run, rank, partials_of(run), (double *)(void *)slot, 0);
    }
}

static coh_status gather_partials(comm_run *run)
{
    copy_partials(run, run->step->rank, partials_of(run), (double *)(void *)run->line->own, 1);
    return exchange(run, take_partials);
}

coh_status coh_run_gather(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    comm_run run = run_of(step, ticket, instruction);
    const coh_bound *bound = ticket->bound;
    if (coh_bound_operand(bound, instruction, COH_SLOT_COMM_LOSS) != NULL)
        return gather_losses(&run);
    if (coh_bound_operand(bound, instruction, COH_SLOT_COMM_PARTIALS) != NULL)
        return gather_partials(&run);
    if (run.line->own_bytes > 0)
        copy(&run, run.line->own, run.line->from, run.line->own_bytes);
    return exchange(&run, unpack);
}
