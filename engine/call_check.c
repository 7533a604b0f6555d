/* Runs the calls of a step on guarded copies, in memory of their own between pages without access
 * (guard.h), so that a wrong write changes nothing of the engine. A port that the phase reads is
 * compared with its original; a port that it writes is copied back. Ports that share bytes share a
 * copy. Next: call_check.h. */
#include "engine/call_check.h"

#include <string.h>

#include "base/check.h"
#include "engine/op_check.h"

enum {
    PORTS_MOST = 64,
    CONSTANTS = 3,
    COPIES_MOST = PORTS_MOST + CONSTANTS,
    BYTE = COH_TRIAL_SMALL_BYTE
};

/* One copy, for all ports that share its original; or of attributes or a cell. */
typedef struct copy {
    void *original;
    coh_shape shape; /* rank 0: bytes without elements */
    coh_trial_role role;
    int32_t port;
    int is_written;
} copy;

/* The copies of a call, by ascending addresses. */
typedef struct copies {
    copy of[COPIES_MOST];
    coh_guarded guarded[COPIES_MOST];
    size_t count;
    char *end; /* of their rooms */
} copies;

/* Saved, cache and workspace have bytes, not elements. */
static size_t bytes_of(const coh_graph_op_entry *op, coh_phase phase, const coh_bound_port *port)
{
    switch ((coh_role)port->role) {
    case COH_ROLE_SAVED:
        return op->facts.saved_bytes;
    case COH_ROLE_CACHE:
        return op->facts.cache_bytes;
    case COH_ROLE_WORKSPACE:
        return (size_t)op->workspace_bytes[COH_DEVICE_HOST][phase];
    default:
        return (size_t)coh_dtype_array_bytes(port->view.shape.dtype,
                                             (uint64_t)coh_shape_elements(&port->view.shape));
    }
}

static int is_written(const coh_op_kind *kind, coh_phase phase, const coh_bound_port *port)
{
    switch ((coh_role)port->role) {
    case COH_ROLE_OUTPUT:
    case COH_ROLE_LOSS:
    case COH_ROLE_STATE:
        return phase == COH_PHASE_FORWARD;
    case COH_ROLE_SAVED:
        return phase == COH_PHASE_FORWARD || kind->row_split_parameters != 0;
    case COH_ROLE_OUTPUT_GRAD:
        return (int)(kind->overwrites_output_grads >> port->port & 1u);
    case COH_ROLE_INPUT_GRAD:
    case COH_ROLE_PARAMETER_GRAD:
    case COH_ROLE_CACHE:
    case COH_ROLE_WORKSPACE:
        return 1;
    default:
        return 0;
    }
}

static coh_trial_role trial_role(coh_role role)
{
    switch (role) {
    case COH_ROLE_INPUT:
        return COH_TRIAL_INPUT;
    case COH_ROLE_PARAMETER:
        return COH_TRIAL_PARAMETER;
    case COH_ROLE_STATE:
        return COH_TRIAL_STATE;
    case COH_ROLE_OUTPUT_GRAD:
        return COH_TRIAL_OUTPUT_GRAD;
    case COH_ROLE_INPUT_GRAD:
        return COH_TRIAL_INPUT_GRAD;
    case COH_ROLE_PARAMETER_GRAD:
        return COH_TRIAL_PARAMETER_GRAD;
    case COH_ROLE_SAVED:
        return COH_TRIAL_SAVED;
    case COH_ROLE_WORKSPACE:
        return COH_TRIAL_WORKSPACE;
    case COH_ROLE_CACHE:
        return COH_TRIAL_CACHE;
    default:
        return COH_TRIAL_OUTPUT;
    }
}

/* ---- memory ---- */

static size_t attributes_bytes(const coh_graph_op_entry *op)
{
    return op->attribute_bytes + COH_ATTRIBUTES_GROWTH;
}

/* Returns the room of the attributes and of the cells. */
static size_t constants_room(const coh_graph_op_entry *op)
{
    return coh_guard_room(attributes_bytes(op)) + coh_guard_room(sizeof(coh_random_cell)) +
           coh_guard_room(sizeof(float));
}

static size_t program_room(const coh_graph *graph, const coh_graph *small,
                           const coh_program *program)
{
    size_t most = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->call < 0 || program->calls[instruction->call].operator_index < 0)
            continue;
        const coh_instruction_call *call = &program->calls[instruction->call];
        const coh_phase phase =
            instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
        const coh_graph_op_entry *op = &graph->ops[call->operator_index];
        size_t room = constants_room(op);
        if (small != NULL && constants_room(&small->ops[call->operator_index]) > room)
            room = constants_room(&small->ops[call->operator_index]);
        for (uint32_t p = 0; p < call->binding_count; p++) {
            const coh_bound_port port =
                coh_bound_port_of(&program->bindings[call->binding_begin + p], NULL);
            room += coh_guard_room(bytes_of(op, phase, &port));
        }
        most = room > most ? room : most;
    }
    return most;
}

coh_status coh_call_check_init(const coh_plan *plan, const coh_graph *small,
                               coh_call_check *out_check)
{
    size_t most = 0;
    *out_check = (coh_call_check){ 0 };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const size_t room = program_room(plan->graph, small, &plan->programs[kind]);
        most = room > most ? room : most;
    }
    return coh_guarded_memory_init(coh_guard_room_all(most), &out_check->memory);
}

void coh_call_check_fini(coh_call_check *check)
{
    coh_guarded_memory_fini(&check->memory);
}

/* ---- calls ---- */

/* Copies `bytes` of the original, unless a copy of it exists. Returns the copy. */
static void *take(copies *all, copy what, size_t bytes)
{
    size_t i = 0;
    while (i < all->count && all->of[i].original != what.original)
        i++;
    if (i == all->count) {
        all->of[all->count++] = what;
        all->end = coh_guard_place(all->end, bytes, BYTE, &all->guarded[i]);
        memcpy(all->guarded[i].data, what.original, bytes);
    }
    all->of[i].is_written |= what.is_written;
    return all->guarded[i].data;
}

/* Copies a constant of the call, unless it is NULL. */
static const void *take_constant(copies *all, coh_trial_role role, const void *original,
                                 size_t bytes)
{
    const copy what = { .original = (void *)(uintptr_t)original, .role = role };
    return original != NULL ? take(all, what, bytes) : NULL;
}

static void take_constants(const coh_checked_call *checked, copies *all, coh_call *call)
{
    call->attributes =
        take_constant(all, COH_TRIAL_ATTRIBUTES, call->attributes, attributes_bytes(checked->op));
    call->random_cell =
        take_constant(all, COH_TRIAL_RANDOM_CELL, call->random_cell, sizeof(*call->random_cell));
    call->loss_factor_cell = take_constant(all, COH_TRIAL_LOSS_FACTOR_CELL, call->loss_factor_cell,
                                           sizeof(*call->loss_factor_cell));
}

/* Makes the copies, and passes them to the call. */
static void copy_in(coh_call_check *check, const coh_checked_call *checked, copies *all,
                    coh_call *call)
{
    all->count = 0;
    all->end = check->memory.data + COH_GUARD_MARGIN;
    take_constants(checked, all, call);
    for (uint32_t i = 0; i < checked->port_count; i++) {
        coh_bound_port port = checked->ports[i];
        const coh_trial_role role = trial_role((coh_role)port.role);
        const int has_elements =
            role < COH_TRIAL_SAVED && coh_dtype_bytes(port.view.shape.dtype) > 0;
        const copy what = { .original = port.view.data,
                            .shape = has_elements ? port.view.shape : (coh_shape){ 0 },
                            .role = role,
                            .port = port.port,
                            .is_written = is_written(&checked->op->kind, checked->phase, &port) };
        port.view.data = take(all, what, bytes_of(checked->op, checked->phase, &port));
        coh_call_set_port(call, &port);
    }
    coh_guard_add_margins(all->guarded, all->count);
    for (size_t i = 0; i < all->count; i++)
        coh_guard_fill(&all->guarded[i]);
}

/* Refuses the call for a change at `offset` of copy `index`. */
static coh_status refuse(const coh_checked_call *checked, const copies *all, size_t index,
                         int64_t offset, coh_op_fault fault)
{
    char sentence[COH_OP_SENTENCE_BYTES], name[COH_OP_PORT_BYTES], before[16];
    const copy *c = &all->of[index];
    const coh_trial_buffer buffer = { .shape = c->shape };
    const int64_t bytes = c->shape.rank > 0 ? (int64_t)coh_dtype_bytes(c->shape.dtype) : 1;
    const int64_t element = offset >= 0 ? offset / bytes : -((-offset + bytes - 1) / bytes);
    const int is_inside = fault == COH_OP_FAULT_WRITES_INPUT;
    memset(before, BYTE, sizeof(before));
    const coh_trial_place place = {
        .phase = checked->phase,
        .role = c->role,
        .port = c->port,
        .element = element,
        .expected =
            coh_trial_number(&buffer, is_inside ? c->original : before, is_inside ? element : 0),
        .got = coh_trial_number(&buffer, all->guarded[index].data, element),
    };
    coh_op_sentence(fault, &place, coh_op_write_cause(fault, c->role), name, sentence);
    return coh_fail(COH_ERR_ARGUMENT, "%s", sentence);
}

/* Looks at all guards, since a write that leaves one buffer may reach the next ones; then at copies
 * that are only read. Then copies back what the phase writes. */
static coh_status copy_out(const coh_checked_call *checked, const copies *all)
{
    size_t index;
    int64_t offset = 0;
    if (coh_guard_find(all->guarded, all->count, &index, &offset))
        return refuse(checked, all, index, offset, COH_OP_FAULT_WRITES_OUTSIDE);
    for (index = 0; index < all->count; index++) {
        const coh_guarded *guarded = &all->guarded[index];
        const char *original = all->of[index].original;
        if (all->of[index].is_written || memcmp(guarded->data, original, guarded->bytes) == 0)
            continue;
        while (guarded->data[offset] == original[offset])
            offset++;
        return refuse(checked, all, index, offset, COH_OP_FAULT_WRITES_INPUT);
    }
    for (index = 0; index < all->count; index++)
        if (all->of[index].is_written)
            memcpy(all->of[index].original, all->guarded[index].data, all->guarded[index].bytes);
    return COH_OK;
}

coh_status coh_call_check_run(coh_call_check *check, const coh_checked_call *checked,
                              coh_kind_function function, coh_call *call)
{
    copies all;
    if (checked->port_count > PORTS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "%u ports of a call, at most %d are checked",
                        checked->port_count, PORTS_MOST);
    copy_in(check, checked, &all, call);
    COH_TRY(function(call));
    return copy_out(checked, &all);
}
