#include "tests/planner/mutate.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tests/planner/program_maker.h"

#define PAGE 4096

const char *mutation_name(mutation_kind kind)
{
    static const char *const names[MUTATE_KIND_COUNT] = {
        "drop wait",
        "wait ordinal",
        "wait lane",
        "wait carry",
        "add wait back",
        "add wait ahead",
        "swap",
        "extent offset",
        "relocate",
        "operand offset",
        "object offset",
        "version",
        "mover version",
        "use count",
        "at end",
        "at begin",
        "extent bytes",
        "access",
        "predicate",
        "delete instruction",
        "repeat instruction",
        "retarget",
        "micro-batch",
        "operator",
        "rows",
        "adds",
        "binding",
        "touch extent",
        "resident",
        "peak",
        "budget",
        "wear",
        "lane",
        "depth",
        "dtype",
        "group dtype",
        "no cache",
        "split visit",
    };
    return names[kind];
}

/* ---- copies ---- */

#define COPY_TABLE(to, from, table, count, slack)                                                  \
    do {                                                                                           \
        COH_ALLOC((size_t)(from)->count + (slack), &(to)->table);                                  \
        if ((from)->count > 0)                                                                     \
            memcpy((to)->table, (from)->table, (from)->count * sizeof(*(from)->table));            \
    } while (0)

void copy_mutant(const coh_layout *layout, const coh_program *program,
                 const coh_verify_options *options, mutant *out)
{
    *out = (mutant){ .layout = *layout, .program = *program, .options = *options };
    COPY_TABLE(&out->layout, layout, objects, object_count, 0);
    COPY_TABLE(&out->layout, layout, chunks, chunk_count, 0);
    COPY_TABLE(&out->layout, layout, parameters, parameter_count, 0);
    COPY_TABLE(&out->layout, layout, groups, group_count, 0);
    COPY_TABLE(&out->layout, layout, residents, resident_count, 0);
    COPY_TABLE(&out->layout, layout, input_objects, input_count, 0);
    COPY_TABLE(&out->program, program, extents, extent_count, 0);
    COPY_TABLE(&out->program, program, instructions, instruction_count, 1);
    COPY_TABLE(&out->program, program, operands, operand_count, 64);
    COPY_TABLE(&out->program, program, touches, touch_count, 4096);
    COPY_TABLE(&out->program, program, waits, wait_count, 64);
    COPY_TABLE(&out->program, program, calls, call_count, 0);
    COPY_TABLE(&out->program, program, bindings, binding_count, 0);
    COPY_TABLE(&out->program, program, comms, comm_count, 0);
}

void free_mutant(mutant *m)
{
    coh_program_fini(&m->program);
    coh_layout_fini(&m->layout);
}

/* ---- the list ---- */

/* Chunks to which an operand is turned. */
enum { RETARGETS = 4 };

typedef struct mutation_list {
    mutation *items;
    size_t count, capacity;
} mutation_list;

static void add(mutation_list *list, mutation_kind kind, uint32_t index, int32_t amount)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 256;
        list->items = realloc(list->items, list->capacity * sizeof(mutation));
    }
    list->items[list->count++] = (mutation){ kind, index, amount };
}

static void list_waits(const coh_program *p, mutation_list *list)
{
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (uint32_t w = 0; w < p->instructions[i].wait_count; w++) {
            uint32_t index = p->instructions[i].wait_begin + w;
            add(list, MUTATE_DROP_WAIT, index, (int32_t)i);
            add(list, MUTATE_WAIT_ORDINAL, index, 1);
            add(list, MUTATE_WAIT_ORDINAL, index, -1);
            add(list, MUTATE_WAIT_LANE, index, 1);
            if (p->kind == COH_PROGRAM_BODY || w == 0)
                add(list, MUTATE_WAIT_CARRY, index, 0);
        }
}

/* Does it add the gradient of a replica? */
static int folds(const coh_layout *layout, const coh_program *p, const coh_instruction *instruction)
{
    return instruction->opcode == COH_OP_ADD &&
           layout->objects[p->operands[instruction->operand_begin].object].stream ==
               COH_STREAM_CONTRIBUTION;
}

static void list_instructions(const coh_layout *layout, const coh_program *p, mutation_list *list)
{
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        const coh_instruction *instruction = &p->instructions[i];
        add(list, MUTATE_ADD_WAIT_BACK, i, 0);
        add(list, MUTATE_ADD_WAIT_AHEAD, i, 0);
        add(list, MUTATE_SWAP, i, 0);
        add(list, MUTATE_DELETE, i, 0);
        add(list, MUTATE_REPEAT, i, 0);
        add(list, MUTATE_PREDICATE, i, 0);
        if ((instruction->opcode >= COH_OP_INIT && instruction->opcode <= COH_OP_SAVE) ||
            instruction->opcode == COH_OP_EDIT)
            add(list, MUTATE_SPLIT, i, 0);
        if (instruction->lane != COH_LANE_COMPUTE) {
            add(list, MUTATE_LANE, i, 1);
            add(list, MUTATE_MOVER_VERSION, i, 1);
            add(list, MUTATE_MOVER_VERSION, i, -1);
        }
        if (instruction->opcode == COH_OP_RECOMPUTE)
            for (int32_t k = 0; k < RETARGETS; k++)
                add(list, MUTATE_RETARGET, i, k);
        if (folds(layout, p, instruction))
            for (int32_t k = 0; k < 2 * RETARGETS; k++)
                add(list, MUTATE_RETARGET, i, k);
        if (instruction->call < 0 || instruction->opcode == COH_OP_ADD)
            continue;
        add(list, MUTATE_LOSE, i, COH_ROLE_CACHE);
        add(list, MUTATE_MICROBATCH, i, 1);
        add(list, MUTATE_OPERATOR, i, 1);
        for (int32_t k = 0; k < 3; k++)
            add(list, MUTATE_ROWS, i, k);
        if (instruction->opcode == COH_OP_BACKWARD)
            for (int32_t k = 0; k < 2; k++)
                add(list, MUTATE_ADDS, i, k);
    }
}

static void list_tables(const coh_layout *layout, const coh_program *p, mutation_list *list)
{
    for (uint32_t e = 0; e < p->extent_count; e++) {
        for (int32_t amount = -1; amount <= 1; amount += 2) {
            add(list, MUTATE_EXTENT_OFFSET, e, amount * PAGE);
            add(list, MUTATE_RELOCATE, e, amount * PAGE);
            add(list, MUTATE_RELOCATE, e, amount * 3 * PAGE);
            add(list, MUTATE_USE_COUNT, e, amount);
            add(list, MUTATE_EXTENT_BYTES, e, amount * PAGE);
        }
        add(list, MUTATE_RELOCATE, e, 512);
        add(list, MUTATE_AT_END, e, 0);
        add(list, MUTATE_AT_BEGIN, e, 0);
    }
    for (uint32_t i = 0; i < p->operand_count; i++) {
        add(list, MUTATE_OPERAND_OFFSET, i, PAGE);
        add(list, MUTATE_OBJECT_OFFSET, i, PAGE);
        for (int32_t access = COH_ACCESS_READ; access <= COH_ACCESS_BOTH; access++)
            add(list, MUTATE_ACCESS, i, access);
    }
    for (uint32_t t = 0; t < p->touch_count; t++) {
        add(list, MUTATE_VERSION, t, 1);
        add(list, MUTATE_VERSION, t, -1);
        add(list, MUTATE_TOUCH_EXTENT, t, 0);
    }
    for (uint32_t i = 0; i < p->binding_count; i++) {
        add(list, MUTATE_BINDING, i, 0);
        add(list, MUTATE_DTYPE, i, 0);
    }
    for (uint32_t i = 0; i < layout->group_count; i++)
        add(list, MUTATE_GROUP_DTYPE, i, 0);
    for (uint32_t i = 0; i < p->comm_count; i++)
        for (int32_t member = 0; member < 5; member++)
            add(list, MUTATE_COMM, i, member);
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        add(list, MUTATE_RESIDENT, i, PAGE);
        add(list, MUTATE_RESIDENT, i, 0);
    }
    for (uint32_t tier = 0; tier < COH_TIER_COUNT; tier++) {
        add(list, MUTATE_PEAK, tier, PAGE);
        add(list, MUTATE_PEAK, tier, -PAGE);
        add(list, MUTATE_BUDGET, tier, 0);
    }
    add(list, MUTATE_WEAR, 0, 0);
    add(list, MUTATE_WEAR, 0, -1);
    for (uint32_t lane = 0; lane < COH_LANE_COUNT; lane++) {
        add(list, MUTATE_DEPTH, lane, 1);
        add(list, MUTATE_DEPTH, lane, -1);
    }
}

size_t list_mutations(const coh_layout *layout, const coh_program *program, mutation **out)
{
    mutation_list list = { 0 };
    list_waits(program, &list);
    list_instructions(layout, program, &list);
    list_tables(layout, program, &list);
    *out = list.items;
    return list.count;
}

/* ---- making a changed program consistent again ---- */

static int is_mover(const coh_instruction *instruction)
{
    return instruction->opcode >= COH_OP_LOAD && instruction->opcode <= COH_OP_WRITE;
}

static void count_versions(const coh_layout *layout, coh_program *p)
{
    int32_t *writes = calloc(layout->chunk_count, sizeof(int32_t));
    for (uint32_t i = 0; i < p->instruction_count; i++) {
        const coh_instruction *instruction = &p->instructions[i];
        for (int pass = 0; pass < 2; pass++)
            for (uint32_t o = 0; o < instruction->operand_count; o++) {
                const coh_operand *operand = &p->operands[instruction->operand_begin + o];
                for (uint32_t t = 0; t < operand->touch_count; t++) {
                    coh_touch *touch = &p->touches[operand->touch_begin + t];
                    if (pass == 0)
                        touch->version = writes[touch->chunk];
                    else
                        writes[touch->chunk] +=
                            !is_mover(instruction) && (operand->access & COH_ACCESS_WRITE) != 0;
                }
            }
    }
    free(writes);
}

static void count_uses(coh_program *p)
{
    for (uint32_t e = 0; e < p->extent_count; e++)
        p->extents[e].use_count = 0;
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (uint32_t o = 0; o < p->instructions[i].operand_count; o++) {
            const coh_operand *operand = &p->operands[p->instructions[i].operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++)
                if (p->touches[operand->touch_begin + t].extent != COH_EXTENT_FILE)
                    p->extents[p->touches[operand->touch_begin + t].extent].use_count++;
        }
}

static int make_consistent(const coh_layout *layout, coh_program *p)
{
    memset(p->lane_length, 0, sizeof(p->lane_length));
    for (uint32_t i = 0; i < p->instruction_count; i++)
        p->instructions[i].ordinal = ++p->lane_length[p->instructions[i].lane];
    count_versions(layout, p);
    count_uses(p);
    return p->instruction_count > 0 && make_all_waits(p);
}

/* ---- waits ---- */

/* Adds a wait to instruction i; all its waits are copied to the end of the table. */
static void add_wait(coh_program *p, uint32_t i, coh_wait wait)
{
    coh_instruction *instruction = &p->instructions[i];
    coh_wait *grown = NULL;
    COH_ALLOC((size_t)p->wait_count + instruction->wait_count + 1, &grown);
    memcpy(grown, p->waits, p->wait_count * sizeof(coh_wait));
    memcpy(grown + p->wait_count, p->waits + instruction->wait_begin,
           instruction->wait_count * sizeof(coh_wait));
    coh_free(p->waits);
    p->waits = grown;
    instruction->wait_begin = p->wait_count;
    p->wait_count += instruction->wait_count;
    p->waits[p->wait_count++] = wait;
    instruction->wait_count++;
}

static int change_wait(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    coh_wait *wait = &p->waits[what->index];
    if (what->kind == MUTATE_DROP_WAIT) {
        coh_instruction *instruction = &p->instructions[what->amount];
        *wait = p->waits[instruction->wait_begin + --instruction->wait_count];
        return 1;
    }
    if (what->kind == MUTATE_WAIT_ORDINAL)
        wait->ordinal += (uint32_t)what->amount;
    if (what->kind == MUTATE_WAIT_CARRY)
        wait->carry = !wait->carry;
    if (what->kind == MUTATE_WAIT_LANE) {
        do
            wait->lane = (uint8_t)((wait->lane + 1) % COH_LANE_COUNT);
        while (p->lane_length[wait->lane] == 0);
        if (wait->ordinal > p->lane_length[wait->lane])
            wait->ordinal = p->lane_length[wait->lane];
    }
    return 1;
}

static int add_any_wait(mutant *m, const mutation *what, uint64_t seed)
{
    coh_program *p = &m->program;
    uint32_t i = what->index, ahead = what->kind == MUTATE_ADD_WAIT_AHEAD;
    uint32_t room = ahead ? p->instruction_count - i - 1 : i;
    if (room == 0)
        return 0;
    uint32_t other = (ahead ? i + 1 : 0) + (uint32_t)coh_rng_below(seed, 2, i, room);
    add_wait(p, i, (coh_wait){ p->instructions[other].ordinal, p->instructions[other].lane, 0 });
    return 1;
}

/* ---- instructions ---- */

static int swap_instructions(coh_program *p, uint32_t i)
{
    for (uint32_t j = i + 1; j < p->instruction_count; j++) {
        if (p->instructions[j].lane != p->instructions[i].lane)
            continue;
        coh_instruction a = p->instructions[i], b = p->instructions[j];
        p->instructions[i] = b;
        p->instructions[j] = a;
        p->instructions[i].ordinal = a.ordinal; /* the position keeps its ordinal and key */
        p->instructions[i].position = a.position;
        p->instructions[i].before_after = a.before_after;
        p->instructions[j].ordinal = b.ordinal;
        p->instructions[j].position = b.position;
        p->instructions[j].before_after = b.before_after;
        return 1;
    }
    return 0;
}

static int repeat_instruction(mutant *m, uint32_t i)
{
    coh_program *p = &m->program;
    memmove(&p->instructions[i + 1], &p->instructions[i],
            (p->instruction_count - i) * sizeof(*p->instructions));
    p->instruction_count++;
    coh_instruction *copy = &p->instructions[i + 1];
    uint32_t begin = p->operand_count;
    for (uint32_t o = 0; o < copy->operand_count; o++) {
        coh_operand operand = p->operands[copy->operand_begin + o];
        memcpy(&p->touches[p->touch_count], &p->touches[operand.touch_begin],
               operand.touch_count * sizeof(coh_touch));
        operand.touch_begin = p->touch_count;
        p->touch_count += operand.touch_count;
        p->operands[p->operand_count++] = operand;
    }
    copy->operand_begin = begin;
    return make_consistent(&m->layout, p);
}

/* Splits a visit with two operands into two visits with one each. */
static int split_visit(mutant *m, uint32_t i)
{
    coh_program *p = &m->program;
    if (p->instructions[i].operand_count != 2)
        return 0;
    memmove(&p->instructions[i + 1], &p->instructions[i],
            (p->instruction_count - i) * sizeof(*p->instructions));
    p->instruction_count++;
    p->instructions[i].operand_count = p->instructions[i + 1].operand_count = 1;
    p->instructions[i + 1].operand_begin++;
    return make_consistent(&m->layout, p);
}

/* Removes the operand with that role from a call; later operands move up, and port indices with
 * them. */
static int lose_operand(mutant *m, uint32_t i, int32_t role)
{
    coh_program *p = &m->program;
    coh_instruction *instruction = &p->instructions[i];
    coh_instruction_call *call = &p->calls[instruction->call];
    uint32_t lost = 0, kept = 0, begin = p->operand_count;
    while (lost < instruction->operand_count &&
           p->operands[instruction->operand_begin + lost].role != role)
        lost++;
    if (lost == instruction->operand_count)
        return 0;
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        if (o != lost)
            p->operands[p->operand_count++] = p->operands[instruction->operand_begin + o];
    instruction->operand_begin = begin;
    instruction->operand_count--;
    coh_binding *bindings = &p->bindings[call->binding_begin];
    for (uint32_t b = 0; b < call->binding_count; b++) {
        if (bindings[b].operand == lost)
            continue;
        bindings[kept] = bindings[b];
        bindings[kept++].operand -= bindings[b].operand > lost;
    }
    call->binding_count = kept;
    return make_consistent(&m->layout, p);
}

/* First and last instruction that uses an extent. */
static void span_of(const coh_program *p, uint32_t extent, uint32_t *first, uint32_t *last)
{
    *first = UINT32_MAX;
    *last = 0;
    for (uint32_t i = 0; i < p->instruction_count; i++)
        for (uint32_t o = 0; o < p->instructions[i].operand_count; o++) {
            const coh_operand *operand = &p->operands[p->instructions[i].operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++)
                if (p->touches[operand->touch_begin + t].extent == extent) {
                    *first = i < *first ? i : *first;
                    *last = i;
                }
        }
}

/* Makes the first operand of instruction i name another chunk of the same size: the amount-th
 * one that is in the device tier while instruction i runs. */
static int retarget(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    const coh_instruction *instruction = &p->instructions[what->index];
    const int32_t which = what->amount / RETARGETS;
    coh_operand *operand = &p->operands[instruction->operand_begin + (uint32_t)which];
    coh_touch *touch = &p->touches[operand->touch_begin];
    int32_t left = what->amount % RETARGETS;
    for (uint32_t e = 0; e < p->extent_count && operand->touch_count == 1; e++) {
        uint32_t first = 0, last = 0;
        const coh_extent *extent = &p->extents[e];
        span_of(p, e, &first, &last);
        if (e == touch->extent || extent->tier != COH_TIER_DEVICE ||
            extent->bytes != operand->bytes || first > what->index || last < what->index ||
            left-- > 0)
            continue;
        for (uint32_t o = 0; o < instruction->operand_count; o++)
            if (p->operands[instruction->operand_begin + o].object ==
                m->layout.chunks[extent->chunk].object)
                return 0;
        *touch = (coh_touch){ extent->chunk, e, 0 };
        operand->object = m->layout.chunks[extent->chunk].object;
        operand->object_offset = m->layout.chunks[extent->chunk].object_offset;
        operand->offset = extent->offset;
        p->bindings[p->calls[instruction->call].binding_begin + (uint32_t)which].object_offset =
            operand->object_offset;
        return make_consistent(&m->layout, p);
    }
    return 0;
}

static int change_call(mutant *m, const mutation *what)
{
    coh_instruction_call *call = &m->program.calls[m->program.instructions[what->index].call];
    if (what->kind == MUTATE_MICROBATCH)
        call->microbatch += what->amount;
    if (what->kind == MUTATE_OPERATOR)
        call->operator_index += what->amount;
    if (what->kind == MUTATE_ADDS && what->amount == 0)
        call->parameter_grad_adds ^= 1;
    if (what->kind == MUTATE_ADDS && what->amount == 1)
        call->input_grad_adds ^= 1;
    if (what->kind == MUTATE_ROWS) {
        call->row_begin += what->amount == 0;
        call->row_end += what->amount == 1;
        call->row_count += what->amount == 2;
    }
    int has_port = what->kind != MUTATE_ADDS;
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &m->program.bindings[call->binding_begin + i];
        has_port |=
            binding->port == 0 &&
            binding->role == (what->amount == 0 ? COH_ROLE_PARAMETER_GRAD : COH_ROLE_INPUT_GRAD);
    }
    return has_port; /* a bit without its port has no effect */
}

static int change_instruction(mutant *m, const mutation *what)
{
    coh_program *p = &m->program;
    uint32_t i = what->index;
    coh_instruction *instruction = &p->instructions[i];
    int is_small = p->instruction_count <= 400;
    if (what->kind == MUTATE_SWAP)
        return swap_instructions(p, i);
    if (what->kind == MUTATE_REPEAT)
        return is_small && repeat_instruction(m, i);
    if (what->kind == MUTATE_RETARGET)
        return is_small && retarget(m, what);
    if (what->kind == MUTATE_SPLIT)
        return is_small && split_visit(m, i);
    if (what->kind == MUTATE_LOSE)
        return is_small && lose_operand(m, i, what->amount);
    if (what->kind == MUTATE_DELETE) {
        p->instruction_count--;
        memmove(instruction, instruction + 1, (p->instruction_count - i) * sizeof(*instruction));
        return is_small && make_consistent(&m->layout, p);
    }
    if (what->kind == MUTATE_PREDICATE) {
        instruction->predicate_cell =
            instruction->predicate_cell == COH_CELL_NONE ? COH_CELL_PENDING : COH_CELL_NONE;
        return p->kind == COH_PROGRAM_BODY || instruction->opcode == COH_OP_UPDATE ||
               is_mover(instruction);
    }
    if (what->kind == MUTATE_LANE) { /* to the end of another lane that has instructions */
        uint8_t lane = instruction->lane;
        do
            lane = (uint8_t)((lane + 1) % COH_LANE_COUNT);
        while (p->lane_length[lane] == 0);
        if (lane == instruction->lane || !is_small)
            return 0;
        instruction->lane = lane;
        return make_consistent(&m->layout, p);
    }
    coh_operand *from = &p->operands[instruction->operand_begin];
    p->touches[from[0].touch_begin].version += what->amount;
    p->touches[from[1].touch_begin].version += what->amount;
    return 1;
}

int apply_mutation(mutant *m, const mutation *what, uint64_t seed)
{
    switch (what->kind) {
    case MUTATE_DROP_WAIT:
    case MUTATE_WAIT_ORDINAL:
    case MUTATE_WAIT_LANE:
    case MUTATE_WAIT_CARRY:
        return change_wait(m, what);
    case MUTATE_ADD_WAIT_BACK:
    case MUTATE_ADD_WAIT_AHEAD:
        return add_any_wait(m, what, seed);
    case MUTATE_SWAP:
    case MUTATE_DELETE:
    case MUTATE_REPEAT:
    case MUTATE_RETARGET:
    case MUTATE_SPLIT:
    case MUTATE_LOSE:
    case MUTATE_PREDICATE:
    case MUTATE_LANE:
    case MUTATE_MOVER_VERSION:
        return change_instruction(m, what);
    case MUTATE_MICROBATCH:
    case MUTATE_OPERATOR:
    case MUTATE_ROWS:
    case MUTATE_ADDS:
        return change_call(m, what);
    default:
        return mutate_table(m, what);
    }
}
