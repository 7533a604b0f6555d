/* Estimates program size as a sum over operators: the instructions of a call (its row ranges)
 * times its phases times the micro-batches, and for each instruction the chunks of the objects
 * that it touches. Object sizes come from a layout with whole objects. Interface: effort.h. */
#include "planner/effort.h"

#include <inttypes.h>

#include "planner/layout.h"
#include "planner/pattern.h"
#include "planner/pins.h"

/* An instruction costs about as much as this many touches. */
enum { INSTRUCTION_TOUCHES = 4 };

/* NORM and UPDATE of a chunk: instructions and touches. */
enum { UPDATE_INSTRUCTIONS = 2, UPDATE_TOUCHES = 8 };

/* Touches of the ADD that folds a chunk. */
enum { FOLD_TOUCHES = 2 };

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t out;
    return __builtin_add_overflow(a, b, &out) ? UINT64_MAX : out;
}

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t out;
    return __builtin_mul_overflow(a, b, &out) ? UINT64_MAX : out;
}

typedef struct scene {
    const coh_graph *graph;
    const coh_plan_options *options;
    const coh_decisions *decisions;
    coh_layout layout; /* of whole objects, with two micro-batches of a replica at most */
    coh_object_map map;
    coh_block_set recompute;
} scene;

/* Chunks of an object; 0 for object -1. */
static uint64_t chunks_of(const scene *s, int32_t object)
{
    const uint64_t chunk = coh_layout_chunk_bytes(s->decisions->chunk_bytes);
    if (object < 0)
        return 0;
    const coh_object *facts = &s->layout.objects[object];
    return facts->pinned ? 1 : facts->bytes / chunk + (facts->bytes % chunk != 0);
}

/* Chunks of an operator's inputs and outputs; `objects`: by tensor. */
static uint64_t port_chunks(const scene *s, int32_t op, const int32_t *objects)
{
    const coh_graph_op_entry *entry = &s->graph->ops[op];
    uint64_t chunks = 0;
    for (int32_t port = 0; port < entry->kind.input_count; port++)
        chunks += chunks_of(s, objects[entry->input[port]]);
    for (int32_t port = 0; port < entry->kind.output_count; port++)
        chunks += chunks_of(s, objects[entry->output[port]]);
    return chunks;
}

/* Chunks of an operator's activations and of the data its forward saves for backward. */
static uint64_t activation_chunks(const scene *s, int32_t op)
{
    return chunks_of(s, s->map.saved[op]) + chunks_of(s, s->map.cache[op]) +
           port_chunks(s, op, s->map.activation);
}

/* Chunks of the gradients of its activations. */
static uint64_t gradient_chunks(const scene *s, int32_t op)
{
    return port_chunks(s, op, s->map.gradient);
}

static uint64_t parameter_chunks(const scene *s, int32_t op)
{
    const coh_graph_op_entry *entry = &s->graph->ops[op];
    uint64_t chunks = 0;
    for (int32_t port = 0; port < entry->kind.parameter_count; port++)
        if (entry->parameter[port] >= 0)
            chunks += chunks_of(
                s, s->layout.groups[s->map.group_of_parameter[entry->parameter[port]]].work);
    return chunks;
}

static int is_recomputed(const scene *s, int32_t op)
{
    return s->options->mode == COH_PLAN_TRAIN && s->graph->ops[op].block >= 0 &&
           (coh_block_set_has(&s->recompute, s->graph->ops[op].blocks_before) ||
            (s->map.again_at != NULL && s->map.again_at[op] >= 0));
}

static void add_operator(const scene *s, int32_t op, coh_effort *out)
{
    const coh_pattern_scene pattern = { s->graph, &s->layout, &s->map };
    const uint64_t parts = (uint64_t)coh_pattern_of(&pattern, op)->shard(&pattern, op).parts;
    const uint64_t microbatches = (uint64_t)s->options->microbatch_count;
    const uint64_t forwards = 1 + (uint64_t)is_recomputed(s, op);
    const uint64_t backwards = s->map.runs_backward[op] ? 1 : 0;
    const uint64_t activations = activation_chunks(s, op), parameters = parameter_chunks(s, op);
    const uint64_t ahead =
        sum(product(parts, activations + chunks_of(s, s->map.workspace[COH_PHASE_FORWARD][op])),
            parameters);
    const uint64_t back =
        sum(product(parts, activations + gradient_chunks(s, op) +
                               chunks_of(s, s->map.workspace[COH_PHASE_BACKWARD][op])),
            2 * parameters);
    out->instructions =
        sum(out->instructions, product(product(parts, forwards + backwards), microbatches));
    out->touches =
        sum(out->touches,
            product(sum(product(forwards, ahead), product(backwards, back)), microbatches));
}

/* Counts chunks; a sweep by layers has separate objects per micro-batch. */
static void add_objects(const scene *s, coh_effort *out)
{
    const uint64_t copies = s->options->sweep_order == COH_SWEEP_LAYER
                                ? (uint64_t)coh_replica_microbatches(s->options)
                                : 1;
    const uint64_t folds = (uint64_t)coh_fold_replicas(&s->options->replicas) - 1;
    uint64_t of_first = 0;
    for (uint32_t i = 0; i < s->layout.object_count; i++) {
        const coh_object *object = &s->layout.objects[i];
        const uint64_t chunks = chunks_of(s, (int32_t)i);
        const int is_copied = object->stream >= COH_STREAM_ACTIVATION &&
                              object->stream <= COH_STREAM_CACHE && object->microbatch == 0;
        if (is_copied)
            of_first = sum(of_first, chunks);
        else if (object->microbatch == 0)
            out->chunks = sum(out->chunks, chunks);
        if (object->stream == COH_STREAM_GRAD) {
            out->instructions =
                sum(out->instructions, product(UPDATE_INSTRUCTIONS + folds, chunks));
            out->touches =
                sum(out->touches, product(UPDATE_TOUCHES + FOLD_TOUCHES * folds, chunks));
        }
    }
    out->chunks = sum(out->chunks, product(of_first, copies));
}

coh_status coh_effort_of(const coh_graph *graph, const coh_plan_options *options,
                         const coh_decisions *decisions, coh_effort *out_effort)
{
    const coh_plan_options few = coh_few_microbatches(options, 2);
    coh_decisions whole = *decisions;
    scene s = { .graph = graph,
                .options = options,
                .decisions = decisions,
                .recompute = decisions->recompute };
    *out_effort = (coh_effort){ 0 };
    COH_TRY(coh_pins_blocks(graph, options, &s.recompute));
    whole.chunk_bytes = COH_WHOLE_OBJECTS;
    COH_TRY(coh_layout_build(graph, &few, &whole, &s.layout, &s.map));
    for (size_t i = 0; i < graph->op_count; i++)
        add_operator(&s, (int32_t)i, out_effort);
    add_objects(&s, out_effort);
    coh_object_map_fini(&s.map);
    coh_layout_fini(&s.layout);
    return COH_OK;
}

coh_status coh_effort_raise_chunk(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t most_bytes, coh_decisions *decisions)
{
    coh_effort now, next;
    COH_TRY(coh_effort_of(graph, options, decisions, &now));
    while ((now.touches > COH_TOUCHES_MOST / 2 || now.chunks > COH_CHUNKS_MOST / 2) &&
           decisions->chunk_bytes <= most_bytes / 2) {
        coh_decisions larger = *decisions;
        larger.chunk_bytes *= 2;
        COH_TRY(coh_effort_of(graph, options, &larger, &next));
        if (next.touches > now.touches - now.touches / 16)
            break;
        *decisions = larger;
        now = next;
    }
    return COH_OK;
}

coh_status coh_effort_check_count(uint64_t count, coh_refusal_unit unit)
{
    if (count < INT32_MAX)
        return COH_OK;
    coh_refusal refusal = coh_refusal_length(unit, count, INT32_MAX);
    refusal.is_least = 1;
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_MICROBATCH, 0);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_CHUNK, 0);
    coh_refusal_add(&refusal, COH_CHANGE_LOWER_BATCH, 0);
    return coh_refuse(&refusal);
}

int coh_effort_is_bearable(const coh_effort *effort)
{
    return effort->instructions <= COH_INSTRUCTIONS_MOST && effort->touches <= COH_TOUCHES_MOST &&
           effort->chunks <= COH_CHUNKS_MOST;
}

uint64_t coh_effort_sum(const coh_effort *effort)
{
    return sum(effort->touches, product(INSTRUCTION_TOUCHES, effort->instructions));
}

/* `is_cut`: the given chunk size is the cause. */
static void add_changes(const coh_effort *effort, int is_cut, coh_refusal *refusal)
{
    if (is_cut) {
        coh_refusal_add(refusal, COH_CHANGE_RAISE_CHUNK, 0);
        coh_refusal_add(refusal, COH_CHANGE_DROP_CHUNK, 0);
        return;
    }
    if (effort->instructions > COH_INSTRUCTIONS_MOST && refusal->microbatch_count == 1) {
        coh_refusal_add(refusal, COH_CHANGE_FEWER_OPERATORS, 0);
        return;
    }
    if (effort->instructions > COH_INSTRUCTIONS_MOST) {
        coh_refusal_add(refusal, COH_CHANGE_RAISE_MICROBATCH, 0);
    } else { /* chunks are cut by the budget */
        coh_refusal_raise(refusal, COH_TIER_DEVICE, 0);
        coh_refusal_add(refusal, COH_CHANGE_RAISE_CHUNK, 0);
    }
    coh_refusal_add(refusal, COH_CHANGE_LOWER_BATCH, 0);
}

coh_status coh_effort_refuse(const coh_effort *effort, const coh_plan_options *options)
{
    const int is_cut = options->chunk_bytes > 0 && (effort->chunks > COH_CHUNKS_MOST ||
                                                    effort->instructions <= COH_INSTRUCTIONS_MOST);
    if (coh_effort_is_bearable(effort))
        return COH_OK;
    coh_refusal refusal =
        coh_refusal_length(COH_UNIT_INSTRUCTIONS, effort->instructions, COH_INSTRUCTIONS_MOST);
    if (is_cut && effort->chunks > COH_CHUNKS_MOST)
        refusal = coh_refusal_length(COH_UNIT_CHUNKS, effort->chunks, COH_CHUNKS_MOST);
    else if (effort->instructions <= COH_INSTRUCTIONS_MOST)
        refusal = coh_refusal_length(COH_UNIT_CHUNK_USES, effort->touches, COH_TOUCHES_MOST);
    refusal.status = COH_ERR_ARGUMENT;
    refusal.microbatch_count = options->microbatch_count;
    refusal.chunk_bytes = refusal.unit != COH_UNIT_INSTRUCTIONS ? options->chunk_bytes : 0;
    refusal.is_least = refusal.unit == COH_UNIT_INSTRUCTIONS;
    add_changes(effort, is_cut, &refusal);
    return coh_refuse(&refusal);
}
