/* Checks that each trained chunk gets its gradient, norm and update once and in order (rule
 * EXACTLY_ONCE), and that INIT, IMPORT, SAVE, HASH and EDIT visit every chunk once
 * (CONSISTENT_SAVE). The idea: one pass records the first and last instruction of each duty per
 * chunk. The list of files is in verify_state.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* The duties of one chunk of trained parameters; instructions count from 1, 0: none. */
typedef struct chunk_duty {
    uint32_t first_write, last_write; /* of its gradient */
    uint32_t norm, norm_count;
    uint32_t update, update_count;
    uint32_t first_use, last_use; /* of its work, by a call */
} chunk_duty;

typedef struct once_book {
    chunk_duty *duties; /* by chunk of work */
    uint32_t clip, feed, settle, last_call, last_compute, first_compute;
} once_book;

static uint32_t work_chunk(const coh_verifier *v, uint32_t chunk)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    return coh_partner_chunk(v, chunk, v->layout->groups[object->owner].work);
}

static int is_trained(const coh_verifier *v, uint32_t chunk)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    return object->stream == COH_STREAM_WORK &&
           v->layout->groups[object->owner].work == v->layout->chunks[chunk].object &&
           v->layout->groups[object->owner].grad >= 0;
}

/* ---- opcodes that a program may have, and instructions that may write parameters ---- */

static int may_contain(coh_program_kind kind, uint8_t opcode)
{
    return (coh_opcode_rows[opcode].programs >> kind) & 1;
}

static int may_write(const coh_object *object, uint8_t opcode)
{
    return (coh_opcode_rows[opcode].writes >> object->stream) & 1;
}

/* ---- one pass over the instructions ---- */

/* Returns 1 if the instruction sums squares of a gradient: a NORM, or an UPDATE that also does
 * so. */
static int makes_partials(const coh_verifier *v, uint32_t instruction)
{
    const coh_instruction *facts = &v->program->instructions[instruction];
    int writes = 0;
    for (uint32_t o = 0; o < facts->operand_count; o++)
        writes |= coh_instruction_operands(v, instruction)[o].object == v->layout->partials &&
                  (coh_instruction_operands(v, instruction)[o].access & COH_ACCESS_WRITE);
    return writes && coh_opcode_rows[facts->opcode].sums_norm;
}

/* Records that an instruction writes or reads a gradient chunk. */
static coh_status note_grad(coh_verifier *v, once_book *book, uint32_t instruction, uint32_t chunk,
                            const coh_operand *operand)
{
    chunk_duty *duty = &book->duties[work_chunk(v, chunk)];
    uint8_t opcode = v->program->instructions[instruction].opcode;
    if (makes_partials(v, instruction)) {
        duty->norm = instruction + 1;
        duty->norm_count++;
    }
    if (!(operand->access & COH_ACCESS_WRITE) ||
        (opcode != COH_OP_BACKWARD && opcode != COH_OP_ADD))
        return COH_OK;
    int is_first = duty->first_write == 0;
    if (is_first != (operand->access == COH_ACCESS_WRITE))
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                  is_first
                                      ? "the first contribution of a step adds to what was there"
                                      : "a later contribution overwrites the earlier ones"));
    if (is_first)
        duty->first_write = instruction + 1;
    duty->last_write = instruction + 1;
    return COH_OK;
}

static coh_status note_touch(coh_verifier *v, once_book *book, uint32_t instruction, uint32_t chunk,
                             const coh_operand *operand)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    uint8_t opcode = v->program->instructions[instruction].opcode;
    if (!coh_stream_is_of_group(object->stream))
        return COH_OK;
    if ((operand->access & COH_ACCESS_WRITE) && !may_write(object, opcode))
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                  "a %s may not write this stream",
                                  coh_opcode_name((coh_opcode)opcode)));
    if (object->stream == COH_STREAM_GRAD || object->stream == COH_STREAM_GRAD_PART)
        return note_grad(v, book, instruction, chunk, operand);
    if ((object->stream != COH_STREAM_WORK && object->stream != COH_STREAM_WORK_PART) ||
        !is_trained(v, work_chunk(v, chunk)))
        return COH_OK;
    chunk_duty *duty = &book->duties[work_chunk(v, chunk)];
    if (opcode == COH_OP_UPDATE) {
        duty->update = instruction + 1;
        duty->update_count++;
    } else if (operand->role == COH_ROLE_PARAMETER) {
        duty->first_use = duty->first_use == 0 ? instruction + 1 : duty->first_use;
        duty->last_use = instruction + 1;
    }
    return COH_OK;
}

/* Returns 1 if an update of a chunk of work takes its chunk of states, or none if its group keeps
 * no states. */
static int takes_states(const coh_verifier *v, uint32_t work, uint32_t state, uint32_t count)
{
    if (v->layout->groups[coh_chunk_object(v, work)->owner].state < 0)
        return count == 0;
    return count == 1 && work_chunk(v, state) == work;
}

/* The stream that a part is of. */
static uint8_t whole_stream(uint8_t stream)
{
    return stream == COH_STREAM_WORK_PART || stream == COH_STREAM_WORK_COPY ? COH_STREAM_WORK
           : stream == COH_STREAM_GRAD_PART                                 ? COH_STREAM_GRAD
                                                                            : stream;
}

/* Returns 1 for a chunk of the object that keeps the work of a trained group. */
static int is_kept_work(const coh_verifier *v, uint32_t chunk)
{
    const coh_group_layout *group = &v->layout->groups[coh_chunk_object(v, chunk)->owner];
    const int32_t kept = group->work_part >= 0 ? group->work_part : group->work;
    return group->grad >= 0 && v->layout->chunks[chunk].object == kept;
}

/* Returns 1 for a chunk of the object that has a group's gradient, summed over all ranks. */
static int is_summed_grad(const coh_verifier *v, uint32_t chunk)
{
    const coh_group_layout *group = &v->layout->groups[coh_chunk_object(v, chunk)->owner];
    return v->layout->chunks[chunk].object ==
           (group->grad_part >= 0 ? group->grad_part : group->grad);
}

/* Checks that an UPDATE has one chunk of work, its gradient and its states, and reads the cells;
 * with a predicate it runs a step later and makes no partials. */
static coh_status check_update(coh_verifier *v, uint32_t instruction)
{
    uint32_t found[3] = { UINT32_MAX, UINT32_MAX, UINT32_MAX }, count[3] = { 0 }, cells = 0;
    for (uint32_t o = 0; o < v->program->instructions[instruction].operand_count; o++) {
        const coh_operand *operand = &coh_instruction_operands(v, instruction)[o];
        const uint8_t stream = whole_stream(v->layout->objects[operand->object].stream);
        cells += stream == COH_STREAM_CELLS && operand->access == COH_ACCESS_READ;
        if (stream > COH_STREAM_STATE)
            continue;
        found[stream] = coh_operand_touches(v, operand)[0].chunk;
        count[stream] += operand->touch_count;
        if (operand->access != (stream == COH_STREAM_GRAD ? COH_ACCESS_READ : COH_ACCESS_BOTH))
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, found[stream],
                                      "an update has access %d to its %s", operand->access,
                                      coh_stream_name((coh_stream)stream)));
    }
    if (count[0] != 1 || count[1] != 1 || cells != 1 || !is_kept_work(v, found[0]) ||
        !is_summed_grad(v, found[1]) || work_chunk(v, found[1]) != work_chunk(v, found[0]) ||
        !takes_states(v, work_chunk(v, found[0]), found[2], count[2]))
        return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, found[0],
                                 "an update takes one chunk of work, its gradient, its states and "
                                 "the cells; this one does not");
    if (v->program->instructions[instruction].predicate_cell != COH_CELL_NONE &&
        makes_partials(v, instruction))
        return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, found[0],
                                 "a deferred update overwrites the partials of the next step");
    return COH_OK;
}

static coh_status note_instruction(coh_verifier *v, once_book *book, uint32_t instruction)
{
    uint8_t opcode = v->program->instructions[instruction].opcode;
    int saves = v->program->kind == COH_PROGRAM_SAVE || v->program->kind == COH_PROGRAM_HASH;
    if (!may_contain(v->program->kind, opcode))
        COH_TRY(coh_verify_breach(v, saves ? COH_RULE_CONSISTENT_SAVE : COH_RULE_EXACTLY_ONCE,
                                  instruction, UINT32_MAX, "a %s program has no such instruction",
                                  coh_program_kind_name(v->program->kind)));
    if (coh_opcode_moves(opcode))
        return COH_OK;
    if (book->first_compute == 0)
        book->first_compute = instruction + 1;
    book->last_compute = instruction + 1;
    uint32_t *once = opcode == COH_OP_FEED     ? &book->feed
                     : opcode == COH_OP_CLIP   ? &book->clip
                     : opcode == COH_OP_SETTLE ? &book->settle
                                               : NULL;
    if (once != NULL && *once != 0)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, UINT32_MAX,
                                  "instruction %" PRIu32 " is one already", *once - 1));
    if (once != NULL)
        *once = instruction + 1;
    if (opcode == COH_OP_FORWARD || opcode == COH_OP_BACKWARD || opcode == COH_OP_ADD ||
        makes_partials(v, instruction))
        book->last_call = instruction + 1;
    if (opcode == COH_OP_UPDATE)
        COH_TRY(check_update(v, instruction));
    for (uint32_t o = 0; o < v->program->instructions[instruction].operand_count; o++) {
        const coh_operand *operand = &coh_instruction_operands(v, instruction)[o];
        for (uint32_t t = 0; t < operand->touch_count; t++)
            COH_TRY(note_touch(v, book, instruction, coh_operand_touches(v, operand)[t].chunk,
                               operand));
    }
    return COH_OK;
}

/* ---- each trained chunk of a body, of a drain ---- */

static coh_status check_body_update(coh_verifier *v, const once_book *book, uint32_t chunk)
{
    const chunk_duty *duty = &book->duties[chunk];
    uint32_t instruction = duty->update - 1;
    int predicate = v->program->instructions[instruction].predicate_cell;
    if (duty->update < duty->first_write) { /* deferred: belongs to the step before */
        if (predicate != COH_CELL_PENDING || duty->update > duty->first_use ||
            duty->update > book->clip)
            COH_TRY(
                coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                  "a deferred update needs `pending`, a CLIP after it, and comes "
                                  "before the first use in instruction %" PRIu32,
                                  duty->first_use - 1));
    } else if (predicate != COH_CELL_NONE || duty->update < duty->last_write ||
               duty->update < duty->last_use) {
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                  "an update in backward has no predicate and comes after the last "
                                  "contribution (instruction %" PRIu32
                                  ") and use (instruction %" PRIu32 ")",
                                  duty->last_write - 1, duty->last_use - 1));
    }
    return COH_OK;
}

static coh_status check_body(coh_verifier *v, const once_book *book)
{
    int deferred = 0, direct = 0;
    if (book->feed == 0 || book->feed != book->first_compute)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, UINT32_MAX,
                                  "a body begins with a FEED"));
    if (book->clip != 0 && book->clip < book->last_call)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, book->clip - 1, UINT32_MAX,
                                  "instruction %" PRIu32 " still computes after it",
                                  book->last_call - 1));
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const chunk_duty *duty = &book->duties[c];
        if (!is_trained(v, c))
            continue;
        if (duty->first_write == 0)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                      "its gradient gets no contribution"));
        uint32_t norms = book->clip != 0; /* without a CLIP nothing reads them */
        if (duty->norm_count != norms || (norms > 0 && duty->norm < duty->last_write))
            COH_TRY(
                coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                  "it has %" PRIu32 " norms, the last in instruction %" PRIu32
                                  ", for %" PRIu32 " CLIP; its gradient is final after instruction "
                                  "%" PRIu32,
                                  duty->norm_count, duty->norm - 1, norms, duty->last_write - 1));
        if (duty->update_count != 1)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, c,
                                      "it is updated %" PRIu32 " times a step",
                                      duty->update_count));
        if (duty->update == 0)
            continue;
        deferred |= duty->update < duty->first_write;
        direct |= duty->update >= duty->first_write;
        COH_TRY(check_body_update(v, book, c));
    }
    if (deferred && direct)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, UINT32_MAX,
                                  "some updates are deferred and some are not"));
    return COH_OK;
}

static coh_status check_drain(coh_verifier *v, const once_book *book)
{
    if (book->settle == 0 || book->settle != book->last_compute)
        COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, UINT32_MAX,
                                  "a drain ends with a SETTLE"));
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const chunk_duty *duty = &book->duties[c];
        if (!is_trained(v, c))
            continue;
        if (duty->update_count != 1 ||
            v->program->instructions[duty->update - 1].predicate_cell != COH_CELL_PENDING)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE,
                                      duty->update > 0 ? duty->update - 1 : COH_NO_INSTRUCTION, c,
                                      "a drain updates each chunk once, if `pending`; this one "
                                      "%" PRIu32 " times",
                                      duty->update_count));
    }
    return COH_OK;
}

/* ---- programs that visit chunks: INIT, IMPORT, SAVE, HASH, EDIT ---- */

/* Returns 1 for a chunk of work whose states SAVE and HASH take from the object `gathered`. */
static int has_gathered_states(const coh_verifier *v, uint32_t chunk)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    return (v->program->kind == COH_PROGRAM_SAVE || v->program->kind == COH_PROGRAM_HASH) &&
           object->stream == COH_STREAM_WORK && v->layout->chunks[chunk].is_divided &&
           v->layout->groups[object->owner].state >= 0;
}

/* Returns the chunk of states that a version of the object `gathered` holds; UINT32_MAX: none. */
static uint32_t held_at(const coh_verifier *v, const uint32_t *held, int32_t version)
{
    return version > 0 && (uint32_t)version <= v->program->instruction_count ? held[version - 1]
                                                                             : UINT32_MAX;
}

/* Lists by version what the object `gathered` holds: a GATHER that finds version n makes n + 1. */
static void list_held(const coh_verifier *v, uint32_t *held)
{
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        held[i] = UINT32_MAX;
    for (uint32_t i = 0; i < v->program->instruction_count; i++) {
        const coh_operand *operands = coh_instruction_operands(v, i);
        if (!coh_opcode_communicates(v->program->instructions[i].opcode) ||
            v->program->instructions[i].operand_count != 2 ||
            operands[1].object != v->layout->gathered)
            continue;
        const int32_t version = coh_operand_touches(v, &operands[1])[0].version;
        if (version >= 0 && (uint32_t)version < v->program->instruction_count)
            held[version] = coh_operand_touches(v, &operands[0])[0].chunk;
    }
}

/* Checks the SAVE or HASH of a chunk of work whose states were gathered. `held`: see
 * list_held. */
static coh_status check_gathered_visit(coh_verifier *v, uint32_t instruction, coh_rule rule,
                                       uint32_t chunk, const uint32_t *held)
{
    const coh_operand *operands = coh_instruction_operands(v, instruction);
    const int32_t state = v->layout->groups[coh_chunk_object(v, chunk)->owner].state;
    if (v->program->instructions[instruction].operand_count == 2 && operands[0].touch_count == 1 &&
        operands[1].object == v->layout->gathered && operands[1].access == COH_ACCESS_READ &&
        held_at(v, held, coh_operand_touches(v, &operands[1])[0].version) ==
            coh_partner_chunk(v, chunk, state))
        return COH_OK;
    return coh_verify_breach(v, rule, instruction, chunk,
                             "it does not take the states that were gathered for it");
}

/* Checks that an instruction visits one chunk; of a bf16 group with states a chunk of work
 * together with its states, since each holds half of the master. */
static coh_status check_visit(coh_verifier *v, uint32_t instruction, coh_rule rule,
                              const uint32_t *held)
{
    const coh_operand *operands = coh_instruction_operands(v, instruction);
    uint32_t count = v->program->instructions[instruction].operand_count;
    uint32_t chunk = count > 0 ? coh_operand_touches(v, &operands[0])[0].chunk : 0;
    if (count > 0 && has_gathered_states(v, chunk))
        return check_gathered_visit(v, instruction, rule, chunk, held);
    const coh_object *object = coh_chunk_object(v, chunk);
    const coh_group_layout *group =
        whole_stream(object->stream) <= COH_STREAM_STATE ? &v->layout->groups[object->owner] : NULL;
    int is_split = group != NULL && group->dtype == COH_DTYPE_BF16 && group->optimizer >= 0 &&
                   !v->layout->optimizers[group->optimizer]->rounds_work &&
                   whole_stream(object->stream) != COH_STREAM_GRAD;
    int good = count == (is_split ? 2u : 1u) && operands[0].touch_count == 1;
    if (good && is_split)
        good = whole_stream(object->stream) == COH_STREAM_WORK &&
               operands[0].role == COH_ROLE_WORK && operands[1].role == COH_ROLE_OPTIMIZER_STATE &&
               operands[1].touch_count == 1 &&
               coh_operand_touches(v, &operands[1])[0].chunk ==
                   coh_partner_chunk(v, chunk, group->state);
    if (!good)
        return coh_verify_breach(v, rule, instruction, chunk, "%s",
                                 is_split ? "it does not take work and states, where the halves of "
                                            "the master lie"
                                          : "it visits more or less than one chunk");
    return COH_OK;
}

/* Counts in chunk_stamps the compute instructions of the given opcodes that touch each chunk. The
 * states of a divided chunk are visited by their GATHER. */
static coh_status count_visits(coh_verifier *v, uint32_t opcodes, int access, coh_rule rule,
                               const uint32_t *held)
{
    for (uint32_t i = 0; i < v->program->instruction_count; i++) {
        const coh_instruction *instruction = &v->program->instructions[i];
        if (!coh_opcode_communicates(instruction->opcode) && !coh_opcode_moves(instruction->opcode))
            COH_TRY(check_visit(v, i, rule, held));
        for (uint32_t o = 0;
             !coh_opcode_moves(instruction->opcode) && o < instruction->operand_count; o++) {
            const coh_operand *operand = &coh_instruction_operands(v, i)[o];
            for (uint32_t t = 0; t < operand->touch_count; t++) {
                uint32_t chunk = coh_operand_touches(v, operand)[t].chunk;
                v->chunk_stamps[chunk] +=
                    ((opcodes >> instruction->opcode) & 1) &&
                    (!coh_opcode_communicates(instruction->opcode) ||
                     operand->access == COH_ACCESS_READ); /* not what it gathers */
                if (coh_chunk_object(v, chunk)->survives && operand->access != access)
                    COH_TRY(
                        coh_verify_breach(v, rule, i, chunk, "its access is %d", operand->access));
            }
        }
    }
    return COH_OK;
}

/* Checks that each surviving chunk of `streams` is visited once, by a program that only reads only
 * if this rank owns it; of gradients all or none. */
static coh_status check_visits(coh_verifier *v, uint32_t opcodes, int access, coh_rule rule,
                               int streams)
{
    uint32_t *held = NULL; /* by version of the object `gathered` */
    COH_TRY(COH_ALLOC(v->program->instruction_count, &held));
    list_held(v, held);
    const coh_status counted = count_visits(v, opcodes, access, rule, held);
    coh_free(held);
    COH_TRY(counted);
    for (uint32_t c = 0; c < v->layout->chunk_count; c++)
        if (v->chunk_stamps[c] > 0 && coh_chunk_object(v, c)->survives)
            streams |= 1 << coh_chunk_object(v, c)->stream &
                       (1 << COH_STREAM_GRAD | 1 << COH_STREAM_GRAD_PART);
    for (uint32_t c = 0; c < v->layout->chunk_count; c++) {
        const coh_object *object = coh_chunk_object(v, c);
        uint32_t count = v->chunk_stamps[c];
        v->chunk_stamps[c] = 0;
        const int is_gathered = access == COH_ACCESS_READ && object->stream == COH_STREAM_WORK &&
                                v->layout->groups[object->owner].work_part >= 0;
        if ((!object->survives && !is_gathered) || object->pinned ||
            !((streams >> object->stream) & 1))
            continue;
        const int32_t owner = v->layout->chunks[c].owner_rank;
        const uint32_t expected = access != COH_ACCESS_READ || owner == v->layout->rank;
        if (count != expected)
            COH_TRY(coh_verify_breach(v, rule, COH_NO_INSTRUCTION, c,
                                      "it is visited %" PRIu32 " times, not %" PRIu32
                                      ": this is rank %" PRId32 ", its owner rank %" PRId32,
                                      count, expected, v->layout->rank, owner));
    }
    return COH_OK;
}

coh_status coh_verify_save(coh_verifier *v)
{
    if (v->program->kind != COH_PROGRAM_SAVE && v->program->kind != COH_PROGRAM_HASH)
        return COH_OK;
    uint32_t opcode = v->program->kind == COH_PROGRAM_SAVE ? COH_OP_SAVE : COH_OP_HASH;
    return check_visits(v, 1u << opcode | 1u << COH_OP_GATHER, COH_ACCESS_READ,
                        COH_RULE_CONSISTENT_SAVE,
                        1 << COH_STREAM_WORK | 1 << COH_STREAM_WORK_PART | 1 << COH_STREAM_STATE);
}

/* ---- all of it ---- */

static coh_status check_program(coh_verifier *v, once_book *book)
{
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        COH_TRY(note_instruction(v, book, i));
    switch (v->program->kind) {
    case COH_PROGRAM_BODY:
        return check_body(v, book);
    case COH_PROGRAM_DRAIN:
        return check_drain(v, book);
    case COH_PROGRAM_EVALUATE:
        if (book->feed != book->first_compute)
            return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, UINT32_MAX,
                                     "an evaluation begins with a FEED");
        return COH_OK;
    case COH_PROGRAM_INIT:
    case COH_PROGRAM_IMPORT:
        return check_visits(v, 1u << COH_OP_INIT | 1u << COH_OP_IMPORT, COH_ACCESS_WRITE,
                            COH_RULE_EXACTLY_ONCE, -1);
    case COH_PROGRAM_EDIT:
        return check_visits(v, 1u << COH_OP_EDIT, COH_ACCESS_BOTH, COH_RULE_EXACTLY_ONCE,
                            1 << COH_STREAM_WORK | 1 << COH_STREAM_WORK_PART);
    case COH_PROGRAM_SAVE:
    case COH_PROGRAM_HASH:
    case COH_PROGRAM_KIND_COUNT:
        break;
    }
    return COH_OK;
}

coh_status coh_verify_once(coh_verifier *v)
{
    once_book book = { 0 };
    COH_TRY(COH_ALLOC(v->layout->chunk_count, &book.duties));
    coh_status status = check_program(v, &book);
    coh_free(book.duties);
    return status;
}
