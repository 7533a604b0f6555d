/* Binds a program to a step: resolves, once, everything that can be looked up before the first
 * run. That is the instructions of each lane, the extents of each instruction, the versions that
 * a run makes, and every view of every call as pointers. The verifier has checked every property
 * that this relies on. Next: step_state.h. */
#include <string.h>

#include "base/alloc.h"
#include "engine/comm_wire.h"
#include "engine/step_state.h"

/* ---- lanes and uses ---- */

/* Finds the operands of an instruction's row. */
static void bind_slots(coh_bound *bound, const coh_instruction *instruction)
{
    const coh_program *program = bound->program;
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    coh_operand_slots *slots = &bound->slots[instruction - program->instructions];
    for (int slot = 0; slot < COH_OPERAND_RULES; slot++)
        for (uint32_t i = instruction->operand_count; i-- > 0;)
            if (row->operands[slot].accesses != 0 && i < UINT16_MAX &&
                program->operands[instruction->operand_begin + i].role == row->operands[slot].role)
                slots->at[slot] = (uint16_t)(i + 1);
}

static coh_status bind_lanes(coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->instruction_count, &bound->slots));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        COH_TRY(COH_ALLOC(program->lane_length[lane], &bound->lane_instructions[lane]));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        bind_slots(bound, instruction);
        bound->lane_instructions[instruction->lane][instruction->ordinal - 1] = i;
        if (instruction->opcode == COH_OP_CLIP)
            bound->clip_ordinal = instruction->ordinal;
    }
    return COH_OK;
}

/* Adds extent `e` to the uses of the instruction whose uses begin at `begin`, unless it is there
 * already. */
static void add_use(coh_bound *bound, uint32_t begin, uint32_t *count, uint32_t e)
{
    for (uint32_t i = begin; i < *count; i++)
        if (bound->uses[i] == e)
            return;
    bound->uses[(*count)++] = e;
}

static coh_status bind_uses(coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->touch_count, &bound->uses));
    COH_TRY(COH_ALLOC(program->instruction_count + 1, &bound->use_begin));
    uint32_t count = 0;
    for (uint32_t l = 0; l < program->instruction_count; l++) {
        const coh_instruction *instruction = &program->instructions[l];
        bound->use_begin[l] = count;
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &program->operands[instruction->operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++) {
                uint32_t extent = program->touches[operand->touch_begin + t].extent;
                if (extent != COH_EXTENT_FILE)
                    add_use(bound, bound->use_begin[l], &count, extent);
            }
        }
    }
    bound->use_begin[program->instruction_count] = count;
    return COH_OK;
}

/* Pairs each extent that remains at the end with its continuation at the begin of the next run. */
static coh_status bind_successors(const coh_layout *layout, coh_bound *bound)
{
    const coh_program *program = bound->program;
    uint32_t *begins = NULL; /* by chunk and tier: 1 + extent */
    COH_TRY(COH_ALLOC((size_t)layout->chunk_count * COH_TIER_COUNT, &begins));
    for (uint32_t e = 0; e < program->extent_count; e++) {
        const coh_extent *extent = &program->extents[e];
        if (extent->at_begin && !extent->at_end)
            begins[(size_t)extent->chunk * COH_TIER_COUNT + extent->tier] = e + 1;
    }
    for (uint32_t e = 0; e < program->extent_count; e++) {
        const coh_extent *extent = &program->extents[e];
        uint32_t next = begins[(size_t)extent->chunk * COH_TIER_COUNT + extent->tier];
        if (!extent->at_end || extent->at_begin || next == 0 || extent->use_count == 0)
            continue;
        bound->goes_on_as[e] = next;
        bound->comes_from[next - 1] = 1;
    }
    coh_free(begins);
    return COH_OK;
}

/* Pairs each extent that is written in place of another one with that one: their operands have
 * equal chunks. */
static void bind_takers(coh_bound *bound)
{
    const coh_program *program = bound->program;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_operand *operands = &program->operands[program->instructions[i].operand_begin];
        for (uint32_t o = 0; o < program->instructions[i].operand_count; o++)
            for (uint32_t t = 0; operands[o].takes > 0 && t < operands[o].touch_count; t++) {
                const uint32_t touch = operands[operands[o].takes - 1].touch_begin + t;
                const uint32_t from = program->touches[touch].extent;
                bound->takes[program->touches[operands[o].touch_begin + t].extent] = from + 1;
                bound->is_taken[from] = 1;
            }
    }
}

static coh_status bind_extents(const coh_layout *layout, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->extent_count, &bound->goes_on_as));
    COH_TRY(COH_ALLOC(program->extent_count, &bound->comes_from));
    COH_TRY(COH_ALLOC(program->extent_count, &bound->takes));
    COH_TRY(COH_ALLOC(program->extent_count, &bound->is_taken));
    bind_takers(bound);
    for (int parity = 0; parity < 2; parity++)
        COH_TRY(COH_ALLOC(program->extent_count, &bound->extents[parity]));
    COH_TRY(bind_successors(layout, bound));
    coh_bound_reset(bound, 0);
    return COH_OK;
}

void coh_bound_reset(coh_bound *bound, uint64_t number)
{
    const coh_program *program = bound->program;
    for (uint32_t parity = 0; parity < 2; parity++)
        for (uint32_t e = 0; e < program->extent_count; e++) {
            coh_extent_state *state = &bound->extents[parity][e];
            uint32_t waits_for_one = parity != number % 2 && bound->comes_from[e];
            atomic_store(&state->remaining, coh_extent_users(&program->extents[e]) + waits_for_one);
            atomic_store(&state->entered, program->extents[e].at_begin);
        }
}

/* Finds extents that exist at the begin, are not used and do not stay: copies of data elsewhere. */
static coh_status bind_unused(coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->extent_count, &bound->unused));
    for (uint32_t e = 0; e < program->extent_count; e++)
        if (coh_extent_is_unused(&program->extents[e]))
            bound->unused[bound->unused_count++] = e;
    return COH_OK;
}

/* A program that makes residents without reading them (INIT) replaces their old contents. */
static coh_status bind_replaced(const coh_layout *layout, coh_bound *bound)
{
    enum { FOUND = 1, MADE = 2 };
    const coh_program *program = bound->program;
    uint8_t *seen = NULL;
    COH_TRY(COH_ALLOC((size_t)layout->chunk_count * COH_TIER_COUNT, &seen));
    coh_status status = COH_ALLOC(layout->resident_count, &bound->replaced);
    for (uint32_t e = 0; status == COH_OK && e < program->extent_count; e++) {
        const coh_extent *extent = &program->extents[e];
        uint8_t *place = &seen[(size_t)extent->chunk * COH_TIER_COUNT + extent->tier];
        *place |= (uint8_t)((extent->at_begin ? FOUND : 0) | (extent->at_end ? MADE : 0));
    }
    for (uint32_t i = 0; status == COH_OK && i < layout->resident_count; i++) {
        const coh_resident *resident = &layout->residents[i];
        if (seen[(size_t)resident->chunk * COH_TIER_COUNT + resident->tier] == MADE)
            bound->replaced[bound->replaced_count++] = i;
    }
    coh_free(seen);
    return status;
}

/* Counts versions: compute instructions (and host instructions) that write make one; movers copy
 * them. */
static coh_status count_versions(const coh_layout *layout, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(layout->chunk_count, &bound->versions_per_run));
    for (uint32_t l = 0; l < program->instruction_count; l++) {
        const coh_instruction *instruction = &program->instructions[l];
        const int moves = coh_opcode_moves(instruction->opcode);
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &program->operands[instruction->operand_begin + o];
            int32_t made = !moves && (operand->access & COH_ACCESS_WRITE) ? 1 : 0;
            for (uint32_t t = 0; t < operand->touch_count; t++) {
                const coh_touch *touch = &program->touches[operand->touch_begin + t];
                uint32_t *most = &bound->versions_per_run[touch->chunk];
                if (touch->version + made > 0 && (uint32_t)(touch->version + made) > *most)
                    *most = (uint32_t)(touch->version + made);
            }
        }
    }
    return COH_OK;
}

/* ---- runs of the compute lane ---- */

/* Does the instruction wait for another lane? Instructions of one lane are in order anyway. */
static int waits_for_another(const coh_program *program, const coh_instruction *instruction)
{
    for (uint32_t i = 0; i < instruction->wait_count; i++)
        if (program->waits[instruction->wait_begin + i].lane != instruction->lane)
            return 1;
    return 0;
}

/* awaited[n]: another lane waits for instruction n of the compute lane, in this run or the next. */
static void mark_awaited(const coh_program *program, uint8_t *awaited)
{
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        for (uint32_t w = 0; w < instruction->wait_count && instruction->lane != COH_LANE_COMPUTE;
             w++) {
            const coh_wait *wait = &program->waits[instruction->wait_begin + w];
            if (wait->lane == COH_LANE_COMPUTE)
                awaited[wait->ordinal] = 1;
        }
    }
}

/* Two passes: mark the instructions that other lanes wait for, then start a new run after such an
 * instruction and before each instruction that waits. */
coh_status coh_instruction_runs_find(const coh_program *program, coh_instruction_run **out_runs,
                                     uint32_t *out_count)
{
    const uint32_t length = program->lane_length[COH_LANE_COMPUTE];
    uint8_t *awaited = NULL;
    coh_instruction_run *runs = NULL;
    uint32_t count = 0;
    int is_open = 0;
    *out_runs = NULL;
    *out_count = 0;
    COH_TRY(COH_ALLOC(length + 1, &awaited));
    const coh_status status = COH_ALLOC(length, &runs);
    mark_awaited(program, awaited);
    for (uint32_t i = 0; status == COH_OK && i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->lane != COH_LANE_COMPUTE)
            continue;
        const int is_one = coh_opcode_row_of(instruction)->repeats;
        if (is_one && (!is_open || waits_for_another(program, instruction)))
            runs[count++] = (coh_instruction_run){ .first = instruction->ordinal };
        if (is_one)
            runs[count - 1].count++;
        is_open = is_one && !awaited[instruction->ordinal];
    }
    coh_free(awaited);
    *out_runs = runs;
    *out_count = count;
    return status;
}

static coh_status bind_runs(coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(coh_instruction_runs_find(program, &bound->runs, &bound->run_count));
    COH_TRY(COH_ALLOC(program->lane_length[COH_LANE_COMPUTE] + 1, &bound->run_of));
    for (uint32_t r = 0; r < bound->run_count; r++)
        for (uint32_t i = 0; i < bound->runs[r].count; i++)
            bound->run_of[bound->runs[r].first + i] = &bound->runs[r];
    return COH_OK;
}

/* ---- calls ---- */

static void set_shape(coh_view *view, const coh_shape *shape)
{
    int64_t stride = 1;
    view->shape = *shape;
    for (int32_t d = shape->rank; d-- > 0;) {
        view->stride[d] = stride;
        stride *= shape->dim[d];
    }
}

coh_bound_port coh_bound_port_of(const coh_binding *binding, void *data)
{
    coh_bound_port port = { .role = binding->role, .port = binding->port };
    coh_view *view = &port.view;
    view->data = data;
    view->origin[0] = binding->origin[0];
    view->origin[1] = binding->origin[1];
    set_shape(view, &binding->shape);
    return port;
}

static void bind_call(const coh_step *step, coh_bound *bound, const coh_instruction *instruction)
{
    const coh_program *program = bound->program;
    const coh_instruction_call *call = &program->calls[instruction->call];
    for (uint32_t i = call->binding_begin; i < call->binding_begin + call->binding_count; i++) {
        const coh_binding *binding = &program->bindings[i];
        const coh_operand *operand =
            &program->operands[instruction->operand_begin + binding->operand];
        bound->ports[i] =
            coh_bound_port_of(binding, (char *)coh_operand_data(step, operand) +
                                           binding->object_offset - operand->object_offset);
    }
}

static coh_status bind_calls(const coh_step *step, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->binding_count, &bound->ports));
    for (uint32_t l = 0; l < program->instruction_count; l++)
        if (program->instructions[l].call >= 0)
            bind_call(step, bound, &program->instructions[l]);
    return COH_OK;
}

coh_status coh_bound_init(const coh_step *step, const coh_program *program, coh_bound *out_bound)
{
    *out_bound = (coh_bound){ .program = program, .graph = step->plan->graph };
    COH_TRY(bind_lanes(out_bound));
    COH_TRY(bind_uses(out_bound));
    COH_TRY(bind_extents(step->layout, out_bound));
    COH_TRY(bind_unused(out_bound));
    COH_TRY(bind_replaced(step->layout, out_bound));
    COH_TRY(count_versions(step->layout, out_bound));
    COH_TRY(bind_runs(out_bound));
    return bind_calls(step, out_bound);
}

/* ---- the same program with the shapes of another graph ---- */

/* Gives the tensors of a call their shapes in the bound's graph: they begin where they did. */
static void shrink_call(coh_bound *bound, const coh_instruction_call *call)
{
    const coh_graph *graph = bound->graph;
    const coh_graph_op_entry *op = &graph->ops[call->operator_index];
    for (uint32_t i = 0; i < call->binding_count; i++) {
        coh_bound_port *port = &bound->ports[call->binding_begin + i];
        if (port->role == COH_ROLE_INPUT)
            set_shape(&port->view, &graph->tensors[op->input[port->port]].shape);
        else if (port->role == COH_ROLE_OUTPUT)
            set_shape(&port->view, &graph->tensors[op->output[port->port]].shape);
    }
}

coh_status coh_bound_init_small(const coh_bound *body, const coh_graph *graph, coh_bound *out_bound)
{
    const coh_program *program = body->program;
    *out_bound = *body;
    out_bound->graph = graph;
    out_bound->ports = NULL;
    out_bound->runs = NULL;
    out_bound->run_of = NULL;
    COH_TRY(bind_runs(out_bound));
    COH_TRY(COH_ALLOC(program->binding_count, &out_bound->ports));
    for (uint32_t i = 0; i < program->binding_count; i++)
        out_bound->ports[i] = body->ports[i];
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].call >= 0)
            shrink_call(out_bound, &program->calls[program->instructions[i].call]);
    return COH_OK;
}

void coh_bound_fini_small(coh_bound *bound)
{
    coh_free(bound->ports);
    coh_free(bound->runs);
    coh_free(bound->run_of);
    *bound = (coh_bound){ 0 };
}

void coh_bound_fini(coh_bound *bound)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(bound->lane_instructions[lane]);
    coh_free(bound->ports);
    coh_free(bound->slots);
    coh_free(bound->uses);
    coh_free(bound->use_begin);
    coh_free(bound->takes);
    coh_free(bound->is_taken);
    coh_free(bound->extents[0]);
    coh_free(bound->extents[1]);
    coh_free(bound->goes_on_as);
    coh_free(bound->comes_from);
    coh_free(bound->versions_per_run);
    coh_free(bound->unused);
    coh_free(bound->replaced);
    coh_free(bound->runs);
    coh_free(bound->run_of);
    for (uint32_t i = 0; bound->comms != NULL && i < bound->program->comm_count; i++)
        coh_comm_line_fini(&bound->comms[i]);
    coh_free(bound->comms);
    *bound = (coh_bound){ 0 };
}
