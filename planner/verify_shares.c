/* Checks that every use of a parameter or activation in forward contributes once to its gradient in
 * backward (rule EXACTLY_ONCE), and that losses and outputs are computed. The idea: list the uses
 * and the contributions, sort both, and match them. The list of files is in verify_state.h. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "planner/verify_state.h"

/* A contribution to a gradient: each port by which an operator reads a parameter or an activation
 * in forward must make one in backward. It is identified by the port and the gradient's chunk; for
 * an activation by the first chunk of its gradient. */
typedef struct share {
    int32_t op, microbatch;
    uint32_t chunk;
    uint32_t port; /* of a parameter: from PARAMETER_PORTS on */
    int64_t row_begin;
    int32_t source; /* scratch object that was added; -1: written by the BACKWARD itself */
    uint32_t instruction;
} share;

enum { PARAMETER_PORTS = 256 };

typedef struct share_list {
    share *items;
    size_t count, capacity;
} share_list;

typedef struct share_book {
    share_list uses, shares;
    uint32_t *scratch_writer; /* by chunk: 1 + BACKWARD instruction */
    uint32_t *scratch_port;   /* by chunk: the port whose gradient it holds */
    uint32_t *gradient_of;    /* by tensor and micro-batch: 1 + object, or 0 */
    uint32_t tensor_count, microbatch_count;
} share_book;

/* ---- the gradient of a chunk that is read ---- */

/* Returns an object's index in gradient_of; SIZE_MAX: none. */
static size_t gradient_index(const share_book *book, const coh_object *object)
{
    if (object->owner < 0 || (uint32_t)object->owner >= book->tensor_count ||
        object->microbatch < 0 || (uint32_t)object->microbatch >= book->microbatch_count)
        return SIZE_MAX;
    return (size_t)object->owner * book->microbatch_count + (size_t)object->microbatch;
}

static coh_status list_gradients(coh_verifier *v, share_book *book)
{
    const coh_layout *layout = v->layout;
    book->microbatch_count = layout->microbatch_count;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].stream == COH_STREAM_ACTIVATION_GRAD &&
            layout->objects[i].owner >= 0 &&
            (uint32_t)layout->objects[i].owner >= book->tensor_count)
            book->tensor_count = (uint32_t)layout->objects[i].owner + 1;
    if (book->tensor_count > 1u << 24)
        return coh_verify_breach(v, COH_RULE_FORM, COH_NO_INSTRUCTION, UINT32_MAX,
                                 "a gradient of tensor %" PRIu32, book->tensor_count - 1);
    COH_TRY(COH_ALLOC((size_t)book->tensor_count * book->microbatch_count, &book->gradient_of));
    for (uint32_t i = 0; i < layout->object_count; i++) {
        size_t index = gradient_index(book, &layout->objects[i]);
        if (layout->objects[i].stream == COH_STREAM_ACTIVATION_GRAD && index != SIZE_MAX)
            book->gradient_of[index] = i + 1;
    }
    return COH_OK;
}

/* Returns the gradient object of an activation, or -1. */
static int32_t gradient_of(const coh_verifier *v, const share_book *book, int32_t index)
{
    const coh_object *object = &v->layout->objects[index];
    size_t place = gradient_index(book, object);
    if ((object->stream != COH_STREAM_ACTIVATION && object->stream != COH_STREAM_OUTPUT) ||
        place == SIZE_MAX)
        return -1;
    return (int32_t)book->gradient_of[place] - 1;
}

/* Returns the chunk that identifies the contribution due for a port's read of `chunk`; UINT32_MAX:
 * none is due. */
static uint32_t share_of_read(const coh_verifier *v, const share_book *book, uint8_t role,
                              uint32_t chunk)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    if (role == COH_ROLE_PARAMETER && object->stream == COH_STREAM_WORK) {
        int32_t grad = v->layout->groups[object->owner].grad;
        return grad >= 0 ? coh_partner_chunk(v, chunk, grad) : UINT32_MAX;
    }
    if (role != COH_ROLE_INPUT || chunk != object->chunk_begin)
        return UINT32_MAX;
    int32_t gradient = gradient_of(v, book, v->layout->chunks[chunk].object);
    return gradient >= 0 ? v->layout->objects[gradient].chunk_begin : UINT32_MAX;
}

/* Returns the chunk that identifies the contribution which a write to `chunk` is; UINT32_MAX: it is
 * none. The gradient of a replica stands for the group's. */
static uint32_t share_of_write(const coh_verifier *v, uint32_t chunk)
{
    const coh_object *object = coh_chunk_object(v, chunk);
    if (object->stream == COH_STREAM_CONTRIBUTION)
        return coh_partner_chunk(v, chunk, v->layout->groups[object->owner].grad);
    return object->stream == COH_STREAM_GRAD ||
                   (object->stream == COH_STREAM_ACTIVATION_GRAD && chunk == object->chunk_begin)
               ? chunk
               : UINT32_MAX;
}

/* Returns 1 if the port's view overlaps the chunk. */
static int reaches(const coh_verifier *v, const coh_binding *binding, uint32_t chunk)
{
    const coh_chunk *facts = &v->layout->chunks[chunk];
    uint64_t elements = 1;
    for (int32_t i = 0; i < binding->shape.rank && i < COH_RANK_MAX; i++)
        if (__builtin_mul_overflow(elements, (uint64_t)binding->shape.dim[i], &elements))
            return 0; /* rejected by FORM */
    uint64_t end = 0;
    if (elements > COH_VERIFY_ELEMENTS_MOST ||
        __builtin_add_overflow(binding->object_offset,
                               coh_verify_array_bytes(binding->shape.dtype, elements), &end))
        return 0;
    return binding->object_offset < facts->object_offset + facts->bytes &&
           end > facts->object_offset;
}

/* ---- one pass over the instructions ---- */

static coh_status append(share_list *list, share item)
{
    COH_TRY(COH_GROW(&list->items, &list->capacity, list->count + 1));
    list->items[list->count++] = item;
    return COH_OK;
}

static uint32_t port_of(const coh_binding *binding)
{
    int is_parameter =
        binding->role == COH_ROLE_PARAMETER || binding->role == COH_ROLE_PARAMETER_GRAD;
    return binding->port + (is_parameter ? PARAMETER_PORTS : 0u);
}

/* Records that a port of a BACKWARD, or an ADD, writes a gradient. */
static coh_status note_share(coh_verifier *v, share_book *book, uint32_t instruction,
                             uint32_t chunk, uint32_t port)
{
    uint32_t backward = instruction;
    int32_t source = -1;
    if (v->program->instructions[instruction].opcode == COH_OP_ADD) {
        const coh_operand *from = coh_instruction_operands(v, instruction);
        uint32_t scratch = coh_operand_touches(v, from)[0].chunk;
        source = from->object;
        if (book->scratch_writer[scratch] == 0)
            return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction, chunk,
                                     "it adds what no BACKWARD has written");
        backward = book->scratch_writer[scratch] - 1;
        port = book->scratch_port[scratch];
    }
    const coh_instruction_call *call = &v->program->calls[v->program->instructions[backward].call];
    return append(&book->shares, (share){ call->operator_index, call->microbatch, chunk, port,
                                          call->row_begin, source, instruction });
}

static coh_status note_port(coh_verifier *v, share_book *book, uint32_t instruction,
                            const coh_binding *binding, const coh_operand *operand, uint32_t chunk)
{
    const coh_instruction *facts = &v->program->instructions[instruction];
    const coh_instruction_call *call = &v->program->calls[facts->call];
    if (facts->opcode == COH_OP_FORWARD) {
        uint32_t wanted = share_of_read(v, book, binding->role, chunk);
        if (wanted == UINT32_MAX)
            return COH_OK;
        return append(&book->uses, (share){ call->operator_index, call->microbatch, wanted,
                                            port_of(binding), 0, -1, instruction });
    }
    if (!(operand->access & COH_ACCESS_WRITE) || binding->role == COH_ROLE_OUTPUT_GRAD)
        return COH_OK; /* what overwrites a gradient contributes nothing: verify_adds.c */
    const uint32_t made = share_of_write(v, chunk);
    if (made != UINT32_MAX)
        return note_share(v, book, instruction, made, port_of(binding));
    if (facts->opcode == COH_OP_BACKWARD &&
        coh_chunk_object(v, chunk)->stream == COH_STREAM_SCRATCH) {
        book->scratch_writer[chunk] = instruction + 1;
        book->scratch_port[chunk] = port_of(binding);
    }
    return COH_OK;
}

/* Checks that an operator whose output has a gradient, or that computes the loss, has a
 * BACKWARD. */
static coh_status check_has_backward(coh_verifier *v, const share_book *book, uint32_t instruction,
                                     const coh_operand *operand)
{
    const coh_instruction_call *call =
        &v->program->calls[v->program->instructions[instruction].call];
    uint32_t begin = 0, end = 0;
    int is_loss = operand->object == v->layout->losses && book->tensor_count > 0;
    if (operand->role != COH_ROLE_OUTPUT || (!is_loss && gradient_of(v, book, operand->object) < 0))
        return COH_OK;
    coh_verify_find_calls(v, COH_OP_BACKWARD, call->operator_index,
                          call->microbatch < 0 ? 0 : call->microbatch, &begin, &end);
    if (begin == end)
        return coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, instruction,
                                 v->layout->objects[operand->object].chunk_begin,
                                 "operator %" PRId32 ", micro-batch %" PRId32
                                 ": what it makes has a gradient, and it has no BACKWARD",
                                 call->operator_index, call->microbatch);
    return COH_OK;
}

static coh_status note_instruction(coh_verifier *v, share_book *book, uint32_t instruction)
{
    const coh_instruction *facts = &v->program->instructions[instruction];
    if (facts->call < 0 || (facts->opcode != COH_OP_FORWARD && facts->opcode != COH_OP_BACKWARD &&
                            facts->opcode != COH_OP_ADD))
        return COH_OK;
    if (coh_verify_is_fold(v, instruction))
        return COH_OK; /* of contributions made before: verify_folds.c */
    const coh_instruction_call *call = &v->program->calls[facts->call];
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &v->program->bindings[call->binding_begin + i];
        const coh_operand *operand = &coh_instruction_operands(v, instruction)[binding->operand];
        const coh_touch *touches = coh_operand_touches(v, operand);
        if (facts->opcode == COH_OP_FORWARD)
            COH_TRY(check_has_backward(v, book, instruction, operand));
        for (uint32_t t = 0; t < operand->touch_count; t++)
            if (reaches(v, binding, touches[t].chunk))
                COH_TRY(note_port(v, book, instruction, binding, operand, touches[t].chunk));
    }
    return COH_OK;
}

/* ---- matching ---- */

static int compare_use(const share *a, const share *b)
{
    if (a->op != b->op)
        return a->op < b->op ? -1 : 1;
    if (a->microbatch != b->microbatch)
        return a->microbatch < b->microbatch ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return a->port < b->port ? -1 : a->port > b->port;
}

static int compare_share(const share *a, const share *b)
{
    int order = compare_use(a, b);
    if (order != 0)
        return order;
    if (a->row_begin != b->row_begin)
        return a->row_begin < b->row_begin ? -1 : 1;
    return a->source < b->source ? -1 : a->source > b->source;
}

static int by_share(const void *a, const void *b)
{
    return compare_share(a, b);
}

static void sort_shares(share_list *list)
{
    if (list->count > 0)
        qsort(list->items, list->count, sizeof(share), by_share);
}

static coh_status check_repeats(coh_verifier *v, const share_list *shares)
{
    for (size_t i = 1; i < shares->count; i++)
        if (compare_share(&shares->items[i - 1], &shares->items[i]) == 0)
            COH_TRY(coh_verify_breach(v, COH_RULE_EXACTLY_ONCE, shares->items[i].instruction,
                                      shares->items[i].chunk,
                                      "instruction %" PRIu32 " has made this contribution already",
                                      shares->items[i - 1].instruction));
    return COH_OK;
}

/* Walks both sorted lists. Operators without any BACKWARD owe no contribution. */
static coh_status match(coh_verifier *v, const share_list *uses, const share_list *shares)
{
    size_t i = 0, j = 0;
    while (i < uses->count || j < shares->count) {
        int order = i == uses->count     ? 1
                    : j == shares->count ? -1
                                         : compare_use(&uses->items[i], &shares->items[j]);
        const share *odd = order < 0 ? &uses->items[i] : &shares->items[j];
        uint32_t begin = 0, end = 0;
        coh_verify_find_calls(v, COH_OP_BACKWARD, odd->op, -1, &begin, &end);
        if (order != 0 && begin < end)
            COH_TRY(coh_verify_breach(
                v, COH_RULE_EXACTLY_ONCE, odd->instruction, odd->chunk,
                "operator %" PRId32 ", micro-batch %" PRId32 ", %s port %" PRIu32 " %s", odd->op,
                odd->microbatch, odd->port < PARAMETER_PORTS ? "input" : "parameter",
                odd->port % PARAMETER_PORTS,
                order < 0 ? "reads in forward and gives no gradient"
                          : "gives a gradient to what it does not read"));
        share key = *odd;
        while (order <= 0 && i < uses->count && compare_use(&uses->items[i], &key) == 0)
            i++;
        while (order >= 0 && j < shares->count && compare_use(&shares->items[j], &key) == 0)
            j++;
    }
    return COH_OK;
}

/* ---- losses and outputs ---- */

/* Checks that every result the caller reads is computed by one FORWARD per micro-batch. */
static coh_status check_results(coh_verifier *v)
{
    uint32_t wanted = v->program->kind == COH_PROGRAM_BODY ? v->layout->microbatch_count : 1;
    for (uint32_t i = 0; i < v->program->instruction_count; i++) {
        const coh_instruction *instruction = &v->program->instructions[i];
        if (instruction->opcode != COH_OP_FORWARD || instruction->call < 0 ||
            v->program->calls[instruction->call].row_begin > 0)
            continue;
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &coh_instruction_operands(v, i)[o];
            if (operand->role == COH_ROLE_OUTPUT)
                v->chunk_stamps[v->layout->objects[operand->object].chunk_begin]++;
        }
    }
    for (uint32_t i = 0; i < v->layout->object_count; i++) {
        const coh_object *object = &v->layout->objects[i];
        uint32_t count = v->chunk_stamps[object->chunk_begin];
        v->chunk_stamps[object->chunk_begin] = 0;
        if ((object->stream == COH_STREAM_LOSS || object->stream == COH_STREAM_OUTPUT) &&
            count != wanted)
            COH_TRY(coh_verify_breach(
                v, COH_RULE_EXACTLY_ONCE, COH_NO_INSTRUCTION, object->chunk_begin,
                "it is computed %" PRIu32 " times in %" PRIu32 " micro-batches", count, wanted));
    }
    return COH_OK;
}

coh_status coh_verify_shares(coh_verifier *v)
{
    share_book book = { 0 };
    coh_status status = COH_OK;
    if (v->program->kind != COH_PROGRAM_BODY && v->program->kind != COH_PROGRAM_EVALUATE)
        return COH_OK;
    COH_TRY(check_results(v));
    if (v->program->kind != COH_PROGRAM_BODY)
        return COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->chunk_count, &book.scratch_writer), done);
    COH_TRY_GOTO(status, COH_ALLOC(v->layout->chunk_count, &book.scratch_port), done);
    COH_TRY_GOTO(status, list_gradients(v, &book), done);
    for (uint32_t i = 0; i < v->program->instruction_count; i++)
        COH_TRY_GOTO(status, note_instruction(v, &book, i), done);
    sort_shares(&book.uses);
    sort_shares(&book.shares);
    COH_TRY_GOTO(status, check_repeats(v, &book.shares), done);
    status = match(v, &book.uses, &book.shares);
done:
    coh_free(book.uses.items);
    coh_free(book.shares.items);
    coh_free(book.scratch_writer);
    coh_free(book.scratch_port);
    coh_free(book.gradient_of);
    return status;
}
