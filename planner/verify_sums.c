/* Checks that each gradient is summed over all ranks once before it is used, and that the losses of
 * all ranks are gathered before CLIP (rule EXACTLY_ONCE). The idea: a chunk goes through 2 n + 1
 * stages, with n axes of the mesh, and every instruction that touches it belongs to one of them:
 *
 *     0        contributions, REDUCE over axis 0
 *     1 ...    REDUCE over axis 1, ...
 *     n        GATHER over axis n - 1
 *     ...      GATHER over axis n - 2, ..., axis 0
 *     2 n      NORM, UPDATE
 *
 * With one rank n is 0. The list of files is in verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

typedef struct sum_book {
    int *stages;                               /* by chunk of GRAD */
    uint32_t last_loss, losses_gathered, clip; /* instructions, from 1; 0: none yet */
} sum_book;

/* Returns the stage of an exchange. */
static int stage_of_exchange(const coh_verifier *v, const coh_instruction *instruction)
{
    const int last = v->layout->mesh.axis_count - 1;
    int axis = 0;
    while (axis < last && v->program->comms[instruction->comm - 1].axes != 1u << axis)
        axis++;
    return instruction->opcode == COH_OP_REDUCE ? axis : 2 * last + 1 - axis;
}

/* Returns the stage at which an instruction may touch a gradient; -1: at any. */
static int stage_of(const coh_verifier *v, const coh_instruction *instruction)
{
    const int last = 2 * v->layout->mesh.axis_count;
    if (instruction->opcode == COH_OP_BACKWARD || instruction->opcode == COH_OP_ADD)
        return 0;
    if (instruction->opcode == COH_OP_UPDATE) /* a deferred one is of the step before */
        return instruction->predicate_cell == COH_CELL_NONE ? last : 0;
    if (instruction->opcode == COH_OP_NORM)
        return last;
    return instruction->comm > 0 ? stage_of_exchange(v, instruction) : -1;
}

static coh_status note_grad(coh_verifier *v, sum_book *book, uint32_t index, uint32_t chunk)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const int stage = stage_of(v, instruction);
    if (stage >= 0 && book->stages[chunk] != stage)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, chunk,
                                  "it is at stage %d of the sum over all ranks, where stage %d is "
                                  "needed",
                                  book->stages[chunk], stage));
    book->stages[chunk] += coh_opcode_communicates(instruction->opcode);
    return COH_OK;
}

static coh_status note_instruction(coh_verifier *v, sum_book *book, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &coh_instruction_operands(v, index)[o];
        const uint8_t stream = v->layout->objects[operand->object].stream;
        for (uint32_t t = 0; stream == COH_STREAM_GRAD && t < operand->touch_count; t++)
            COH_TRY(note_grad(v, book, index, coh_operand_touches(v, operand)[t].chunk));
        if (stream != COH_STREAM_LOSS || !(operand->access & COH_ACCESS_WRITE))
            continue;
        if (!coh_opcode_communicates(instruction->opcode)) {
            book->last_loss = index + 1;
            continue;
        }
        if (book->losses_gathered != 0)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, UINT32_MAX,
                                      "the losses are gathered twice"));
        book->losses_gathered = index + 1;
    }
    if (instruction->opcode == COH_OP_CLIP)
        book->clip = index + 1;
    return COH_OK;
}

static coh_status check_end(coh_verifier *v, const sum_book *book)
{
    const int last = 2 * v->layout->mesh.axis_count;
    for (uint32_t c = 0; c < v->layout->chunk_count; c++)
        if (coh_chunk_object(v, c)->stream == COH_STREAM_GRAD && book->stages[c] != last)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                      "it ends at stage %d of %d of the sum over all ranks",
                                      book->stages[c], last));
    if (last > 0 && book->clip > 0 &&
        (book->losses_gathered < book->last_loss || book->losses_gathered > book->clip ||
         book->losses_gathered == 0))
        return coh_verify_breach(
            v, COH_RULE_EXACTLY_ONCE, book->clip - 1, UINT32_MAX,
            "the losses of all ranks are gathered between the last forward and "
            "CLIP; here in instruction %" PRIu32,
            book->losses_gathered);
    return COH_OK;
}

coh_status coh_verify_sums(coh_verifier *v)
{
    sum_book book = { 0 };
    coh_status status = COH_OK;
    if (v->program->kind != COH_PROGRAM_BODY)
        return COH_OK;
    COH_TRY(COH_ALLOC(v->layout->chunk_count, &book.stages));
    for (uint32_t i = 0; i < v->program->instruction_count && status == COH_OK; i++)
        status = note_instruction(v, &book, i);
    if (status == COH_OK)
        status = check_end(v, &book);
    coh_free(book.stages);
    return status;
}
