/* Checks that the gradient of each replica is added once, and in the order of the fold shape (rule
 * EXACTLY_ONCE). The idea: run the body on ranges of replicas instead of numbers. A chunk that
 * holds replicas [begin, end) was summed in one way only, because a range grows by whole members of
 * one node, in rising order. The list of files is in verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* The replicas whose gradients a chunk of GRAD, CONTRIBUTION or SCRATCH holds; none at first. */
typedef struct range {
    int32_t begin, end;
} range;

/* Returns 1 if the sums of these replicas may be added to those of `sum`: they are the next member
 * of a node whose first members are in `sum`. */
static int is_next_member(const coh_fold_shape *shape, range sum, range member)
{
    for (int32_t f = 0; f < coh_fold_factor_count(shape); f++) {
        const int32_t unit = coh_fold_unit(shape, f), node = coh_fold_unit(shape, f + 1);
        if (member.end - member.begin == unit && member.begin % unit == 0 &&
            sum.begin % node == 0 && sum.end == member.begin && sum.end > sum.begin &&
            member.end <= sum.begin + node)
            return 1;
    }
    return 0;
}

/* Returns 1 if a port of an ADD takes the whole chunk, as f32. */
static int takes_chunk(const coh_verifier *v, const coh_binding *binding, uint32_t chunk)
{
    const coh_chunk *facts = &v->layout->chunks[chunk];
    return binding->object_offset == facts->object_offset &&
           binding->shape.dtype == COH_DTYPE_F32 && binding->shape.rank == 1 &&
           (uint64_t)binding->shape.dim[0] == facts->bytes / sizeof(float);
}

/* Checks that a fold adds one whole chunk to its partner, the gradient or another contribution. */
static coh_status check_form(coh_verifier *v, uint32_t instruction, uint32_t from, uint32_t to)
{
    const coh_operand *operands = coh_instruction_operands(v, instruction);
    const coh_instruction_call *call =
        &v->program->calls[v->program->instructions[instruction].call];
    const coh_binding *bindings = &v->program->bindings[call->binding_begin];
    const coh_object *sum = coh_chunk_object(v, to);
    const int good = operands[0].touch_count == 1 && operands[1].touch_count == 1 &&
                     operands[1].access == COH_ACCESS_BOTH && call->input_grad_adds == 1 &&
                     (sum->stream == COH_STREAM_GRAD || sum->stream == COH_STREAM_CONTRIBUTION) &&
                     sum->owner == coh_chunk_object(v, from)->owner &&
                     to == coh_partner_chunk(v, from, operands[1].object) &&
                     bindings[0].operand == 0 && bindings[1].operand == 1 &&
                     takes_chunk(v, &bindings[0], from) && takes_chunk(v, &bindings[1], to);
    if (good)
        return COH_OK;
    return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, from,
                             "a contribution is added whole, chunk to chunk of its group");
}

static coh_status note_fold(coh_verifier *v, range *held, uint32_t instruction)
{
    const coh_operand *operands = coh_instruction_operands(v, instruction);
    const uint32_t from = coh_operand_touches(v, &operands[0])[0].chunk;
    const uint32_t to = coh_operand_touches(v, &operands[1])[0].chunk;
    COH_TRY(check_form(v, instruction, from, to));
    if (!is_next_member(&v->layout->fold, held[to], held[from]))
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, to,
                                  "replicas %" PRId32 " to %" PRId32 " are added to %" PRId32
                                  " to %" PRId32 ", which is not their place in the fold shape",
                                  held[from].begin, held[from].end, held[to].begin, held[to].end));
    held[to].end = held[from].end;
    held[from] = (range){ 0 };
    return COH_OK;
}

/* Notes a contribution of one replica to a chunk: the first overwrites, later ones add. */
static coh_status note_contribution(coh_verifier *v, range *held, uint32_t instruction,
                                    uint32_t chunk, range made, int overwrites)
{
    const range before = held[chunk];
    const int is_empty = before.end == before.begin;
    held[chunk] = made;
    if (overwrites ? is_empty : before.begin == made.begin && before.end == made.end)
        return COH_OK;
    return coh_verify_breach(
        v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
        "a contribution of replica %" PRId32 " %s replicas %" PRId32 " to %" PRId32, made.begin,
        overwrites ? "overwrites" : "is added to", before.begin, before.end);
}

/* Notes what a BACKWARD, or an ADD of scratch, writes. */
static coh_status note_writes(coh_verifier *v, range *held, uint32_t instruction)
{
    const coh_instruction *facts = &v->program->instructions[instruction];
    const coh_operand *operands = coh_instruction_operands(v, instruction);
    const int32_t replica =
        coh_layout_replica(v->layout, v->program->calls[facts->call].microbatch);
    range made = { replica, replica + 1 };
    if (facts->opcode == COH_OP_ADD)
        made = held[coh_operand_touches(v, &operands[0])[0].chunk];
    for (uint32_t o = 0; o < facts->operand_count; o++) {
        const uint8_t stream = v->layout->objects[operands[o].object].stream;
        const int is_sum = stream == COH_STREAM_GRAD || stream == COH_STREAM_CONTRIBUTION;
        for (uint32_t t = 0; (operands[o].access & COH_ACCESS_WRITE) && t < operands[o].touch_count;
             t++) {
            const uint32_t chunk = coh_operand_touches(v, &operands[o])[t].chunk;
            if (is_sum)
                COH_TRY(note_contribution(v, held, instruction, chunk, made,
                                          operands[o].access == COH_ACCESS_WRITE));
            else
                held[chunk] = made;
        }
    }
    return COH_OK;
}

/* Checks that in the end each gradient holds all replicas, and nothing waits to be added. */
static coh_status check_end(coh_verifier *v, const range *held)
{
    const int32_t replicas = coh_fold_replicas(&v->layout->fold);
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const coh_object *object = coh_chunk_object(v, c);
        const int is_good = object->stream == COH_STREAM_GRAD
                                ? held[c].begin == 0 && held[c].end == replicas
                            : object->stream == COH_STREAM_CONTRIBUTION ? held[c].end == 0
                                                                        : 1;
        if (!is_good)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                      "it ends with replicas %" PRId32 " to %" PRId32 " of %" PRId32
                                      " in it",
                                      held[c].begin, held[c].end, replicas));
    }
    return COH_OK;
}

static coh_status run(coh_verifier *v, range *held)
{
    for (uint32_t i = 0; i < v->program->instruction_count; i++) {
        const coh_instruction *instruction = &v->program->instructions[i];
        if (coh_verify_is_fold(v, i))
            COH_TRY(note_fold(v, held, i));
        else if (instruction->call >= 0 &&
                 (instruction->opcode == COH_OP_BACKWARD || instruction->opcode == COH_OP_ADD))
            COH_TRY(note_writes(v, held, i));
    }
    return check_end(v, held);
}

coh_status coh_verify_folds(coh_verifier *v)
{
    range *held = NULL;
    if (v->program->kind != COH_PROGRAM_BODY)
        return COH_OK;
    COH_TRY(COH_ALLOC(v->layout->chunk_count, &held));
    const coh_status status = run(v, held);
    coh_free(held);
    return status;
}
