/* Checks that each call runs once per micro-batch and row, in order (rule EXACTLY_ONCE), and that a
 * recomputed forward and a backward see the values of their forward (rule RECOMPUTE). The idea:
 * sort the calls by opcode, operator and micro-batch, and number every value written. The list of
 * files is in verify_state.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* ---- the calls, sorted ---- */

static int compare(const coh_call_entry *a, const coh_call_entry *b)
{
    if (a->opcode != b->opcode)
        return a->opcode < b->opcode ? -1 : 1;
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    return a->instruction < b->instruction ? -1 : a->instruction > b->instruction;
}

static int by_call(const void *a, const void *b)
{
    return compare(a, b);
}

static uint32_t first_not_below(const coh_verifier *v, const coh_call_entry *key)
{
    uint32_t low = 0, high = v->call_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare(&v->calls[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void coh_verify_find_calls(const coh_verifier *v, uint8_t opcode, int32_t op, int32_t microbatch,
                           uint32_t *out_begin, uint32_t *out_end)
{
    coh_call_entry key = { opcode, op, microbatch < 0 ? INT32_MIN : microbatch, 0 };
    *out_begin = first_not_below(v, &key);
    key.microbatch = microbatch < 0 ? INT32_MAX : microbatch;
    key.instruction = UINT32_MAX;
    *out_end = first_not_below(v, &key);
}

static void sort_calls(coh_verifier *v)
{
    const coh_program *program = v->program;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        if (instruction->call < 0 ||
            (instruction->opcode != COH_OP_FORWARD && instruction->opcode != COH_OP_RECOMPUTE &&
             instruction->opcode != COH_OP_BACKWARD))
            continue;
        const coh_instruction_call *call = &program->calls[instruction->call];
        v->calls[v->call_count++] =
            (coh_call_entry){ instruction->opcode, call->operator_index, call->microbatch, i };
    }
    if (v->call_count > 0)
        qsort(v->calls, v->call_count, sizeof(*v->calls), by_call);
}

static const coh_instruction_call *call_of(const coh_verifier *v, uint32_t instruction)
{
    return &v->program->calls[v->program->instructions[instruction].call];
}

/* ---- EXACTLY_ONCE: rows and micro-batches ---- */

/* Returns 1 if an earlier instruction of the round has computed these rows of a RECOMPUTE: they get
 * the same values again. */
static int repeats_rows(const coh_instruction_call *call, int64_t expected)
{
    const int64_t computed = expected == 0 ? call->row_count : expected;
    return call->row_begin != expected && call->row_begin >= 0 && call->row_begin < call->row_end &&
           call->row_end <= computed;
}

static int is_next_range(const coh_instruction_call *call, int64_t expected)
{
    return call->row_begin == expected &&
           (call->row_count == 0
                ? call->row_end == 0
                : call->row_end > call->row_begin && call->row_end <= call->row_count);
}

/* Checks that the instructions calls[begin .. end) cover the rows once, in rising order;
 * RECOMPUTE may cover them several times, and repeat some. */
static coh_status check_rows(coh_verifier *v, uint32_t begin, uint32_t end)
{
    const coh_instruction_call *first = call_of(v, v->calls[begin].instruction);
    int64_t expected = 0;
    uint32_t rounds = 0;
    for (uint32_t i = begin; i < end; i++) {
        const coh_instruction_call *call = call_of(v, v->calls[i].instruction);
        const int may_repeat = v->calls[i].opcode == COH_OP_RECOMPUTE && rounds > 0;
        const int is_alike =
            call->row_count == first->row_count && call->input_grad_adds == first->input_grad_adds;
        if (is_alike && may_repeat && repeats_rows(call, expected))
            continue;
        rounds += call->row_begin == 0;
        if (!is_alike || !is_next_range(call, expected) ||
            (rounds > 1 && v->calls[i].opcode != COH_OP_RECOMPUTE))
            return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, v->calls[i].instruction, UINT32_MAX,
                                     "operator %" PRId32 ", micro-batch %" PRId32 ": rows %" PRId64
                                     " to %" PRId64 " of %" PRId64 " where row %" PRId64
                                     " is next, or a call too many",
                                     v->calls[i].op, v->calls[i].microbatch, call->row_begin,
                                     call->row_end, call->row_count, expected);
        expected = call->row_end == call->row_count ? 0 : call->row_end;
    }
    if (expected != 0)
        return coh_verify_breach(
            v, COH_RULE_EXACTLY_ONCE, v->calls[end - 1].instruction, UINT32_MAX,
            "operator %" PRId32 ", micro-batch %" PRId32 ": rows from %" PRId64 " on are missing",
            v->calls[begin].op, v->calls[begin].microbatch, expected);
    return COH_OK;
}

static int has_role(const coh_verifier *v, uint32_t instruction, coh_role role)
{
    for (uint32_t o = 0; o < v->program->instructions[instruction].operand_count; o++)
        if (coh_instruction_operands(v, instruction)[o].role == role)
            return 1;
    return 0;
}

/* Checks the data that forward passes to backward, and the cells that both draw from: all
 * instructions of a call and of its counterpart have it, or none. An operator without a backward
 * may still save data or draw; a cache would be unused. */
static coh_status check_left(coh_verifier *v, uint32_t begin, uint32_t end, coh_role role)
{
    const char *what = role == COH_ROLE_CACHE   ? "a cache"
                       : role == COH_ROLE_CELLS ? "a cell to draw from"
                                                : "a saved object";
    uint32_t first = 0, last = 0;
    int has = has_role(v, v->calls[begin].instruction, role);
    uint8_t other = v->calls[begin].opcode == COH_OP_BACKWARD ? COH_OP_FORWARD : COH_OP_BACKWARD;
    for (uint32_t i = begin + 1; i < end; i++)
        if (has_role(v, v->calls[i].instruction, role) != has)
            return coh_verify_breach(v, COH_RULE_RECOMPUTE, v->calls[i].instruction, UINT32_MAX,
                                     "some rows of the call have %s and some have not", what);
    if (v->calls[begin].opcode == COH_OP_RECOMPUTE)
        return COH_OK; /* FORM rejects its cache */
    coh_verify_find_calls(v, other, v->calls[begin].op, v->calls[begin].microbatch, &first, &last);
    if (first == last && role != COH_ROLE_CACHE)
        return COH_OK;
    int other_has = first < last && has_role(v, v->calls[first].instruction, role);
    if (has != other_has)
        return coh_verify_breach(v, COH_RULE_RECOMPUTE, v->calls[begin].instruction, UINT32_MAX,
                                 "%s: it has %s, its %s has %s", what, has ? "one" : "none",
                                 coh_opcode_name((coh_opcode)other), other_has ? "one" : "none");
    return COH_OK;
}

/* Checks the micro-batches of one opcode and operator: each once, in order, after their forward.
 * Not all need be recomputed. */
static coh_status check_microbatches(coh_verifier *v, uint32_t begin, uint32_t end)
{
    int32_t expected = 0;
    int32_t count = v->program->kind == COH_PROGRAM_BODY ? (int32_t)v->layout->microbatch_count : 1;
    uint8_t opcode = v->calls[begin].opcode;
    uint32_t last_instruction = 0;
    for (uint32_t i = begin, next; i < end; i = next) {
        for (next = i; next < end && v->calls[next].microbatch == v->calls[i].microbatch;)
            next++;
        uint32_t instruction = v->calls[i].instruction, forward = 0, forward_end = 0;
        int is_next = opcode == COH_OP_RECOMPUTE ? v->calls[i].microbatch >= expected
                                                 : v->calls[i].microbatch == expected;
        if (!is_next || instruction < last_instruction)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, UINT32_MAX,
                                      "operator %" PRId32 ": micro-batch %" PRId32 " where %" PRId32
                                      " is next",
                                      v->calls[i].op, v->calls[i].microbatch, expected));
        expected = v->calls[i].microbatch + 1;
        last_instruction = v->calls[next - 1].instruction;
        COH_TRY(check_rows(v, i, next));
        COH_TRY(check_left(v, i, next, COH_ROLE_SAVED));
        COH_TRY(check_left(v, i, next, COH_ROLE_CACHE));
        COH_TRY(check_left(v, i, next, COH_ROLE_CELLS));
        coh_verify_find_calls(v, COH_OP_FORWARD, v->calls[i].op, v->calls[i].microbatch, &forward,
                              &forward_end);
        if (opcode != COH_OP_FORWARD &&
            (forward == forward_end || v->calls[forward_end - 1].instruction > instruction))
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, UINT32_MAX,
                                      "operator %" PRId32 ", micro-batch %" PRId32
                                      ": it comes before the forward is done",
                                      v->calls[i].op, v->calls[i].microbatch));
    }
    if (opcode == COH_OP_RECOMPUTE ? expected > count : expected != count)
        COH_TRY(coh_verify_breach(
            v, COH_RULE_EXACTLY_ONCE, v->calls[end - 1].instruction, UINT32_MAX,
            "operator %" PRId32 ": the last micro-batch is %" PRId32 ", the step has %" PRId32,
            v->calls[begin].op, expected - 1, count));
    return COH_OK;
}

/* ---- RECOMPUTE: the same values ---- */

/* Each write makes a new value; a RECOMPUTE that matches its FORWARD makes the same value again. */
typedef struct value_table {
    uint32_t *now;            /* by chunk */
    uint32_t *before, *after; /* by touch, of FORWARD instructions */
    uint32_t newest;
} value_table;

/* Gathering work again of which the rank keeps a part makes the same value, as long as the part is
 * the same. Returns 1 if the instruction does so, with that value in *out_value. */
static int gathers_again(const coh_verifier *v, const value_table *values, uint32_t index,
                         uint32_t *out_value)
{
    const coh_operand *window = coh_instruction_operands(v, index);
    if (v->program->instructions[index].opcode != COH_OP_GATHER ||
        v->layout->objects[window->object].stream != COH_STREAM_WORK)
        return 0;
    const uint32_t chunk = coh_operand_touches(v, window)[0].chunk;
    const int32_t part = v->layout->groups[coh_chunk_object(v, chunk)->owner].work_part;
    if (part < 0)
        return 0;
    *out_value = UINT32_MAX - values->now[coh_partner_chunk(v, chunk, part)];
    return 1;
}

static void note_instruction(coh_verifier *v, value_table *values, uint32_t index)
{
    uint32_t gathered = 0;
    const int is_again = gathers_again(v, values, index, &gathered);
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        for (uint32_t t = 0; t < operands[o].touch_count; t++) {
            uint32_t touch = operands[o].touch_begin + t;
            uint32_t *now = &values->now[v->program->touches[touch].chunk];
            values->before[touch] = *now;
            if (operands[o].access & COH_ACCESS_WRITE)
                *now = is_again ? gathered : ++values->newest;
            values->after[touch] = *now;
        }
}

/* Records the touch of the forward instruction that saw each chunk: stamps[chunk] = 1 + touch;
 * or clears the stamps. */
static void stamp_instruction(coh_verifier *v, uint32_t index, int clears)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        for (uint32_t t = 0; t < operands[o].touch_count; t++) {
            uint32_t touch = operands[o].touch_begin + t;
            v->chunk_stamps[v->program->touches[touch].chunk] = clears ? 0 : touch + 1;
        }
}

static uint32_t count_reads(const coh_verifier *v, uint32_t index)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < v->program->instructions[index].operand_count; o++)
        if (coh_instruction_operands(v, index)[o].access & COH_ACCESS_READ)
            count += coh_instruction_operands(v, index)[o].touch_count;
    return count;
}

static coh_status compare_recompute(coh_verifier *v, value_table *values, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    for (uint32_t o = 0; o < instruction->operand_count; o++)
        for (uint32_t t = 0; t < operands[o].touch_count; t++) {
            uint32_t chunk = coh_operand_touches(v, &operands[o])[t].chunk;
            uint32_t seen = v->chunk_stamps[chunk];
            if ((operands[o].access & COH_ACCESS_READ) &&
                (seen == 0 || values->before[seen - 1] != values->now[chunk]))
                COH_TRY(coh_verify_breach(v, COH_RULE_RECOMPUTE, index, chunk, "%s",
                                          seen == 0 ? "its forward does not touch this chunk"
                                                    : "the chunk has changed since its "
                                                      "forward"));
            if (operands[o].access & COH_ACCESS_WRITE)
                values->now[chunk] = seen != 0 ? values->after[seen - 1] : ++values->newest;
        }
    return COH_OK;
}

static coh_status check_recompute(coh_verifier *v, value_table *values, uint32_t index)
{
    const coh_instruction_call *call = call_of(v, index);
    uint32_t i = 0, end = 0;
    coh_verify_find_calls(v, COH_OP_FORWARD, call->operator_index, call->microbatch, &i, &end);
    for (; i < end; i++) {
        const coh_instruction_call *forward = call_of(v, v->calls[i].instruction);
        if (forward->row_begin == call->row_begin && forward->row_end == call->row_end &&
            v->calls[i].instruction < index)
            break;
    }
    if (i >= end || count_reads(v, v->calls[i].instruction) != count_reads(v, index)) {
        note_instruction(v, values, index);
        return coh_verify_breach(
            v, COH_RULE_RECOMPUTE, index, UINT32_MAX,
            "no forward of operator %" PRId32 ", micro-batch %" PRId32 ", rows %" PRId64
            " to %" PRId64 " with as many inputs came before",
            call->operator_index, call->microbatch, call->row_begin, call->row_end);
    }
    stamp_instruction(v, v->calls[i].instruction, 0);
    coh_status status = compare_recompute(v, values, index);
    stamp_instruction(v, v->calls[i].instruction, 1);
    return status;
}

/* Checks the values that a BACKWARD reads. Inputs, parameters and outputs are as its forward saw or
 * left them. The cache and saved objects are as the forward, or its own earlier rows, left them.
 * Random cells are those that the forward drew from. */
static coh_status compare_backward(coh_verifier *v, const value_table *values, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_operand *operands = coh_instruction_operands(v, index);
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        uint8_t role = operands[o].role;
        int leaves = role == COH_ROLE_CACHE || role == COH_ROLE_SAVED;
        int reads = role == COH_ROLE_INPUT || role == COH_ROLE_PARAMETER ||
                    role == COH_ROLE_OUTPUT || role == COH_ROLE_CELLS;
        if (!leaves && (!reads || operands[o].access != COH_ACCESS_READ))
            continue;
        for (uint32_t t = 0; t < operands[o].touch_count; t++) {
            uint32_t chunk = coh_operand_touches(v, &operands[o])[t].chunk;
            uint32_t seen = v->chunk_stamps[chunk];
            if (seen != 0 && values->after[seen - 1] != values->now[chunk])
                COH_TRY(coh_verify_breach(v, COH_RULE_RECOMPUTE, index, chunk,
                                          "the chunk has changed since the forward of this "
                                          "micro-batch"));
        }
    }
    return COH_OK;
}

static coh_status check_backward(coh_verifier *v, const value_table *values, uint32_t index)
{
    const coh_instruction_call *call = call_of(v, index);
    uint32_t begin = 0, end = 0;
    coh_verify_find_calls(v, COH_OP_FORWARD, call->operator_index, call->microbatch, &begin, &end);
    for (uint32_t i = begin; i < end; i++)
        stamp_instruction(v, v->calls[i].instruction, 0);
    uint32_t own = 0, own_end = 0;
    coh_verify_find_calls(v, COH_OP_BACKWARD, call->operator_index, call->microbatch, &own,
                          &own_end);
    for (uint32_t i = own; i < own_end && v->calls[i].instruction < index; i++)
        stamp_instruction(v, v->calls[i].instruction, 0);
    coh_status status = compare_backward(v, values, index);
    for (uint32_t i = begin; i < end; i++)
        stamp_instruction(v, v->calls[i].instruction, 1);
    for (uint32_t i = own; i < own_end && v->calls[i].instruction < index; i++)
        stamp_instruction(v, v->calls[i].instruction, 1);
    return status;
}

static coh_status check_values(coh_verifier *v, value_table *values)
{
    for (uint32_t i = 0; i < v->program->instruction_count; i++) {
        const coh_instruction *instruction = &v->program->instructions[i];
        if (coh_opcode_moves(instruction->opcode))
            continue;
        if (instruction->opcode == COH_OP_RECOMPUTE && instruction->call >= 0) {
            COH_TRY(check_recompute(v, values, i));
            continue;
        }
        if (instruction->opcode == COH_OP_BACKWARD && instruction->call >= 0)
            COH_TRY(check_backward(v, values, i));
        note_instruction(v, values, i);
    }
    return COH_OK;
}

coh_status coh_verify_calls(coh_verifier *v)
{
    sort_calls(v);
    for (uint32_t i = 0, next; i < v->call_count; i = next) {
        for (next = i; next < v->call_count && v->calls[next].opcode == v->calls[i].opcode &&
                       v->calls[next].op == v->calls[i].op;)
            next++;
        COH_TRY(check_microbatches(v, i, next));
    }
    value_table values = { 0 };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->chunk_count, &values.now), done);
    COH_TRY_GOTO(status, COH_ALLOC(v->program->touch_count, &values.before), done);
    COH_TRY_GOTO(status, COH_ALLOC(v->program->touch_count, &values.after), done);
    status = check_values(v, &values);
done:
    coh_free(values.now);
    coh_free(values.before);
    coh_free(values.after);
    return status;
}
