/* Checks that each gradient is summed over all ranks once before it is used, that the work of a
 * divided chunk is gathered after its update and before it is used, and that the losses and norm
 * partials of all ranks are gathered before CLIP (rule EXACTLY_ONCE). The idea: a chunk of gradient
 * goes through 2 n + 1 - s stages, with n axes of the mesh, s of which divide the states, and every
 * instruction that touches it belongs to one of them:
 *
 *     0        contributions, REDUCE over axis 0
 *     1 ...    REDUCE over axis 1, ...
 *     n        GATHER over axis n - 1
 *     ...      GATHER over axis n - 2, ..., axis s
 *     2 n - s  NORM, UPDATE
 *
 * If the rank keeps a part of the sum, divided over g axes, the REDUCE over axis g - 1 makes it
 * once, and it goes on from stage g. Divided work is complete at stage 0, the part of work that is
 * divided over w axes at stage w. Its update puts it at stage s, and a GATHER over axis a from
 * stage a + 1 to a. The whole of work of which a part is kept begins at stage w with the GATHER
 * that takes the complete part, and is of no use after the next update. A copy that is divided over
 * c axes begins at stage w, too, and is complete at stage c; then the whole begins with the GATHER
 * that takes the complete copy. With one rank all stages are 0. The list of files is in
 * verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* A GATHER of what all ranks make for CLIP; instructions, from 1; 0: none yet. */
typedef struct gathering {
    uint32_t last_made, gathered;
} gathering;

typedef struct sum_book {
    int *stages; /* by chunk of gradient or divided work, or of what the rank keeps of it */
    gathering losses, partials;
    uint32_t clip;
    int is_divided; /* a chunk is */
} sum_book;

static const coh_group_layout *group_of(const coh_verifier *v, uint32_t chunk)
{
    return &v->layout->groups[coh_chunk_object(v, chunk)->owner];
}

/* Returns 1 for a chunk of divided work, of the part of it that the rank keeps, or of its copy. */
static int is_divided_work(const coh_verifier *v, uint32_t chunk)
{
    const uint8_t stream = coh_chunk_object(v, chunk)->stream;
    return v->layout->chunks[chunk].is_divided &&
           (stream == COH_STREAM_WORK || stream == COH_STREAM_WORK_PART ||
            stream == COH_STREAM_WORK_COPY);
}

/* The stage of the whole of divided work that is of no use. */
static int stale_stage(const coh_verifier *v)
{
    return v->layout->mesh.axis_count + 1;
}

/* Returns the axis of an exchange of a chunk. */
static int axis_of(const coh_verifier *v, const coh_instruction *instruction)
{
    const int last = v->layout->mesh.axis_count - 1;
    int axis = 0;
    while (axis < last && v->program->comms[instruction->comm - 1].axes != 1u << axis)
        axis++;
    return axis;
}

static int stage_of_exchange(const coh_verifier *v, const coh_instruction *instruction)
{
    const int last = v->layout->mesh.axis_count - 1, axis = axis_of(v, instruction);
    return instruction->opcode == COH_OP_REDUCE ? axis : 2 * last + 1 - axis;
}

/* Returns the stage at which a chunk of gradient is summed. */
static int last_stage(const coh_verifier *v, uint32_t chunk)
{
    return 2 * v->layout->mesh.axis_count - group_of(v, chunk)->axes.state;
}

/* Returns the stage at which an instruction may touch a gradient; -1: at any. */
static int stage_of(const coh_verifier *v, const coh_instruction *instruction, uint32_t chunk)
{
    const int last = last_stage(v, chunk);
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
    const int stage = stage_of(v, instruction, chunk);
    if (stage >= 0 &&
        (book->stages[chunk] != stage || (instruction->comm > 0 && stage == last_stage(v, chunk))))
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, chunk,
                                  "it is at stage %d of the sum over all ranks, where stage %d is "
                                  "needed",
                                  book->stages[chunk], stage));
    book->stages[chunk] += coh_opcode_communicates(instruction->opcode);
    return COH_OK;
}

/* Notes that a REDUCE makes the part of a gradient that the rank keeps. */
static coh_status note_grad_part(coh_verifier *v, sum_book *book, uint32_t index, uint32_t chunk)
{
    if (book->stages[chunk] != 0)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, chunk,
                                  "the sum of this step is there already"));
    book->stages[chunk] = group_of(v, chunk)->axes.grad;
    return COH_OK;
}

/* Notes that an instruction touches a divided chunk of work, or what the rank keeps of it. */
static coh_status note_work(coh_verifier *v, sum_book *book, uint32_t index,
                            const coh_operand *operand, uint32_t chunk)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    const coh_group_layout *group = group_of(v, chunk);
    const int is_part = coh_chunk_object(v, chunk)->stream == COH_STREAM_WORK_PART;
    const int is_copy = coh_chunk_object(v, chunk)->stream == COH_STREAM_WORK_COPY;
    const int has_copy = v->program->kind == COH_PROGRAM_BODY && group->axes.copy > 0;
    const int begins = has_copy && !is_copy ? group->axes.copy : group->axes.work;
    const int gathers =
        coh_opcode_communicates(instruction->opcode) && operand->role != COH_ROLE_PART;
    const int complete = is_part ? group->axes.work : is_copy ? group->axes.copy : 0;
    const int wanted = gathers ? axis_of(v, instruction) + 1 : complete;
    if (coh_opcode_moves(instruction->opcode))
        return COH_OK;
    if (gathers && !is_part && group->axes.work > 0 && wanted == begins)
        book->stages[chunk] = wanted; /* brings the part, or the copy */
    if (book->stages[chunk] != wanted)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, chunk,
                                  "the updated parts are gathered up to stage %d, where stage %d "
                                  "is needed",
                                  book->stages[chunk], wanted));
    book->stages[chunk] -= gathers;
    if (instruction->opcode != COH_OP_UPDATE)
        return COH_OK;
    book->stages[chunk] = group->axes.state;
    if (is_part)
        book->stages[coh_partner_chunk(v, chunk, group->work)] = stale_stage(v);
    if (is_part && group->work_copy >= 0)
        book->stages[coh_partner_chunk(v, chunk, group->work_copy)] = stale_stage(v);
    return COH_OK;
}

/* Notes that an instruction writes losses or partials. */
static coh_status note_made(coh_verifier *v, uint32_t index, const char *what, gathering *of)
{
    if (!coh_opcode_communicates(v->program->instructions[index].opcode)) {
        of->last_made = index + 1;
        return COH_OK;
    }
    if (of->gathered != 0)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, index, UINT32_MAX,
                                  "the %s are gathered twice", what));
    of->gathered = index + 1;
    return COH_OK;
}

static coh_status note_instruction(coh_verifier *v, sum_book *book, uint32_t index)
{
    const coh_instruction *instruction = &v->program->instructions[index];
    for (uint32_t o = 0; o < instruction->operand_count; o++) {
        const coh_operand *operand = &coh_instruction_operands(v, index)[o];
        const uint8_t stream = v->layout->objects[operand->object].stream;
        for (uint32_t t = 0; t < operand->touch_count; t++) {
            const uint32_t chunk = coh_operand_touches(v, operand)[t].chunk;
            const int is_body = v->program->kind == COH_PROGRAM_BODY;
            if (stream == COH_STREAM_GRAD_PART && is_body && operand->role == COH_ROLE_PART)
                COH_TRY(note_grad_part(v, book, index, chunk));
            else if ((stream == COH_STREAM_GRAD || stream == COH_STREAM_GRAD_PART) && is_body)
                COH_TRY(note_grad(v, book, index, chunk));
            else if (is_divided_work(v, chunk))
                COH_TRY(note_work(v, book, index, operand, chunk));
        }
        if (operand->access & COH_ACCESS_WRITE && stream == COH_STREAM_LOSS)
            COH_TRY(note_made(v, index, "losses", &book->losses));
        if (operand->access & COH_ACCESS_WRITE && stream == COH_STREAM_PARTIALS)
            COH_TRY(note_made(v, index, "norm partials", &book->partials));
    }
    if (instruction->opcode == COH_OP_CLIP)
        book->clip = index + 1;
    return COH_OK;
}

/* Checks that what CLIP reads was gathered after all ranks had made it. */
static coh_status check_gathering(coh_verifier *v, const sum_book *book, const char *what,
                                  const gathering *of)
{
    if (of->gathered >= of->last_made && of->gathered <= book->clip && of->gathered != 0)
        return COH_OK;
    return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, book->clip - 1, UINT32_MAX,
                             "the %s of all ranks are gathered between the instruction that "
                             "makes the last of them and CLIP; here in instruction %" PRIu32,
                             what, of->gathered);
}

/* Returns the stage at which a chunk ends the program; -1: at any. */
static int stage_at_end(const coh_verifier *v, uint32_t chunk)
{
    const uint8_t stream = coh_chunk_object(v, chunk)->stream;
    const int is_body = v->program->kind == COH_PROGRAM_BODY;
    if (stream == COH_STREAM_GRAD && is_body && group_of(v, chunk)->axes.grad > 0)
        return group_of(v, chunk)->axes.grad;
    if ((stream == COH_STREAM_GRAD || stream == COH_STREAM_GRAD_PART) && is_body)
        return last_stage(v, chunk);
    if (!is_divided_work(v, chunk))
        return -1;
    if (stream == COH_STREAM_WORK_PART)
        return group_of(v, chunk)->axes.work;
    return group_of(v, chunk)->axes.work > 0 ? -1 : 0;
}

/* Returns the stage at which a chunk begins the program. */
static int stage_at_begin(const coh_verifier *v, uint32_t chunk)
{
    if (!is_divided_work(v, chunk) || group_of(v, chunk)->axes.work == 0)
        return 0;
    return coh_chunk_object(v, chunk)->stream == COH_STREAM_WORK_PART
               ? group_of(v, chunk)->axes.work
               : stale_stage(v);
}

static coh_status check_end(coh_verifier *v, const sum_book *book)
{
    const int is_body = v->program->kind == COH_PROGRAM_BODY;
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const int last = stage_at_end(v, c);
        if (last >= 0 && book->stages[c] != last)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                      "it ends at stage %d of the sum or the gathering over all "
                                      "ranks, not at %d",
                                      book->stages[c], last));
    }
    if (!is_body || v->layout->mesh.axis_count == 0 || book->clip == 0)
        return COH_OK;
    if (book->is_divided)
        COH_TRY(check_gathering(v, book, "norm partials", &book->partials));
    return check_gathering(v, book, "losses", &book->losses);
}

coh_status coh_verify_sums(coh_verifier *v)
{
    sum_book book = { 0 };
    coh_status status = COH_OK;
    COH_TRY(COH_ALLOC(v->layout->chunk_count, &book.stages));
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        book.is_divided |= v->layout->chunks[c].is_divided;
        book.stages[c] = stage_at_begin(v, c);
    }
    for (uint32_t i = 0; i < v->program->instruction_count && status == COH_OK; i++)
        status = note_instruction(v, &book, i);
    if (status == COH_OK)
        status = check_end(v, &book);
    coh_free(book.stages);
    return status;
}
