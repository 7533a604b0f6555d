/* Moves GATHERs of work, and the deferred updates before them, ahead of earlier calls. Read
 * lower_ahead.h first. */
#include "planner/lower_ahead.h"

#include "base/alloc.h"
#include "planner/opcodes.h"

/* A call, the instructions directly before it that bring its work, and the call that they are to
 * precede. */
typedef struct turn {
    uint32_t first, call; /* instructions [first, call) come with `call` */
    uint32_t before;      /* turn: its own if they cannot move, any if there are none */
} turn;

static int is_call(const coh_lowered_instruction *instruction)
{
    return instruction->opcode == COH_OP_FORWARD || instruction->opcode == COH_OP_RECOMPUTE ||
           instruction->opcode == COH_OP_BACKWARD;
}

static int gathers_work(const coh_layout *layout, const coh_lowered *lowered, uint32_t index)
{
    const coh_lowered_instruction *instruction = &lowered->instructions[index];
    const uint8_t stream =
        layout->objects[lowered->operands[instruction->operand_begin].object].stream;
    return instruction->opcode == COH_OP_GATHER &&
           (stream == COH_STREAM_WORK || stream == COH_STREAM_WORK_PART ||
            stream == COH_STREAM_WORK_COPY);
}

/* Returns 1 for an instruction that may come early with the GATHERs of a call. */
static int comes_along(const coh_layout *layout, const coh_lowered *lowered, uint32_t index)
{
    const coh_lowered_instruction *instruction = &lowered->instructions[index];
    return gathers_work(layout, lowered, index) ||
           (instruction->opcode == COH_OP_UPDATE && instruction->predicate_cell != COH_CELL_NONE);
}

/* Returns 1 if two instructions touch a chunk that one of them writes. */
static int conflict(const coh_lowered *lowered, uint32_t a, uint32_t b)
{
    const coh_lowered_instruction *one = &lowered->instructions[a];
    const coh_lowered_instruction *other = &lowered->instructions[b];
    for (uint32_t i = 0; i < one->operand_count; i++)
        for (uint32_t k = 0; k < other->operand_count; k++) {
            const coh_lowered_operand *x = &lowered->operands[one->operand_begin + i];
            const coh_lowered_operand *y = &lowered->operands[other->operand_begin + k];
            if (x->object == y->object && x->touch_begin < y->touch_end &&
                y->touch_begin < x->touch_end && ((x->access | y->access) & COH_ACCESS_WRITE))
                return 1;
        }
    return 0;
}

/* Returns 1 if instruction `index` may come after all of a turn's instead of before them. */
static int may_pass(const coh_lowered *lowered, const turn *of, uint32_t index)
{
    for (uint32_t i = of->first; i < of->call; i++)
        if (conflict(lowered, i, index))
            return 0;
    return 1;
}

/* Finds the earliest of the `lead` calls before a turn's that its instructions may precede. */
static uint32_t find_place(const coh_lowered *lowered, const turn *turns, uint32_t number, int lead)
{
    const turn *of = &turns[number];
    uint32_t before = number;
    for (uint32_t index = of->first; index > 0 && before > 0 && number - before < (uint32_t)lead;) {
        if (!may_pass(lowered, of, --index))
            break;
        if (index == turns[before - 1].call)
            before--;
    }
    return before;
}

static uint32_t list_turns(const coh_layout *layout, const coh_lowered *lowered, int lead,
                           turn *turns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < lowered->instruction_count; i++) {
        if (!is_call(&lowered->instructions[i]))
            continue;
        turn *of = &turns[count];
        int gathers = 0;
        *of = (turn){ .first = i, .call = i, .before = count };
        while (of->first > 0 && comes_along(layout, lowered, of->first - 1))
            gathers |= gathers_work(layout, lowered, --of->first);
        if (gathers)
            of->before = find_place(lowered, turns, count, lead);
        else
            *of = (turn){ .first = i, .call = i }; /* nothing moves */
        count++;
    }
    return count;
}

/* Writes the new order of instructions. */
static void order_turns(const coh_lowered *lowered, const turn *turns, uint32_t turn_count,
                        uint32_t *order)
{
    uint32_t written = 0, at = 0, next = 0; /* next: turn whose instructions are to be written */
    for (uint32_t t = 0; t < turn_count; t++) {
        for (; at < turns[t].first; at++)
            order[written++] = at;
        /* Turns keep their order: one whose place is earlier waits for those before it. */
        for (; next < turn_count && turns[next].before <= t; next++)
            for (uint32_t i = turns[next].first; i < turns[next].call; i++)
                order[written++] = i;
        order[written++] = turns[t].call;
        at = turns[t].call + 1;
    }
    for (; at < lowered->instruction_count; at++)
        order[written++] = at;
}

coh_status coh_lower_ahead(const coh_layout *layout, int lead, coh_lowered *lowered)
{
    turn *turns = NULL;
    uint32_t *order = NULL;
    coh_status status = COH_OK;
    if (lead == 0 || lowered->comm_count == 0)
        return COH_OK;
    COH_TRY(COH_ALLOC(lowered->instruction_count, &turns));
    COH_TRY_GOTO(status, COH_ALLOC(lowered->instruction_count, &order), done);
    order_turns(lowered, turns, list_turns(layout, lowered, lead, turns), order);
    status = coh_lowered_reorder(order, lowered);
done:
    coh_free(order);
    coh_free(turns);
    return status;
}
