/* The instructions of a body as the planner writes them, and the memory layout of the objects
 * they touch. Next: measure.h, measure_operator.c. */
#include "engine/measure.h"

/* ---- instructions ---- */

coh_status coh_measure_lowered_init(const coh_measure *m, const coh_graph *graph,
                                    uint64_t chunk_bytes, int with_cache, int32_t microbatch_count,
                                    coh_measure_lowered *out_lowered)
{
    coh_plan_options options;
    const coh_block_set none = { 0 }; /* no block is recomputed */
    const coh_decisions decisions = { .chunk_bytes = chunk_bytes,
                                      .cache = with_cache,
                                      .row_passes = 1,
                                      .patterns = coh_pattern_choose(1) };
    *out_lowered = (coh_measure_lowered){ .graph = graph, .microbatch_count = microbatch_count };
    coh_plan_options_init(&options);
    options.profile = m->profile;
    options.f32_gradients = m->options->f32_gradients;
    options.microbatch_count = microbatch_count;
    options.mode = graph->loss >= 0 ? COH_PLAN_TRAIN : COH_PLAN_INFER;
    coh_status status =
        coh_layout_build(graph, &options, &decisions, &out_lowered->layout, &out_lowered->map);
    if (status == COH_OK)
        status = coh_lower(graph, &options, &out_lowered->layout, &out_lowered->map, &none, 0,
                           COH_PROGRAM_BODY, &out_lowered->body);
    if (status != COH_OK)
        coh_measure_lowered_fini(out_lowered);
    return status;
}

void coh_measure_lowered_fini(coh_measure_lowered *lowered)
{
    coh_lowered_fini(&lowered->body);
    coh_object_map_fini(&lowered->map);
    coh_layout_fini(&lowered->layout);
    *lowered = (coh_measure_lowered){ 0 };
}

const coh_lowered_operand *coh_lowered_find(const coh_lowered *lowered,
                                            const coh_lowered_instruction *instruction,
                                            coh_role role)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        if (lowered->operands[instruction->operand_begin + i].role == role)
            return &lowered->operands[instruction->operand_begin + i];
    return NULL;
}

/* ---- windows ---- */

static int find_object(const coh_window *window, int32_t object)
{
    for (uint32_t i = 0; i < window->count; i++)
        if (window->objects[i] == object)
            return (int)i;
    return -1;
}

static coh_status add_operand(coh_window *window, const coh_layout *layout,
                              const coh_lowered_operand *operand)
{
    const coh_chunk *chunks = &layout->chunks[layout->objects[operand->object].chunk_begin];
    const coh_chunk *last = &chunks[operand->touch_end - 1];
    const uint64_t begin = chunks[operand->touch_begin].object_offset;
    const uint64_t end = last->object_offset + last->bytes;
    const int known = find_object(window, operand->object);
    if (known >= 0 && window->begins[known] <= begin && window->ends[known] >= end)
        return COH_OK;
    if (known >= 0 || window->count == COH_WINDOW_OBJECTS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "an instruction touches what no window has room for");
    window->objects[window->count] = operand->object;
    window->begins[window->count] = begin;
    window->ends[window->count] = end;
    window->offsets[window->count++] = window->bytes;
    window->bytes += end - begin;
    return COH_OK;
}

coh_status coh_window_add(coh_window *window, const coh_measure_lowered *lowered,
                          const coh_lowered_instruction *instruction)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++)
        COH_TRY(add_operand(window, &lowered->layout,
                            &lowered->body.operands[instruction->operand_begin + i]));
    return COH_OK;
}

uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset)
{
    int index = find_object(window, object);
    return index >= 0 ? window->offsets[index] + (object_offset - window->begins[index]) : 0;
}
