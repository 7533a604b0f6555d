/* The lines of a body as the planner writes them, and the memory layout of the objects they touch.
 * Next: measure.h, measure_operator.c. */
#include "engine/measure.h"

/* ---- lines ---- */

coh_status coh_measure_sheet_init(const coh_measure *m, const coh_graph *graph,
                                  uint64_t chunk_bytes, int with_cache, int32_t microbatch_count,
                                  coh_measure_sheet *out_sheet)
{
    coh_plan_options options;
    const coh_block_set none = { 0 }; /* no block is recomputed */
    const coh_decisions decisions = { .chunk_bytes = chunk_bytes,
                                      .cache = with_cache,
                                      .row_passes = 1,
                                      .patterns = coh_pattern_choose(1) };
    *out_sheet = (coh_measure_sheet){ .graph = graph, .microbatch_count = microbatch_count };
    coh_plan_options_init(&options);
    options.profile = m->profile;
    options.f32_gradients = m->options->f32_gradients;
    options.microbatch_count = microbatch_count;
    options.mode = graph->loss >= 0 ? COH_PLAN_TRAIN : COH_PLAN_INFER;
    coh_status status =
        coh_layout_build(graph, &options, &decisions, &out_sheet->layout, &out_sheet->map);
    if (status == COH_OK)
        status = coh_lower(graph, &options, &out_sheet->layout, &out_sheet->map, &none, 0,
                           COH_PROGRAM_BODY, &out_sheet->sheet);
    if (status != COH_OK)
        coh_measure_sheet_fini(out_sheet);
    return status;
}

void coh_measure_sheet_fini(coh_measure_sheet *sheet)
{
    coh_sheet_fini(&sheet->sheet);
    coh_object_map_fini(&sheet->map);
    coh_layout_fini(&sheet->layout);
    *sheet = (coh_measure_sheet){ 0 };
}

const coh_need *coh_sheet_need(const coh_sheet *sheet, const coh_sheet_line *line, coh_role role)
{
    for (uint32_t i = 0; i < line->need_count; i++)
        if (sheet->needs[line->need_begin + i].role == role)
            return &sheet->needs[line->need_begin + i];
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

static coh_status add_need(coh_window *window, const coh_layout *layout, const coh_need *need)
{
    const coh_chunk *chunks = &layout->chunks[layout->objects[need->object].chunk_begin];
    const coh_chunk *last = &chunks[need->touch_end - 1];
    const uint64_t begin = chunks[need->touch_begin].object_offset;
    const uint64_t end = last->object_offset + last->bytes;
    const int known = find_object(window, need->object);
    if (known >= 0 && window->begins[known] <= begin && window->ends[known] >= end)
        return COH_OK;
    if (known >= 0 || window->count == COH_WINDOW_OBJECTS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "a line touches what no window has room for");
    window->objects[window->count] = need->object;
    window->begins[window->count] = begin;
    window->ends[window->count] = end;
    window->offsets[window->count++] = window->bytes;
    window->bytes += end - begin;
    return COH_OK;
}

coh_status coh_window_add(coh_window *window, const coh_measure_sheet *sheet,
                          const coh_sheet_line *line)
{
    for (uint32_t i = 0; i < line->need_count; i++)
        COH_TRY(add_need(window, &sheet->layout, &sheet->sheet.needs[line->need_begin + i]));
    return COH_OK;
}

uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset)
{
    int index = find_object(window, object);
    return index >= 0 ? window->offsets[index] + (object_offset - window->begins[index]) : 0;
}
