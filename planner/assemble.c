/* Writes a program from the placed instructions and moves of its levels. The idea: every move
 * has a key (before or after a step), so one merge in key order gives a topological issue order.
 * Interface: assemble.h; waits are added later by waits.c. */
#include "planner/assemble.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/effort.h"

/* ---- key order ---- */

/* 2 * step if it is before the step, 2 * step + 1 if after it. */
static int64_t key_of(const coh_move *move)
{
    return 2 * (int64_t)move->step + (move->is_out ? 1 : 0);
}

/* Lists the indices of a residency's moves in key order; equal keys in the order of decision. Keys
 * are as dense as steps, so they are counted. */
static coh_status sort_moves(const coh_residency *residency, uint32_t **out_order)
{
    enum { LEAST_KEY = -2 };
    uint32_t *place = NULL; /* by key: of its next move; first, one key later, the count of moves */
    int64_t most = LEAST_KEY;
    for (size_t i = 0; i < residency->move_count; i++)
        most = key_of(&residency->moves[i]) > most ? key_of(&residency->moves[i]) : most;
    const size_t keys = (size_t)(most - LEAST_KEY) + 1;
    COH_TRY(COH_ALLOC(keys + 1, &place));
    const coh_status status = COH_ALLOC(residency->move_count, out_order);
    for (size_t i = 0; i < residency->move_count; i++)
        place[key_of(&residency->moves[i]) - LEAST_KEY + 1]++;
    for (size_t key = 0; key < keys; key++)
        place[key + 1] += place[key];
    for (size_t i = 0; status == COH_OK && i < residency->move_count; i++)
        (*out_order)[place[key_of(&residency->moves[i]) - LEAST_KEY]++] = (uint32_t)i;
    coh_free(place);
    return status;
}

/* ---- the next level out ---- */

typedef struct outer_writer {
    const coh_assembly *a;
    coh_outer_list *list;
    size_t begin_capacity, operand_capacity, version_capacity, at_capacity;
    uint32_t operand_count;
} outer_writer;

static coh_status add_outer_operand(outer_writer *w, coh_lowered_operand operand, int32_t version)
{
    coh_outer_list *list = w->list;
    COH_TRY(coh_effort_check_count((uint64_t)w->operand_count + 1, COH_UNIT_OPERANDS));
    COH_TRY(COH_EXTEND(&list->operands, &w->operand_capacity, w->operand_count + 1));
    COH_TRY(COH_EXTEND(&list->versions, &w->version_capacity, w->operand_count + 1));
    list->operands[w->operand_count] = operand;
    list->versions[w->operand_count++] = version;
    return COH_OK;
}

/* Ends a step, which precedes step `at` of the device level. */
static coh_status end_step(outer_writer *w, uint32_t at)
{
    coh_outer_list *list = w->list;
    COH_TRY(COH_EXTEND(&list->operand_begin, &w->begin_capacity, list->count + 2));
    COH_TRY(COH_EXTEND(&list->at, &w->at_capacity, list->count + 1));
    list->at[list->count] = at;
    list->operand_begin[0] = 0;
    list->operand_begin[++list->count] = w->operand_count;
    return COH_OK;
}

static coh_status add_move_step(outer_writer *w, const coh_move *move)
{
    const coh_layout *layout = w->a->layout;
    int32_t object = layout->chunks[move->chunk].object;
    uint32_t k = move->chunk - layout->objects[object].chunk_begin;
    const coh_lowered_operand operand = { .object = object,
                                          .touch_begin = k,
                                          .touch_end = k + 1,
                                          .window_begin = k,
                                          .window_end = k + 1,
                                          .access =
                                              move->is_out ? COH_ACCESS_WRITE : COH_ACCESS_READ };
    COH_TRY(add_outer_operand(w, operand, move->version));
    return end_step(w, (uint32_t)(move->step + (move->is_out ? 1 : 0)));
}

/* Adds the operands of a host-lane instruction, as operands of the tier where they lie. */
static coh_status add_instruction_step(outer_writer *w, uint32_t step)
{
    for (uint32_t i = w->a->operand_begin[step]; i < w->a->operand_begin[step + 1]; i++) {
        coh_lowered_operand operand = w->a->lowered->operands[i];
        uint32_t touch = w->a->device->placings[i].touch_begin;
        operand.is_far = 0;
        COH_TRY(add_outer_operand(w, operand, w->a->device->touch_versions[touch]));
    }
    return end_step(w, step);
}

static coh_status add_steps(outer_writer *w, const uint32_t *order)
{
    const coh_residency *device = w->a->device;
    uint32_t next = 0;
    COH_TRY(COH_EXTEND(&w->list->operand_begin, &w->begin_capacity, 1));
    w->list->operand_begin[0] = 0;
    for (uint32_t step = 0; step < w->a->lowered->instruction_count; step++) {
        if (w->a->lowered->instructions[step].lane != COH_LANE_HOST)
            continue;
        for (; next < device->move_count &&
               key_of(&device->moves[order[next]]) < 2 * (int64_t)step + 1;
             next++)
            COH_TRY(add_move_step(w, &device->moves[order[next]]));
        COH_TRY(add_instruction_step(w, step));
    }
    for (; next < device->move_count; next++)
        COH_TRY(add_move_step(w, &device->moves[order[next]]));
    return COH_OK;
}

coh_status coh_outer_list_make(const coh_assembly *assembly, coh_outer_list *out_list)
{
    outer_writer w = { .a = assembly, .list = out_list };
    uint32_t *order = NULL;
    *out_list = (coh_outer_list){ 0 };
    coh_status status = sort_moves(assembly->device, &order);
    if (status == COH_OK)
        status = add_steps(&w, order);
    coh_free(order);
    return status;
}

void coh_outer_list_fini(coh_outer_list *list)
{
    coh_free(list->operand_begin);
    coh_free(list->operands);
    coh_free(list->versions);
    coh_free(list->at);
    *list = (coh_outer_list){ 0 };
}

/* ---- writing instructions ---- */

typedef struct writer {
    const coh_assembly *a;
    coh_program *program;
    uint32_t *device_order, *host_order;
    uint32_t device_next, host_next;    /* next indices in those orders */
    uint32_t outer_step, outer_operand; /* steps and operands of the host level already written */
    uint64_t instructions, operands,
        touches; /* room of the program's tables, to be filled exactly */
} writer;

static void add_instruction(writer *w, coh_opcode opcode, coh_lane lane, uint32_t position,
                            int before_after)
{
    coh_program *p = w->program;
    p->instructions[p->instruction_count++] =
        (coh_instruction){ .opcode = (uint8_t)opcode,
                           .lane = (uint8_t)lane,
                           .before_after = (uint8_t)before_after,
                           .predicate_cell = COH_CELL_NONE,
                           .ordinal = ++p->lane_length[lane],
                           .position = position,
                           .operand_begin = p->operand_count,
                           .call = -1 };
}

static void add_operand(writer *w, coh_operand operand)
{
    coh_program *p = w->program;
    operand.touch_begin = p->touch_count;
    p->operands[p->operand_count++] = operand;
    p->instructions[p->instruction_count - 1].operand_count++;
}

/* Adds the next touch to the newest operand. */
static void add_touch(writer *w, uint32_t chunk, uint32_t extent, int32_t version)
{
    coh_program *p = w->program;
    p->touches[p->touch_count++] =
        (coh_touch){ .chunk = chunk, .extent = extent, .version = version };
    coh_operand *operand = &p->operands[p->operand_count - 1];
    operand->touch_count++;
    operand->bytes += w->a->layout->chunks[chunk].bytes;
}

/* Adds one end of a mover: a whole chunk in an arena or in the file. */
static void add_mover_end(writer *w, uint32_t chunk, coh_tier tier, uint32_t extent,
                          uint64_t offset, int32_t version, int is_to)
{
    const coh_chunk *facts = &w->a->layout->chunks[chunk];
    add_operand(w, (coh_operand){ .object = facts->object,
                                  .tier = (uint8_t)tier,
                                  .access = is_to ? COH_ACCESS_WRITE : COH_ACCESS_READ,
                                  .role = is_to ? COH_ROLE_TO : COH_ROLE_FROM,
                                  .object_offset = facts->object_offset,
                                  .offset = offset });
    add_touch(w, chunk, extent, version);
}

/* The position of a step in a program: 0 is the begin, step s is s + 1. */
static uint32_t position_of(int32_t step)
{
    return (uint32_t)(step + 1);
}

/* Writes a move between `near` and the tier beyond: the disk, or a place in the host tier given by
 * extent and offset. */
static void move_instruction(writer *w, const coh_move *move, uint32_t near_extent,
                             coh_tier far_tier, uint32_t far_extent, uint64_t far_offset,
                             uint32_t position)
{
    const coh_extent *near = &w->program->extents[near_extent];
    int with_disk = far_tier == COH_TIER_DISK;
    coh_opcode opcode = with_disk ? (move->is_out ? COH_OP_WRITE : COH_OP_READ)
                                  : (move->is_out ? COH_OP_STORE : COH_OP_LOAD);
    coh_lane lane = with_disk ? (move->is_out ? COH_LANE_WRITE : COH_LANE_READ)
                              : (move->is_out ? COH_LANE_D2H : COH_LANE_H2D);
    add_instruction(w, opcode, lane, position, move->is_out ? 2 : 0);
    w->program->instructions[w->program->instruction_count - 1].bytes = near->bytes;
    coh_tier near_tier = (coh_tier)near->tier;
    if (move->is_out) {
        add_mover_end(w, move->chunk, near_tier, near_extent, near->offset, move->version, 0);
        add_mover_end(w, move->chunk, far_tier, far_extent, far_offset, move->version, 1);
        return;
    }
    add_mover_end(w, move->chunk, far_tier, far_extent, far_offset, move->version, 0);
    add_mover_end(w, move->chunk, near_tier, near_extent, near->offset, move->version, 1);
}

static void disk_instruction(writer *w, const coh_move *move, uint32_t extent, uint32_t position)
{
    move_instruction(w, move, extent, COH_TIER_DISK, COH_EXTENT_FILE,
                     w->a->layout->chunks[move->chunk].file_offset, position);
}

/* Writes the host level's moves with keys below `key_end` (in steps of the host level). */
static void host_moves_until(writer *w, int64_t key_end, uint32_t position)
{
    const coh_residency *host = w->a->host;
    while (host != NULL && w->host_next < host->move_count &&
           key_of(&host->moves[w->host_order[w->host_next]]) < key_end) {
        const coh_move *move = &host->moves[w->host_order[w->host_next++]];
        disk_instruction(w, move, (uint32_t)w->a->device->extent_count + move->extent, position);
    }
}

/* Writes the device level's moves with keys below `key_end`, each with the host level's moves
 * around it. */
static void device_moves_until(writer *w, int64_t key_end)
{
    const coh_residency *device = w->a->device;
    while (w->device_next < device->move_count &&
           key_of(&device->moves[w->device_order[w->device_next]]) < key_end) {
        const coh_move *move = &device->moves[w->device_order[w->device_next++]];
        uint32_t position = position_of(move->step);
        if (w->a->host == NULL) {
            disk_instruction(w, move, move->extent, position);
            continue;
        }
        int64_t host_step = w->outer_step++;
        host_moves_until(w, 2 * host_step + 1, position);
        const coh_placing *placing = &w->a->host->placings[w->outer_operand++];
        uint32_t far_extent =
            (uint32_t)device->extent_count + w->a->host->touch_extents[placing->touch_begin];
        move_instruction(w, move, move->extent, COH_TIER_HOST, far_extent, placing->offset,
                         position);
        host_moves_until(w, 2 * host_step + 2, position);
    }
}

/* Adds a lowered operand to the newest instruction: its place in `tier`, according to `level`.
 * `takes`: see coh_operand. */
static void add_lowered_operand(writer *w, const coh_lowered_operand *operand, coh_tier tier,
                                const coh_residency *level, const coh_placing *placing,
                                uint8_t takes)
{
    const coh_layout *layout = w->a->layout;
    uint32_t first = layout->objects[operand->object].chunk_begin + operand->touch_begin;
    uint32_t first_extent = tier == COH_TIER_HOST ? (uint32_t)w->a->device->extent_count : 0;
    add_operand(w, (coh_operand){ .object = operand->object,
                                  .takes = takes,
                                  .tier = (uint8_t)tier,
                                  .access = operand->access,
                                  .role = operand->role,
                                  .object_offset = layout->chunks[first].object_offset,
                                  .offset = placing->offset });
    for (uint32_t k = 0; k < operand->touch_end - operand->touch_begin; k++)
        add_touch(w, first + k, first_extent + level->touch_extents[placing->touch_begin + k],
                  level->touch_versions[placing->touch_begin + k]);
}

/* Writes a lowered instruction on its lane. Its operands lie on the device, or all of them in
 * the host tier, where the instruction is a step between the moves of that level. */
static void lowered_instruction(writer *w, uint32_t step)
{
    const coh_lowered_instruction *instruction = &w->a->lowered->instructions[step];
    int is_host = instruction->lane == COH_LANE_HOST;
    int64_t host_step = w->outer_step;
    uint32_t position = position_of((int32_t)step);
    w->outer_step += is_host ? 1 : 0;
    if (is_host)
        host_moves_until(w, 2 * host_step + 1, position);
    add_instruction(w, instruction->opcode, instruction->lane, position, 1);
    coh_instruction *out = &w->program->instructions[w->program->instruction_count - 1];
    out->predicate_cell = instruction->predicate_cell;
    out->call = instruction->call;
    out->comm = instruction->comm;
    out->flops = instruction->flops;
    out->bytes = instruction->bytes;
    for (uint32_t i = w->a->operand_begin[step]; i < w->a->operand_begin[step + 1]; i++) {
        const coh_lowered_operand *operand = &w->a->lowered->operands[i];
        const coh_residency *level = is_host ? w->a->host : w->a->device;
        const coh_placing *placing = &level->placings[is_host ? w->outer_operand++ : i];
        const coh_placing *taken = /* of the device: only there is anything in place */
            operand->takes > 0 ? &level->placings[w->a->operand_begin[step] + operand->takes - 1]
                               : NULL;
        add_lowered_operand(w, operand, is_host ? COH_TIER_HOST : COH_TIER_DEVICE, level, placing,
                            taken != NULL && taken->offset == placing->offset ? operand->takes : 0);
    }
    if (is_host)
        host_moves_until(w, 2 * host_step + 2, position);
}

/* ---- the whole ---- */

/* Allocates the tables that instructions are written to. A move is an instruction with two operands
 * of one touch each. */
static coh_status size_tables(writer *w)
{
    const coh_residency *device = w->a->device, *host = w->a->host;
    const coh_lowered *lowered = w->a->lowered;
    const uint64_t moves = device->move_count + (host != NULL ? host->move_count : 0);
    w->instructions = lowered->instruction_count + moves;
    w->operands = lowered->operand_count + 2 * moves;
    w->touches = device->touch_count + 2 * moves;
    COH_TRY(coh_effort_check_count(w->instructions, COH_UNIT_INSTRUCTIONS));
    COH_TRY(coh_effort_check_count(w->operands, COH_UNIT_OPERANDS));
    COH_TRY(coh_effort_check_count(w->touches, COH_UNIT_CHUNK_USES));
    COH_TRY(COH_ALLOC(w->instructions, &w->program->instructions));
    COH_TRY(COH_ALLOC(w->operands, &w->program->operands));
    return COH_ALLOC(w->touches, &w->program->touches);
}

/* Moves the extents of both levels into the program, before its larger tables are allocated. */
static coh_status take_extents(writer *w)
{
    coh_residency *device = w->a->device, *host = w->a->host;
    size_t count = device->extent_count + (host != NULL ? host->extent_count : 0);
    COH_TRY(coh_effort_check_count(count, COH_UNIT_EXTENTS));
    COH_TRY(COH_ALLOC(count, &w->program->extents));
    if (device->extent_count > 0)
        memcpy(w->program->extents, device->extents, device->extent_count * sizeof(coh_extent));
    coh_free(device->extents);
    device->extents = NULL;
    if (host != NULL && host->extent_count > 0)
        memcpy(w->program->extents + device->extent_count, host->extents,
               host->extent_count * sizeof(coh_extent));
    if (host != NULL) {
        coh_free(host->extents);
        host->extents = NULL;
    }
    w->program->extent_count = (uint32_t)count;
    w->program->peak_bytes[COH_TIER_DEVICE] = device->peak_bytes;
    w->program->peak_bytes[COH_TIER_HOST] = host != NULL ? host->peak_bytes : 0;
    return COH_OK;
}

/* Moves a table of the lowered program into the program. */
#define TAKE(lowered, list, count, capacity, to, to_count)                                         \
    do {                                                                                           \
        COH_FIT(&(lowered)->list, &(lowered)->capacity, (lowered)->count);                         \
        (to) = (lowered)->list;                                                                    \
        (to_count) = (uint32_t)(lowered)->count;                                                   \
        (lowered)->list = NULL;                                                                    \
        (lowered)->count = (lowered)->capacity = 0;                                                \
    } while (0)

static void take_calls(writer *w)
{
    coh_lowered *lowered = w->a->lowered;
    coh_program *p = w->program;
    TAKE(lowered, calls, call_count, call_capacity, p->calls, p->call_count);
    TAKE(lowered, bindings, binding_count, binding_capacity, p->bindings, p->binding_count);
    TAKE(lowered, comms, comm_count, comm_capacity, p->comms, p->comm_count);
}

/* Writes all instructions, which fill the tables to the last entry. */
static coh_status write_instructions(writer *w)
{
    const coh_program *p = w->program;
    uint32_t step_count = (uint32_t)w->a->lowered->instruction_count;
    host_moves_until(w, 0, 0); /* after the begin */
    for (uint32_t step = 0; step < step_count; step++) {
        device_moves_until(w, 2 * (int64_t)step + 1);
        lowered_instruction(w, step);
    }
    device_moves_until(w, INT64_MAX);
    host_moves_until(w, INT64_MAX, step_count + 1);
    if (p->instruction_count == w->instructions && p->operand_count == w->operands &&
        p->touch_count == w->touches)
        return COH_OK;
    return coh_fail(COH_ERR_INTERNAL,
                    "a program has %" PRIu32 " instructions, %" PRIu32 " operands and %" PRIu32
                    " chunk uses; its tables were made for %" PRIu64 ", %" PRIu64 " and %" PRIu64,
                    p->instruction_count, p->operand_count, p->touch_count, w->instructions,
                    w->operands, w->touches);
}

coh_status coh_assemble(const coh_assembly *assembly, coh_program *out_program)
{
    writer w = { .a = assembly, .program = out_program };
    coh_status status = COH_OK;
    out_program->kind = assembly->lowered->kind;
    COH_TRY_GOTO(status, sort_moves(assembly->device, &w.device_order), done);
    if (assembly->host != NULL)
        COH_TRY_GOTO(status, sort_moves(assembly->host, &w.host_order), done);
    COH_TRY_GOTO(status, take_extents(&w), done);
    take_calls(&w);
    COH_TRY_GOTO(status, size_tables(&w), done);
    status = write_instructions(&w);
done:
    coh_free(w.device_order);
    coh_free(w.host_order);
    return status;
}
