/* REDUCE and GATHER: instructions that ranks execute together. Their windows have fixed addresses.
 * So all their messages are bound to the world's transport when the step is created, as one line
 * for each instruction; a step then only starts a line and sleeps until it is done.
 *
 *     backward        writes a chunk of GRAD       a rank's own sum
 *     REDUCE, axis 0  sends slices, receives those of its part in WIRE, folds them in place
 *     GATHER, axis 0  sends its part, receives the others
 *
 * The transport ends a line in which another rank fails, with that rank's sentence. Read
 * comm/transport.h and planner/comm_parts.h first. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/exchange.h"
#include "engine/step_state.h"
#include "kernels/fold.h"
#include "planner/comm_parts.h"

/* The beginning of a rank's slots of losses, as it sends them. */
typedef struct loss_slot {
    float loss;
    int32_t asks_stop; /* this and the next: only of the rank's first slot. It is to stop */
    uint64_t step;     /* that its losses are of */
    unsigned char rest[COH_LOSS_STRIDE_BYTES - 2 * sizeof(uint64_t)];
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
    const int32_t index = coh_mesh_group_index(exchange.mesh, exchange.axes, exchange.rank);
    const coh_operand *wire = coh_bound_operand(bound, instruction, COH_SLOT_COMM_WIRE);
    const coh_operand *grad = coh_bound_operand(bound, instruction, COH_SLOT_COMM_GRAD);
    char *contribution = (char *)coh_operand_data(step, grad) + window.begin;
    char *received = coh_operand_data(step, wire);
    out->members = coh_mesh_group_size(exchange.mesh, exchange.axes);
    out->sum = contribution + (size_t)index * exchange.part_bytes;
    out->count = (int64_t)(coh_exchange_part_bytes(&exchange, index) / sizeof(float));
    COH_TRY(COH_ALLOC(out->members, &out->slices));
    coh_exchange_slices(&exchange, contribution, received, out->slices);
    return coh_exchange_reduce(plan, &exchange, contribution, received, &out->line);
}

static coh_status bind_instruction(const coh_step *step, const coh_bound *bound,
                                   const coh_instruction *instruction, coh_link_plan *plan)
{
    const coh_comm_call *comm = &bound->program->comms[instruction->comm - 1];
    const coh_mesh *mesh = &step->layout->mesh;
    const coh_operand *losses = coh_bound_operand(bound, instruction, COH_SLOT_COMM_LOSS);
    const coh_operand *grad = coh_bound_operand(bound, instruction, COH_SLOT_COMM_GRAD);
    coh_comm_line *line = &bound->comms[instruction->comm - 1];
    coh_exchange exchange = {
        .mesh = mesh, .axes = comm->axes, .rank = step->rank, .part_bytes = (size_t)comm->part_bytes
    };
    if (losses != NULL) {
        exchange.window_bytes = exchange.part_bytes * (size_t)coh_mesh_rank_count(mesh);
        return coh_exchange_gather(plan, &exchange, coh_operand_data(step, losses), &line->line);
    }
    const coh_part window = coh_part_of(mesh, axis_of(comm) - 1, step->rank, grad->bytes);
    exchange.window_bytes = (size_t)window.bytes;
    if (instruction->opcode == COH_OP_REDUCE)
        return bind_reduce(step, bound, instruction, exchange, window, plan, line);
    return coh_exchange_gather(plan, &exchange, (char *)coh_operand_data(step, grad) + window.begin,
                               &line->line);
}

coh_status coh_comm_bind(coh_step *step)
{
    coh_link_plan plan = { 0 };
    coh_status status = COH_OK;
    coh_bound *body = &step->bounds[COH_PROGRAM_BODY];
    const coh_program *program = body->program;
    if (step->world == NULL)
        return COH_OK;
    COH_TRY(COH_ALLOC(program->comm_count, &body->comms));
    for (uint32_t i = 0; i < program->instruction_count && status == COH_OK; i++)
        if (program->instructions[i].comm > 0)
            status = bind_instruction(step, body, &program->instructions[i], &plan);
    if (status == COH_OK)
        status = coh_transport_bind(step->world->transport, &plan);
    coh_link_plan_fini(&plan);
    return status;
}

/* ---- run ---- */

static coh_status exchange(const coh_step *step, const coh_comm_line *line)
{
    COH_TRY(coh_transport_start(step->world->transport, line->line));
    return coh_transport_wait(step->world->transport, line->line);
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
    COH_TRY(exchange(step, line));
    if (line->count > 0)
        coh_kernel_fold(NULL, &fold);
    return COH_OK;
}

/* Puts this rank's losses at their place among those of all ranks. With them go its step, so that a
 * rank that is at another step than rank 0 is found here, and whether it is to stop. */
static coh_status gather_losses(const coh_step *step, coh_ticket *ticket, const coh_comm_line *line,
                                loss_slot *slots)
{
    const size_t count = step->layout->microbatch_count;
    const int32_t ranks = coh_mesh_rank_count(&step->layout->mesh);
    loss_slot *own = slots + (size_t)step->rank * count;
    if (own != slots)
        memcpy(own, slots, count * sizeof(*slots));
    own->step = ticket->input.step;
    own->asks_stop = atomic_load_explicit(&step->asks_stop, memory_order_relaxed);
    COH_TRY(exchange(step, line));
    ticket->is_stop_asked = slots->asks_stop;
    for (int32_t rank = 1; rank < ranks; rank++) {
        ticket->is_stop_asked |= slots[(size_t)rank * count].asks_stop;
        if (slots[(size_t)rank * count].step != slots->step)
            return coh_fail(COH_ERR_ARGUMENT,
                            "rank %" PRId32 " trains step %" PRIu64 " and rank 0 step %" PRIu64
                            ": submit the same steps on all ranks",
                            rank, slots[(size_t)rank * count].step, slots->step);
    }
    return COH_OK;
}

coh_status coh_run_gather(coh_step *step, coh_ticket *ticket, const coh_instruction *instruction)
{
    const coh_bound *bound = ticket->bound;
    const coh_comm_line *line = &bound->comms[instruction->comm - 1];
    const coh_operand *losses = coh_bound_operand(bound, instruction, COH_SLOT_COMM_LOSS);
    return losses == NULL ? exchange(step, line)
                          : gather_losses(step, ticket, line, coh_operand_data(step, losses));
}
