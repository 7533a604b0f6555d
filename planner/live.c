/* Writes the instructions of at most three micro-batches a replica, with no object cut, and counts
 * live bytes at each instruction. These bytes grow by the same amount with every micro-batch, so
 * their maximum is convex in the number of micro-batches: the straight line through its
 * values at two and three never lies above it. Interface: live.h. */
#include "planner/live.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/pins.h"

enum { FEW = 3 };

/* Leaves out parameter gradients: a schedule may compute, add and apply them range by range. */
static int counts(const coh_object *object)
{
    return !object->survives && !object->pinned && !coh_stream_is_gradient(object->stream);
}

/* Returns 1 if gradients that outlive the step exist whole while a later micro-batch runs forward:
 * of each parameter there is a sum, which its backward goes on adding to. */
static int are_summed(const coh_plan_options *options, const coh_object *object)
{
    return object->stream == COH_STREAM_GRAD && options->sweep_order == COH_SWEEP_MICROBATCH &&
           coh_replica_microbatches(options) > 1;
}

/* Bytes that exist at the fullest instruction, and where steps meet: there also gradients that
 * outlive the step. Between their update in the next forward and its backward there are none. */
typedef struct standing {
    uint64_t within, at_begin;
} standing;

static standing standing_bytes(const coh_layout *layout, const coh_plan_options *options)
{
    standing bytes = { layout->pinned_bytes, layout->pinned_bytes };
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        if (!object->survives || object->pinned)
            continue;
        bytes.at_begin += object->bytes;
        if (!coh_stream_is_gradient(object->stream) || are_summed(options, object))
            bytes.within += object->bytes;
    }
    return bytes;
}

typedef struct live_set {
    const coh_layout *layout;
    uint8_t *has; /* by object */
    uint64_t bytes;
} live_set;

static void set_live(live_set *live, int32_t object, int is_live)
{
    const coh_object *facts = &live->layout->objects[object];
    if (!counts(facts) || live->has[object] == is_live)
        return;
    live->has[object] = (uint8_t)is_live;
    live->bytes += is_live ? facts->bytes : 0;
    live->bytes -= is_live ? 0 : facts->bytes;
}

/* Goes from the last instruction to the first: an object that an instruction reads exists before
 * the instruction; an object that it writes without reading does not, and while the instruction
 * runs, not one that it may write in place of another. With `or_fewer`, an object
 * that only a recomputation reads does not count: a program that keeps the results does not need
 * it. Returns the most bytes at one instruction. */
static uint64_t most_live(const coh_lowered *lowered, int or_fewer, live_set *live)
{
    uint64_t most = 0;
    for (size_t instruction = lowered->instruction_count; instruction-- > 0;) {
        const coh_lowered_operand *operands =
            &lowered->operands[lowered->instructions[instruction].operand_begin];
        const uint32_t count = lowered->instructions[instruction].operand_count;
        for (uint32_t i = 0; i < count; i++)
            set_live(live, operands[i].object, operands[i].takes == 0);
        most = live->bytes > most ? live->bytes : most;
        for (uint32_t i = 0; i < count; i++)
            set_live(live, operands[i].object, 0);
        for (uint32_t i = 0; i < count; i++)
            if ((operands[i].access & COH_ACCESS_READ) &&
                !(or_fewer && lowered->instructions[instruction].opcode == COH_OP_RECOMPUTE))
                set_live(live, operands[i].object, 1);
    }
    return most;
}

static coh_status live_of(const coh_graph *graph, const coh_plan_options *options,
                          const coh_block_set *recompute, int light, int or_fewer,
                          uint64_t *out_bytes)
{
    coh_layout layout;
    coh_object_map map;
    coh_lowered lowered = { 0 };
    coh_block_set blocks = *recompute;
    const coh_decisions whole = { .chunk_bytes = COH_WHOLE_OBJECTS,
                                  .row_passes = 1,
                                  .patterns = coh_pattern_choose(1),
                                  .light = light };
    COH_TRY(coh_pins_blocks(graph, options, &blocks));
    const coh_plan_options alone = coh_alone(options);
    COH_TRY(coh_layout_build(graph, options, &whole, &layout, &map));
    live_set live = { .layout = &layout };
    coh_status status =
        coh_lower(graph, &alone, &layout, &map, &blocks, 0, COH_PROGRAM_BODY, &lowered);
    if (status == COH_OK)
        status = COH_ALLOC(layout.object_count, &live.has);
    if (status == COH_OK) {
        const standing bytes = standing_bytes(&layout, options);
        const uint64_t within = bytes.within + most_live(&lowered, or_fewer, &live);
        *out_bytes = bytes.at_begin > within ? bytes.at_begin : within;
    }
    coh_free(live.has);
    coh_lowered_fini(&lowered);
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    return status;
}

coh_status coh_live_bytes(const coh_graph *graph, const coh_plan_options *options,
                          const coh_block_set *recompute, int light, int or_fewer,
                          uint64_t *out_bytes)
{
    const coh_plan_options fewer = coh_few_microbatches(options, FEW - 1),
                           few = coh_few_microbatches(options, FEW);
    const int32_t count = coh_replica_microbatches(options);
    uint64_t fewer_bytes = 0, more_bytes = 0;
    if (count < FEW)
        return live_of(graph, options, recompute, light, or_fewer, out_bytes);
    COH_TRY(live_of(graph, &fewer, recompute, light, or_fewer, &fewer_bytes));
    COH_TRY(live_of(graph, &few, recompute, light, or_fewer, out_bytes));
    more_bytes = *out_bytes > fewer_bytes ? *out_bytes - fewer_bytes : 0;
    COH_TRY(coh_bytes_mul(more_bytes, (uint64_t)(count - FEW), &more_bytes));
    return coh_bytes_add(*out_bytes, more_bytes, out_bytes);
}
