/* Bounds the device memory of a set of decisions from below: the most bytes that one instruction
 * needs at once. The idea: windows depend on the chunk size only where an instruction visits
 * chunks, so small chunks are lowered only if these instructions could need the most. Interface:
 * schedule.h. */
#include "planner/schedule.h"

#include "base/alloc.h"
#include "planner/optimizers.h"
#include "planner/schedule_builder.h"

/* Returns 1 for instructions that take one chunk at a time; the windows of all others do not
 * depend on the chunk size. */
static int visits_chunks(coh_opcode opcode)
{
    return opcode == COH_OP_NORM || opcode == COH_OP_UPDATE || opcode == COH_OP_INIT ||
           opcode == COH_OP_IMPORT || opcode == COH_OP_HASH || opcode == COH_OP_SAVE ||
           opcode == COH_OP_EDIT || opcode == COH_OP_REDUCE || opcode == COH_OP_GATHER;
}

/* The bytes of a deferred update with uncut objects: all the work that the following forward reads
 * as one, and a chunk of the gradient and the states. 0 for other instructions. */
static uint64_t update_bytes(const coh_builder *b, const coh_draft *d, uint32_t index,
                             uint64_t held)
{
    const coh_lowered_instruction *instruction = &d->lowered.instructions[index];
    uint64_t bytes = held;
    if (instruction->opcode != COH_OP_UPDATE || instruction->lane != COH_LANE_COMPUTE ||
        d->lowered.kind != COH_PROGRAM_BODY || !coh_plan_defers(b->options))
        return 0;
    for (uint32_t i = instruction->operand_begin;
         i < instruction->operand_begin + instruction->operand_count; i++) {
        const coh_lowered_operand *operand = &d->lowered.operands[i];
        const coh_object *object = &b->layout->objects[operand->object];
        const coh_chunk *chunks = &b->layout->chunks[object->chunk_begin];
        const coh_chunk *last = &chunks[operand->window_end - 1];
        uint64_t window =
            last->object_offset + last->bytes - chunks[operand->window_begin].object_offset;
        if (object->pinned || object->stream > COH_STREAM_STATE)
            continue;
        const coh_group_layout *group = &b->layout->groups[object->owner];
        const uint64_t chunk = coh_group_chunk_bytes(
            group, object->stream, coh_dtype_chunk_bytes(group->dtype, b->decisions->chunk_bytes));
        if (object->stream != COH_STREAM_WORK)
            bytes += window < chunk ? window : chunk;
        else if (b->pins.on_device == NULL ||
                 !b->pins.on_device[object->chunk_begin + operand->window_begin])
            bytes += window;
    }
    return bytes;
}

/* The most bytes that an instruction needs at once, its operator, and the most bytes that pins
 * hold. */
typedef struct instruction_bound {
    uint64_t bytes, held_bytes;
    int32_t op; /* -1: none */
} instruction_bound;

/* Returns the operator of an instruction, or of the parameters that it visits; -1: none. */
static int32_t operator_of(const coh_builder *b, const coh_lowered *lowered, uint32_t index)
{
    const coh_lowered_instruction *instruction = &lowered->instructions[index];
    const int32_t op = coh_lowered_operator(lowered, index);
    for (uint32_t i = 0; op < 0 && i < instruction->operand_count; i++) {
        const coh_object *object =
            &b->layout->objects[lowered->operands[instruction->operand_begin + i].object];
        if (object->pinned || object->stream > COH_STREAM_STATE)
            continue;
        const coh_group_layout *group = &b->layout->groups[object->owner];
        const int32_t parameter = b->layout->parameters[group->parameter_begin].parameter;
        return b->graph->parameters[parameter].op;
    }
    return op;
}

static void take_instruction(const coh_builder *b, const coh_draft *d, uint32_t index,
                             uint64_t bytes, instruction_bound *bound)
{
    if (bytes <= bound->bytes)
        return;
    bound->bytes = bytes;
    bound->op = operator_of(b, &d->lowered, index);
}

/* Raises *bound by the instructions of one program (with `skips`, except instructions that visit
 * chunks). */
static coh_status bound_program(coh_builder *b, const coh_draft *d, int skips,
                                instruction_bound *bound)
{
    const coh_level level = coh_builder_device_level(b);
    const coh_sequence sequence = coh_draft_sequence(d);
    uint64_t *kept = NULL; /* by instruction */
    coh_status status = COH_OK;
    if (level.rules != NULL) {
        COH_TRY(COH_ALLOC(sequence.step_count + 1, &kept));
        status = coh_residency_kept_bytes(&level, &sequence, kept);
    }
    for (uint32_t i = 0; i < sequence.step_count && status == COH_OK; i++) {
        uint64_t held = (level.home_offset ? level.floor_bytes : level.base_bytes);
        uint64_t more = kept ? kept[i] : 0;
        bound->held_bytes = held + more > bound->held_bytes ? held + more : bound->held_bytes;
        if (skips && visits_chunks(d->lowered.instructions[i].opcode)) {
            take_instruction(b, d, i, more + update_bytes(b, d, i, held), bound);
            continue;
        }
        take_instruction(b, d, i, more + coh_residency_step_bytes(&level, &sequence, i), bound);
    }
    coh_free(kept);
    return status;
}

/* As bound_program for all programs, in chunks of `chunk_bytes`. */
static coh_status bound_instructions(coh_builder *b, uint64_t chunk_bytes, int skips,
                                     instruction_bound *out)
{
    coh_decisions decisions = *b->decisions;
    decisions.chunk_bytes = chunk_bytes;
    *out = (instruction_bound){ .op = -1 };
    COH_TRY(coh_layout_build(b->graph, b->options, &decisions, b->layout, &b->map));
    b->map.is_for_memory = 1;
    COH_TRY(coh_builder_take_pins(b));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        COH_TRY(coh_builder_lower(b, (coh_program_kind)kind, coh_builder_microbatches(b),
                                  &b->drafts[kind]));
        COH_TRY(bound_program(b, &b->drafts[kind], skips, out));
    }
    return COH_OK;
}

/* If micro-batches run one after another, only the first, one in the middle and the last of each
 * replica are lowered: all others need the same as the middle one. */
static coh_status bound_of(const coh_graph *graph, const coh_plan_options *options,
                           const coh_decisions *decisions, uint64_t chunk_bytes, int skips,
                           instruction_bound *out)
{
    enum { KINDS = 3 };
    coh_layout layout = { 0 };
    coh_builder b = {
        .graph = graph, .options = options, .decisions = decisions, .layout = &layout
    };
    if (options->sweep_order == COH_SWEEP_MICROBATCH)
        b.written_microbatches = coh_few_microbatches(options, KINDS).microbatch_count;
    coh_status status = bound_instructions(&b, chunk_bytes, skips, out);
    coh_builder_fini(&b);
    coh_layout_fini(&layout);
    return status;
}

/* The largest models have millions of small chunks: these are only lowered if the instructions
 * that visit them could need the most. */
coh_status coh_schedule_bound(const coh_graph *graph, const coh_plan_options *options,
                              const coh_decisions *decisions, uint64_t *out_bytes, int32_t *out_op)
{
    const uint64_t chunk_bytes = decisions->chunk_bytes;
    uint64_t most_visited = 0; /* work, gradient and states of one chunk, in either dtype */
    instruction_bound bound;
    COH_TRY(bound_of(graph, options, decisions, COH_WHOLE_OBJECTS, 1, &bound));
    COH_TRY(coh_optimizers_most_bytes(graph, options, chunk_bytes, &most_visited));
    if (bound.held_bytes + most_visited > bound.bytes)
        COH_TRY(bound_of(graph, options, decisions, chunk_bytes, 0, &bound));
    *out_bytes = bound.bytes;
    if (out_op != NULL)
        *out_op = bound.op;
    return COH_OK;
}
