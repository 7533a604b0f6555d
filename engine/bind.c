/* Binds a program to a step: resolves, once, everything that can be looked up before the first
 * run. That is the instructions of each lane, the extents of each instruction, the versions that
 * a run makes, and every view of every call as pointers. Next: step_state.h. */
#include <string.h>

#include "base/alloc.h"
#include "engine/step_state.h"

/* ---- form: properties that the executor relies on ---- */

static coh_status refuse(const coh_program *program, const coh_instruction *instruction,
                         const char *what)
{
    return coh_fail(COH_ERR_INTERNAL, "program %s, instruction %u (%s on lane %s): %s",
                    coh_program_kind_name(program->kind),
                    (unsigned)(instruction - program->instructions),
                    coh_opcode_name((coh_opcode)instruction->opcode),
                    coh_lane_name((coh_lane)instruction->lane), what);
}

static coh_status check_disk_instruction(const coh_bound *bound, const coh_instruction *instruction)
{
    const coh_operand *from = coh_bound_operand(bound, instruction, COH_SLOT_FROM);
    const coh_operand *to = coh_bound_operand(bound, instruction, COH_SLOT_TO);
    const int is_read = instruction->opcode == COH_OP_READ;
    if ((from->tier == COH_TIER_DISK) != is_read || (to->tier == COH_TIER_DISK) == is_read)
        return refuse(bound->program, instruction, "one end must be the file, the other an arena");
    return COH_OK;
}

/* A visited instruction of a bf16 master must name both of its halves: one chunk each, of the same
 * place. */
static coh_status check_visit(const coh_step *step, const coh_bound *bound,
                              const coh_instruction *instruction)
{
    const coh_layout *layout = step->layout;
    const coh_touch *touches = bound->program->touches;
    const coh_operand *work = coh_bound_operand(bound, instruction, COH_SLOT_VISIT_WORK);
    const coh_operand *state = coh_bound_operand(bound, instruction, COH_SLOT_VISIT_STATES);
    const coh_operand *either = work != NULL ? work : state;
    if (either == NULL)
        return COH_OK;
    const coh_group_layout *group = &layout->groups[layout->objects[either->object].owner];
    if (!coh_group_splits_master(group))
        return COH_OK;
    if (work == NULL || state == NULL || work->touch_count != 1 || state->touch_count != 1 ||
        work->object != group->work || state->object != group->state ||
        touches[state->touch_begin].chunk !=
            coh_chunk_partner(layout, touches[work->touch_begin].chunk, group->state))
        return refuse(bound->program, instruction,
                      "a bf16 master is visited with both of its halves");
    return COH_OK;
}

/* Finds the operands of an instruction's row, and checks those that the row requires. */
static coh_status bind_slots(coh_bound *bound, const coh_instruction *instruction)
{
    const coh_program *program = bound->program;
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    coh_operand_slots *slots = &bound->slots[instruction - program->instructions];
    for (int slot = 0; slot < COH_OPERAND_RULES; slot++) {
        const coh_operand_rule *rule = &row->operands[slot];
        for (uint32_t i = instruction->operand_count; i-- > 0 && rule->accesses != 0;)
            if (program->operands[instruction->operand_begin + i].role == rule->role &&
                i < UINT16_MAX)
                slots->at[slot] = (uint16_t)(i + 1);
        const coh_operand *operand = coh_bound_operand(bound, instruction, slot);
        if ((operand == NULL && (rule->flags & COH_OPERAND_REQUIRED)) ||
            (operand != NULL && (rule->flags & COH_OPERAND_ONE_CHUNK) &&
             operand->touch_count != 1) ||
            (operand != NULL && (rule->flags & COH_OPERAND_NOT_ON_HOST) &&
             instruction->lane == COH_LANE_HOST))
            return refuse(program, instruction,
                          "it lacks an operand of its row, or has one too many");
    }
    return COH_OK;
}

static coh_status check_instruction(const coh_step *step, const coh_bound *bound,
                                    const coh_instruction *instruction)
{
    const coh_program *program = bound->program;
    const coh_opcode_row *row = coh_opcode_row_of(instruction);
    if (instruction->lane >= COH_LANE_COUNT || !((row->lanes >> instruction->lane) & 1))
        return refuse(program, instruction, "the opcode has no such lane");
    if (instruction->call >= 0 && row->form != COH_FORM_CALL)
        return refuse(program, instruction, "calls belong to FORWARD, RECOMPUTE, BACKWARD and ADD");
    if ((row->reads_cells || instruction->predicate_cell != COH_CELL_NONE) &&
        step->layout->cells < 0)
        return refuse(program, instruction, "the layout has no cells");
    if (instruction->lane == COH_LANE_READ || instruction->lane == COH_LANE_WRITE)
        return check_disk_instruction(bound, instruction);
    return row->form == COH_FORM_VISIT ? check_visit(step, bound, instruction) : COH_OK;
}

/* ---- lanes and uses ---- */

static coh_status bind_lanes(const coh_step *step, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->instruction_count, &bound->slots));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        COH_TRY(COH_ALLOC(program->lane_length[lane], &bound->lane_instructions[lane]));
    uint32_t seen[COH_LANE_COUNT] = { 0 };
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->opcode >= COH_OP_COUNT)
            return refuse(program, instruction, "there is no such opcode");
        COH_TRY(bind_slots(bound, instruction));
        COH_TRY(check_instruction(step, bound, instruction));
        if (instruction->ordinal != ++seen[instruction->lane] ||
            instruction->ordinal > program->lane_length[instruction->lane])
            return refuse(program, instruction, "ordinals do not count the lane's instructions");
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

static coh_status bind_extents(const coh_layout *layout, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->extent_count, &bound->goes_on_as));
    COH_TRY(COH_ALLOC(program->extent_count, &bound->comes_from));
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

coh_bound_port coh_bound_port_of(const coh_binding *binding, void *data)
{
    coh_bound_port port = { .role = binding->role, .port = binding->port };
    coh_view *view = &port.view;
    view->data = data;
    view->shape = binding->shape;
    view->origin[0] = binding->origin[0];
    view->origin[1] = binding->origin[1];
    int64_t stride = 1;
    for (int32_t d = binding->shape.rank; d-- > 0;) {
        view->stride[d] = stride;
        stride *= binding->shape.dim[d];
    }
    return port;
}

static coh_status bind_call(const coh_step *step, coh_bound *bound,
                            const coh_instruction *instruction)
{
    const coh_program *program = bound->program;
    const coh_instruction_call *call = &program->calls[instruction->call];
    int is_add = instruction->opcode == COH_OP_ADD;
    if (!is_add && (step->plan->graph == NULL || call->operator_index < 0 ||
                    (size_t)call->operator_index >= step->plan->graph->op_count))
        return refuse(program, instruction, "no such operator");
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &program->bindings[call->binding_begin + i];
        int is_end = binding->role == COH_ROLE_FROM || binding->role == COH_ROLE_TO;
        int is_port = binding->role <= COH_ROLE_WORKSPACE || binding->role == COH_ROLE_LOSS;
        if (binding->operand >= instruction->operand_count || binding->port >= COH_PORT_MAX ||
            !(is_add ? is_end : is_port))
            return refuse(program, instruction, "a binding names nothing that a call has");
        const coh_operand *operand =
            &program->operands[instruction->operand_begin + binding->operand];
        if (binding->object_offset < operand->object_offset)
            return refuse(program, instruction, "a binding begins before its operand");
        uint64_t within = binding->object_offset - operand->object_offset;
        bound->ports[call->binding_begin + i] =
            coh_bound_port_of(binding, (char *)coh_operand_data(step, operand) + within);
    }
    return COH_OK;
}

static coh_status bind_calls(const coh_step *step, coh_bound *bound)
{
    const coh_program *program = bound->program;
    COH_TRY(COH_ALLOC(program->binding_count, &bound->ports));
    for (uint32_t l = 0; l < program->instruction_count; l++) {
        const coh_instruction *instruction = &program->instructions[l];
        const int runs_kind = coh_opcode_calls(instruction->opcode);
        if (runs_kind != (instruction->call >= 0))
            return refuse(program, instruction,
                          "calls belong to FORWARD, RECOMPUTE, BACKWARD and ADD");
        if (runs_kind)
            COH_TRY(bind_call(step, bound, instruction));
    }
    return COH_OK;
}

coh_status coh_bound_init(const coh_step *step, const coh_program *program, coh_bound *out_bound)
{
    *out_bound = (coh_bound){ .program = program };
    COH_TRY(bind_lanes(step, out_bound));
    COH_TRY(bind_uses(out_bound));
    COH_TRY(bind_extents(step->layout, out_bound));
    COH_TRY(bind_unused(out_bound));
    COH_TRY(bind_replaced(step->layout, out_bound));
    COH_TRY(count_versions(step->layout, out_bound));
    COH_TRY(bind_runs(out_bound));
    return bind_calls(step, out_bound);
}

void coh_bound_fini(coh_bound *bound)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(bound->lane_instructions[lane]);
    coh_free(bound->ports);
    coh_free(bound->slots);
    coh_free(bound->uses);
    coh_free(bound->use_begin);
    coh_free(bound->extents[0]);
    coh_free(bound->extents[1]);
    coh_free(bound->goes_on_as);
    coh_free(bound->comes_from);
    coh_free(bound->versions_per_run);
    coh_free(bound->unused);
    coh_free(bound->replaced);
    coh_free(bound->runs);
    coh_free(bound->run_of);
    *bound = (coh_bound){ 0 };
}
