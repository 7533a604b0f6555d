/* Describes the body of a plan as a trace: what each instruction does, when it is predicted to run,
 * and which instructions it waits for. The one idea: all indices of a trace are into its own
 * tables, so a reader needs neither plan nor graph. Interface: cohobate/trace.h. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/opcodes.h"
#include "planner/plan.h"
#include "planner/trace_tables.h"

/* Working tables, freed when the trace is made. */
typedef struct scene {
    const coh_plan *plan;
    const coh_program *body;
    uint64_t *instruction_ns; /* begin and end of each instruction */
    uint32_t *root;           /* by extent: coh_program_extent_roots */
    uint32_t *first, *last;   /* users of these bytes, by root; COH_TRACE_NONE: none, or no root */
    uint32_t *instructions[COH_LANE_COUNT]; /* by ordinal - 1 */
    uint32_t *all;                          /* what `instructions` points into */
    uint64_t predicted_ns;
} scene;

static void scene_fini(scene *s)
{
    coh_free(s->instruction_ns);
    coh_free(s->first);
    coh_free(s->last);
    coh_free(s->root);
    coh_free(s->all);
}

static void find_users(const scene *s)
{
    const coh_program *body = s->body;
    coh_program_extent_roots(body, s->root);
    for (uint32_t i = 0; i < body->extent_count; i++)
        s->first[i] = s->last[i] = COH_TRACE_NONE;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_operand *operands = &body->operands[body->instructions[i].operand_begin];
        for (uint32_t o = 0; o < body->instructions[i].operand_count; o++)
            for (uint32_t t = 0; t < operands[o].touch_count; t++) {
                uint32_t extent = body->touches[operands[o].touch_begin + t].extent;
                if (extent == COH_EXTENT_FILE)
                    continue;
                extent = s->root[extent];
                if (s->first[extent] == COH_TRACE_NONE)
                    s->first[extent] = i;
                s->last[extent] = i;
            }
    }
}

static coh_status scene_init(scene *s, const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    coh_simulation simulation;
    uint32_t begin = 0;
    s->plan = plan;
    s->body = body;
    COH_TRY(COH_ALLOC(2 * (size_t)body->instruction_count, &s->instruction_ns));
    COH_TRY(COH_ALLOC(body->extent_count, &s->first));
    COH_TRY(COH_ALLOC(body->extent_count, &s->last));
    COH_TRY(COH_ALLOC(body->extent_count, &s->root));
    COH_TRY(COH_ALLOC(body->instruction_count, &s->all));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        s->instructions[lane] = s->all + begin;
        begin += body->lane_length[lane];
    }
    for (uint32_t i = 0; i < body->instruction_count; i++)
        s->instructions[body->instructions[i].lane][body->instructions[i].ordinal - 1] = i;
    find_users(s);
    COH_TRY(
        coh_simulate_priced(&plan->layout, body, &plan->pricer, &simulation, s->instruction_ns));
    s->predicted_ns = simulation.period_ns;
    return COH_OK;
}

/* ---- operators ---- */

/* Reads operator `index`, with the seven texts of a trace in the order of its struct. */
static coh_plan_operator read_operator(const coh_plan *plan, uint32_t index, const char *texts[7])
{
    coh_plan_operator from = { .struct_bytes = sizeof(from) };
    (void)coh_plan_operator_at(plan, (int32_t)index, &from); /* there is one */
    texts[0] = from.name;
    texts[1] = from.kind;
    texts[2] = from.activations;
    texts[3] = from.parameters;
    texts[4] = from.states;
    texts[5] = from.updates;
    texts[6] = from.pattern;
    return from;
}

static size_t text_bytes(const coh_plan *plan)
{
    const char *texts[7];
    size_t bytes = 0;
    for (int opcode = 0; opcode < COH_OP_COUNT; opcode++)
        bytes += strlen(coh_opcode_rows[opcode].word) + 1;
    for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
        bytes += strlen(coh_stream_name((coh_stream)stream)) + 1;
    for (uint32_t op = 0; op < plan->graph->op_count; op++) {
        (void)read_operator(plan, op, texts);
        for (int i = 0; i < 7; i++)
            bytes += strlen(texts[i]) + 1;
    }
    return bytes;
}

static void fill_texts(const coh_plan *plan, coh_trace_tables *tables)
{
    const char *texts[7];
    for (int opcode = 0; opcode < COH_OP_COUNT; opcode++)
        tables->opcodes[opcode] = coh_trace_text(coh_opcode_rows[opcode].word, &tables->texts);
    for (int stream = 0; stream < COH_STREAM_COUNT; stream++)
        tables->purposes[stream] =
            coh_trace_text(coh_stream_name((coh_stream)stream), &tables->texts);
    for (uint32_t op = 0; op < plan->graph->op_count; op++) {
        coh_trace_operator *to = &tables->operators[op];
        const char **const to_texts[7] = { &to->name,       &to->kind,   &to->activations,
                                           &to->parameters, &to->states, &to->updates,
                                           &to->pattern };
        to->block = read_operator(plan, op, texts).block;
        for (int i = 0; i < 7; i++)
            *to_texts[i] = coh_trace_text(texts[i], &tables->texts);
    }
}

/* ---- instructions ---- */

/* Returns the operator that introduced the parameters of an object, or that made it. */
static uint32_t operator_of(const coh_plan *plan, const coh_object *object)
{
    const coh_layout *layout = &plan->layout;
    int32_t op = -1;
    if (coh_stream_is_of_group(object->stream)) {
        const coh_group_layout *group = &layout->groups[object->owner];
        const int32_t parameter = layout->parameters[group->parameter_begin].parameter;
        op = plan->graph->parameters[parameter].op;
    } else if (object->stream == COH_STREAM_ACTIVATION ||
               object->stream == COH_STREAM_ACTIVATION_GRAD) {
        op = plan->graph->tensors[object->owner].producer;
    } else if (object->stream == COH_STREAM_SAVED || object->stream == COH_STREAM_CACHE) {
        op = object->owner;
    }
    return op >= 0 ? (uint32_t)op : COH_TRACE_NONE;
}

static void fill_instruction(const scene *s, uint32_t index, coh_trace_instruction *to)
{
    const coh_program *body = s->body;
    const coh_layout *layout = &s->plan->layout;
    const coh_instruction *from = &body->instructions[index];
    const coh_operand *operand =
        from->operand_count > 0 ? &body->operands[from->operand_begin] : NULL;
    *to = (coh_trace_instruction){ .predicted_begin_ns = s->instruction_ns[2 * (size_t)index],
                                   .predicted_end_ns = s->instruction_ns[2 * (size_t)index + 1],
                                   .bytes = from->bytes,
                                   .flops = from->flops,
                                   .opcode = from->opcode,
                                   .operator_index = COH_TRACE_NONE,
                                   .chunk = COH_TRACE_NONE,
                                   .stream = COH_TRACE_NONE,
                                   .wait_begin = from->wait_begin,
                                   .wait_count = from->wait_count,
                                   .microbatch = -1,
                                   .lane = from->lane };
    if (from->call >= 0 && body->calls[from->call].operator_index >= 0) {
        to->operator_index = (uint32_t)body->calls[from->call].operator_index;
        to->microbatch = body->calls[from->call].microbatch;
    } else if (operand != NULL) {
        to->operator_index = operator_of(s->plan, &layout->objects[operand->object]);
    }
    if (operand != NULL && coh_opcode_moves(from->opcode)) {
        to->chunk = body->touches[operand->touch_begin].chunk;
        to->stream = layout->objects[operand->object].stream;
    }
}

/* ---- memory ---- */

static int is_pinned(const coh_plan *plan, const coh_extent *extent)
{
    return extent->tier == COH_TIER_DEVICE && extent->offset < plan->layout.pinned_bytes;
}

/* Counts extents with users outside the pinned range, and writes them to `out` (may be NULL). */
static uint32_t list_extents(const scene *s, coh_trace_extent *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->body->extent_count; i++) {
        const coh_extent *from = &s->body->extents[i];
        if (is_pinned(s->plan, from) || s->first[i] == COH_TRACE_NONE)
            continue;
        if (out != NULL)
            out[count] = (coh_trace_extent){
                .bytes = from->bytes,
                .first = s->first[i],
                .last = s->last[i],
                .purpose =
                    s->plan->layout.objects[s->plan->layout.chunks[from->chunk].object].stream,
                .tier = from->tier,
                .at_begin = from->at_begin,
                .at_end = from->at_end,
            };
        count++;
    }
    return count;
}

/* Fills the bytes that are in use during the whole step: pinned objects, the working store, and
 * extents that no instruction uses. */
static void fill_pinned(const scene *s, uint64_t pinned_bytes[COH_TIER_COUNT])
{
    pinned_bytes[COH_TIER_DEVICE] = s->plan->layout.pinned_bytes;
    pinned_bytes[COH_TIER_DISK] = s->plan->layout.file_bytes;
    for (uint32_t i = 0; i < s->body->extent_count; i++) {
        const coh_extent *extent = &s->body->extents[i];
        if (extent->at_end && s->first[i] == COH_TRACE_NONE && !is_pinned(s->plan, extent))
            pinned_bytes[extent->tier] += extent->bytes;
    }
}

/* ---- the trace ---- */

static coh_trace counts_of(const scene *s)
{
    const coh_plan *plan = s->plan;
    const coh_profile *profile = &plan->profile;
    int is_bf16 = 0;
    for (uint32_t i = 0; i < plan->layout.group_count; i++)
        is_bf16 |= plan->layout.groups[i].dtype == COH_DTYPE_BF16;
    coh_trace counts = {
        .opcode_count = COH_OP_COUNT,
        .purpose_count = COH_STREAM_COUNT,
        .operator_count = (uint32_t)plan->graph->op_count,
        .instruction_count = s->body->instruction_count,
        .wait_count = s->body->wait_count,
        .extent_count = list_extents(s, NULL),
        .budget_bytes = { [COH_TIER_DEVICE] = plan->options.device_memory_bytes,
                          [COH_TIER_HOST] = plan->options.host_memory_bytes,
                          [COH_TIER_DISK] =
                              plan->layout.file_bytes > 0 ? plan->options.disk_bytes : 0 },
        .predicted_step_ns = s->predicted_ns,
        .flops_per_s = profile->flops_per_s[is_bf16 ? COH_ROOF_BF16 : COH_ROOF_F32].p50,
        .program_hash = plan->program_hash,
    };
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        counts.arena_bytes[tier] = plan->layout.arena_bytes[tier];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (coh_profile_is_link(profile, (coh_lane)lane))
            counts.lane_bytes_per_s[lane] = profile->link[lane].bytes_per_s.p50;
    fill_pinned(s, counts.pinned_bytes);
    return counts;
}

static coh_status make(const scene *s, const uint8_t *is_shared, coh_trace **out_trace)
{
    const coh_trace counts = counts_of(s);
    coh_trace_tables tables;
    COH_TRY(coh_trace_allocate(&counts, text_bytes(s->plan), &tables, out_trace));
    fill_texts(s->plan, &tables);
    for (uint32_t i = 0; i < s->body->instruction_count; i++) {
        fill_instruction(s, i, &tables.instructions[i]);
        tables.instructions[i].is_shared = is_shared != NULL && is_shared[i];
    }
    for (uint32_t i = 0; i < s->body->wait_count; i++) {
        const coh_wait *wait = &s->body->waits[i];
        tables.waits[i] =
            (coh_trace_wait){ .instruction = s->instructions[wait->lane][wait->ordinal - 1],
                              .carry = wait->carry };
    }
    (void)list_extents(s, tables.extents);
    return COH_OK;
}

coh_status coh_plan_trace_shared(const coh_plan *plan, const uint8_t *is_shared,
                                 coh_trace **out_trace)
{
    scene s = { 0 };
    *out_trace = NULL;
    coh_status status = scene_init(&s, plan);
    if (status == COH_OK)
        status = make(&s, is_shared, out_trace);
    scene_fini(&s);
    return status;
}

coh_status coh_plan_trace(const coh_plan *plan, coh_trace **out_trace)
{
    COH_NEED(plan);
    COH_NEED(out_trace);
    return coh_plan_trace_shared(plan, NULL, out_trace);
}
